//! Measurement of one scenario: interleaved rounds of all its peers.

use std::io::{IsTerminal as _, Write as _};
use std::process::Command;
use std::time::Instant;

use crate::Size;
use crate::load::{Latencies, Load, OpenLoop, Protocol};
use crate::peers::job::Job;
use crate::peers::{Frontend, Peer, Proxy, Setup, check};
use crate::scenario::{Cores, Scenario};
use crate::support::redis::Redis;

/// Figures of all peers of a scenario.
pub(crate) struct Figures {
    pub(crate) scenario: &'static Scenario,
    pub(crate) peers: Vec<PeerFigures>,
}

/// Figures of a peer, in the order of the rounds.
pub(crate) struct PeerFigures {
    pub(crate) peer: Peer,
    /// CPU seconds of its processes for 100,000 requests.
    pub(crate) cpu: Vec<f64>,
    /// The same, to the reference in the same round.
    pub(crate) ratio: Vec<f64>,
    /// Milliseconds within which 99 of 100 requests were answered.
    pub(crate) p99: Vec<f64>,
    /// The same, to the reference in the same round.
    pub(crate) p99_ratio: Vec<f64>,
    /// Milliseconds within which 999 of 1,000 requests were answered.
    pub(crate) p999: Vec<f64>,
    /// The same, to the reference in the same round.
    pub(crate) p999_ratio: Vec<f64>,
    /// Milliseconds of the slowest request.
    pub(crate) slowest: Vec<f64>,
}

/// Starts the peers, checks them, and measures them by turns.
pub(crate) fn measure(scenario: &'static Scenario, job: &Job, size: &Size) -> Figures {
    let (own_core, proxy_core) = match scenario.cores {
        Cores::One => ("0", "0"),
        Cores::OwnForProxy => ("1", "0"),
        Cores::Two => ("0,1", "0,1"),
    };
    // Also the cores of what is started from here on.
    let pin = ["taskset", "-c", proxy_core].map(str::to_owned);
    if size.pinned {
        stay_on(own_core);
    }
    let redis = scenario.redis.then(|| {
        let server = Redis::start();
        job.write_to_redis(server.port());
        server
    });
    let setup = Setup {
        workers: scenario.workers,
        frontend: scenario.frontend,
        segment: scenario.segment,
        redis: redis.as_ref().map(Redis::port),
        wrapper: if size.pinned { &pin } else { &[] },
        ..Setup::default()
    };
    let proxies: Vec<Proxy> = installed(scenario)
        .map(|peer| {
            check::check(peer, job, &setup);
            Proxy::start(peer, job, &setup)
        })
        .collect();
    let mut peers: Vec<PeerFigures> = proxies.iter().map(|proxy| PeerFigures::new(proxy.peer)).collect();
    let requests = (scenario.requests / size.share).max(scenario.connections);
    for proxy in &proxies {
        load(scenario, job, (requests / 10).max(scenario.connections)).run(proxy.address);
    }
    let rate = scenario.open_loop.map(|share| share * saturated_rate(scenario, job, requests, &proxies));
    for round in 1..=size.rounds {
        for (proxy, figures) in proxies.iter().zip(&mut peers) {
            progress(&format!("{}: round {round} of {}, {}", scenario.name, size.rounds, proxy.peer.name()));
            figures.round(proxy, requests, || match rate {
                Some(rate) => open_loop(scenario, job, requests, rate).run(proxy.address),
                None => load(scenario, job, requests).run(proxy.address),
            });
        }
    }
    progress("");
    set_ratios(&mut peers, scenario.reference());
    Figures { scenario, peers }
}

/// The peers of a scenario that are installed; says which are not.
fn installed(scenario: &Scenario) -> impl Iterator<Item = Peer> {
    scenario.peers.iter().copied().filter(|peer| {
        let is_installed = peer.is_installed();
        if !is_installed {
            eprintln!("{} is not installed, so it is left out; `make bench-peers` installs it", peer.name());
        }
        is_installed
    })
}

fn load<'a>(scenario: &Scenario, job: &'a Job, requests: usize) -> Load<'a> {
    let protocol = match scenario.frontend {
        Frontend::Plain => Protocol::Http1,
        Frontend::Tls => Protocol::Tls(job.trust.clone()),
        Frontend::Http2 => Protocol::Http2(scenario.streams),
        Frontend::Decisions(_) => unreachable!("no scenario asks for decisions"),
    };
    Load { keys: &job.keys, protocol, shape: scenario.shape, connections: scenario.connections, requests }
}

fn open_loop<'a>(scenario: &Scenario, job: &'a Job, requests: usize, rate: f64) -> OpenLoop<'a> {
    OpenLoop { keys: &job.keys, connections: scenario.connections, requests, rate }
}

/// Requests a second of the reference when as many are in flight as there are connections.
fn saturated_rate(scenario: &Scenario, job: &Job, requests: usize, proxies: &[Proxy]) -> f64 {
    let reference = proxies.iter().find(|proxy| proxy.peer == scenario.reference()).expect("the reference runs");
    let begun = Instant::now();
    load(scenario, job, requests).run(reference.address);
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let requests = requests as f64;
    requests / begun.elapsed().as_secs_f64()
}

impl PeerFigures {
    fn new(peer: Peer) -> Self {
        Self {
            peer,
            cpu: Vec::new(),
            ratio: Vec::new(),
            p99: Vec::new(),
            p99_ratio: Vec::new(),
            p999: Vec::new(),
            p999_ratio: Vec::new(),
            slowest: Vec::new(),
        }
    }

    fn round(&mut self, proxy: &Proxy, requests: usize, run: impl FnOnce() -> Latencies) {
        let before = proxy.cpu_seconds();
        let latencies = run();
        #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
        self.cpu.push((proxy.cpu_seconds() - before) * 100_000.0 / requests as f64);
        self.p99.push(latencies.milliseconds(0.99));
        self.p999.push(latencies.milliseconds(0.999));
        self.slowest.push(latencies.milliseconds(1.0));
    }
}

/// Sets the ratios of all, where the reference was measured.
fn set_ratios(peers: &mut [PeerFigures], reference: Peer) {
    let Some(reference) = peers.iter().find(|figures| figures.peer == reference) else { return };
    let cpu = reference.cpu.clone();
    let p99 = reference.p99.clone();
    let p999 = reference.p999.clone();
    let ratios = |own: &[f64], reference: &[f64]| own.iter().zip(reference).map(|(own, other)| own / other).collect();
    for figures in peers {
        figures.ratio = ratios(&figures.cpu, &cpu);
        figures.p99_ratio = ratios(&figures.p99, &p99);
        figures.p999_ratio = ratios(&figures.p999, &p999);
    }
}

/// This process, its threads and what it starts, on these cores.
fn stay_on(cores: &str) {
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-apc", cores, &own]).output();
    assert!(
        pinned.is_ok_and(|output| output.status.success()),
        "taskset (package util-linux) pins to cores {cores}; two cores are needed"
    );
}

/// Shows on a terminal what is measured.
fn progress(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        // Blanks over what was there.
        write!(out, "\r{text:100}\r").and_then(|()| out.flush()).ok();
    }
}
