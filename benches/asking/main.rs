//! Time that a question adds to a request: nginx, Traefik, Caddy and Envoy, each with its configuration of
//! `deploy/proxies`, beside the same program with the same file without the question. One request is in flight.
//!
//! All proxies run at the same time and are measured by turns, so that what disturbs the machine disturbs all of them.
//! Figures are medians over rounds of the median within a round, with the smallest and the largest; the added time
//! is the difference within a round. No proxy at all, the gateway as the proxy itself, and questions alone are measured
//! beside them.
//!
//! `cargo bench --bench asking` measures (`-- --rounds N`: 11 by default). Without `--bench`, as under `cargo test`, it
//! only tries itself out. `KEYGATE_BINARY` names another build of the gateway.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../load/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other benchmarks need more of it")]
mod load;
#[path = "../peers/mod.rs"]
#[allow(dead_code, reason = "the other benchmarks need more of it")]
mod peers;
#[path = "../../tests/integration/proxies/program.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests need more of it")]
mod program;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests need more of it")]
mod support;

mod silent;

use std::net::SocketAddr;

use load::{Load, Protocol, Shape};
use peers::job::Job;
use peers::{Frontend, Peer, Questions, Setup};
use program::Kind;
use support::ports;

/// Proxies, and how each asks.
const KINDS: [(&str, Kind, Questions); 5] = [
    ("nginx 1.31, auth_request", Kind::Nginx, Questions { protocol: "nginx", slots: "none" }),
    ("Traefik 3.7, ForwardAuth", Kind::Traefik, Questions { protocol: "forward_auth", slots: "none" }),
    ("Caddy 2.11, forward_auth", Kind::Caddy, Questions { protocol: "forward_auth", slots: "none" }),
    ("Envoy 1.40, ext_authz by gRPC", Kind::EnvoyExtAuthz, Questions { protocol: "envoy", slots: "none" }),
    ("Envoy 1.40, ext_proc", Kind::EnvoyExtProc, Questions { protocol: "envoy", slots: "stream" }),
];

/// Places of [`KINDS`].
const CADDY: usize = 2;
const EXT_AUTHZ: usize = 3;

/// A way to keygate without another proxy, measured beside the proxies.
struct Beside {
    name: &'static str,
    address: SocketAddr,
    protocol: Protocol,
    /// Microseconds of each round.
    rounds: Vec<f64>,
}

/// A proxy without the question, and with it.
struct Pair {
    name: &'static str,
    silent: program::Proxy,
    asking: program::Proxy,
    /// The gateway that is asked.
    decides: peers::Proxy,
    /// Microseconds of each round: silent, asking.
    rounds: Vec<[f64; 2]>,
}

fn main() {
    peers::minimal::run_if_asked();
    let arguments: Vec<String> = std::env::args().collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let rounds = arguments.iter().position(|argument| argument == "--rounds");
    let rounds = rounds.map_or(11, |at| arguments[at + 1].parse().unwrap());
    // nginx closes a connection after a thousand requests.
    let (rounds, requests) = if is_bench { (rounds, 900) } else { (1, 5) };

    let job = Job::new(if is_bench { 10_000 } else { 10 }, load::upstream());
    let mut pairs: Vec<Pair> = KINDS.into_iter().map(|kind| Pair::start(kind, &job)).collect();
    let gateway = peers::Proxy::start(Peer::Keygate, &job, &Setup::default());
    // The gateways of pairs are asked without their proxies.
    let mut beside = [
        Beside::new("no proxy", job.upstream, Protocol::Http1),
        Beside::new("keygate as the proxy", gateway.address, Protocol::Http1),
        Beside::new("decision by forward_auth, alone", pairs[CADDY].decides.address, Protocol::ForwardAuth),
        Beside::new("decision by gRPC, alone", pairs[EXT_AUTHZ].decides.address, Protocol::Check),
    ];
    for round in 0..rounds {
        for beside in &mut beside {
            beside.rounds.push(median_of(beside.address, &beside.protocol, &job, requests));
        }
        for pair in &mut pairs {
            pair.measure(&job, requests, round % 2 == 0);
        }
    }
    report(&beside, &pairs);
}

impl Beside {
    fn new(name: &'static str, address: SocketAddr, protocol: Protocol) -> Self {
        Self { name, address, protocol, rounds: Vec::new() }
    }
}

impl Pair {
    fn start((name, kind, questions): (&'static str, Kind, Questions), job: &Job) -> Self {
        let setup = Setup { frontend: Frontend::Decisions(questions), ..Setup::default() };
        let decides = peers::Proxy::start(Peer::Keygate, job, &setup);
        let silent = program::Proxy::start_changed(kind, decides.address, job.upstream, |text| {
            silent::without_question(kind, &text)
        });
        let asking = program::Proxy::start(kind, decides.address, job.upstream);
        assert!(refuses(asking.address) && !refuses(silent.address), "{name}: one of both asks");
        Self { name, silent, asking, decides, rounds: Vec::new() }
    }

    /// Measures both, in one order or the other.
    fn measure(&mut self, job: &Job, requests: usize, is_silent_first: bool) {
        let first = if is_silent_first { &self.silent } else { &self.asking };
        let second = if is_silent_first { &self.asking } else { &self.silent };
        let mut times = [first, second].map(|proxy| median_of(proxy.address, &Protocol::Http1, job, requests));
        if !is_silent_first {
            times.reverse();
        }
        self.rounds.push(times);
    }
}

/// Returns whether a request without a key is refused.
fn refuses(proxy: SocketAddr) -> bool {
    let response = support::Client::connect(proxy).get("/api/queries", "unknown");
    assert!(matches!(response.status, 200 | 401), "{response:?}");
    response.status == 401
}

/// Median time of a request, in microseconds, behind a few that warm up.
fn median_of(proxy: SocketAddr, protocol: &Protocol, job: &Job, requests: usize) -> f64 {
    let run = |requests| {
        let (keys, protocol) = (&job.keys[..1], protocol.clone());
        Load { keys, protocol, shape: Shape::Small, connections: 1, requests }.run(proxy)
    };
    run(requests / 10 + 1);
    run(requests).milliseconds(0.5) * 1000.0
}

fn report(beside: &[Beside], pairs: &[Pair]) {
    println!("{:32}{:>22}{:>22}{:>22}", "p50, one in flight, us", "without question", "with", "added");
    for beside in beside {
        println!("{:32}{:>22}", beside.name, spread(beside.rounds.iter().copied()));
    }
    for pair in pairs {
        let [silent, asking] = [0, 1].map(|which| spread(pair.rounds.iter().map(|times| times[which])));
        let added = spread(pair.rounds.iter().map(|[silent, asking]| asking - silent));
        println!("{:32}{silent:>22}{asking:>22}{added:>22}", pair.name);
    }
}

/// Median, smallest and largest.
fn spread(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    let last = times.len() - 1;
    format!("{:.0} ({:.0} to {:.0})", times[times.len() / 2], times[0], times[last])
}
