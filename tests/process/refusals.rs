//! Loops of refused requests at full speed against the binary: a journal of bounded size, counts equal to the clients'
//! own, a good key that is never refused, and no count lost by `kill -9`.
//!
//! The ordinary suite runs some seconds. `KEYGATE_SOAK_SECONDS=1800 cargo test --release --test process -- --ignored
//! refusals_soak` runs as long as it says.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, Running, SetOnDrop, Setup, Upstream, eventually, head, metric};

/// Bytes of journal that four loops may cost in half an hour.
const MAX_BYTES: u64 = 50_000_000;
/// Pause between two requests of the good key, whose uses are recorded one by one.
const GOOD_PAUSE: Duration = Duration::from_millis(200);
/// The slots of the full organization are held for as long as the loops run.
const BLOCKS: &str = "
timeouts: { lame_duck: 0s, response_idle: 2h, exchange: 2h }
limits: { key: { requests: 1, per: 1h, burst: 1 }, org: { concurrent: 2 }, bad_keys: { requests: 1000000, per: 1s } }
routes: [{ name: admin, path: /admin, permission: 'admin:all' }, { name: rest, path: '/**' }]
";

/// A client in a loop: the path and key of its requests, and the code and outcome that they get.
struct Loop {
    path: &'static str,
    key: String,
    code: &'static str,
    outcome: &'static str,
}

/// The parts of an attack: loops, a key whose organization has no free slot, and a good key.
struct Attack {
    setup: Setup,
    loops: Vec<Loop>,
    good: String,
    /// Key of the requests that hold the slots.
    holder: String,
}

/// Upstream that does not end its responses to `/slow`.
fn upstream() -> Upstream {
    Upstream::answering(|request, stream| {
        let slow = request.path() == "/slow";
        let length = if slow { 3 } else { 2 };
        drop(stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\nok").as_bytes()));
    })
}

impl Attack {
    fn new(upstream: &Upstream) -> Self {
        let setup = Setup::new(upstream.address, BLOCKS);
        let [exhausted, revoked, forbidden, good] =
            ["spent", "revoked", "forbidden", "good"].map(|org| key(&setup, org));
        let [holder, slotless] = [key(&setup, "full"), another_key(&setup, "full")];
        setup.ok(&["key", "revoke", id(&revoked)]);
        for key in [&good, &holder, &slotless] {
            setup.ok(&["key", "limits", id(key), "--requests", "1000000", "--per", "1s", "--burst", "1000000"]);
        }
        let of = |path, key, code, outcome| Loop { path, key, code, outcome };
        let loops = vec![
            of("/", exhausted, "rate_limited", "rate_limited"),
            of("/", revoked, "invalid_token", "revoked"),
            of("/admin", forbidden, "insufficient_scope", "forbidden"),
            of("/", slotless, "too_many_in_flight", "too_many_in_flight"),
        ];
        Self { setup, loops, good, holder }
    }

    /// Takes the slots of the organization and the token of the exhausted key.
    fn prepare(&self) -> Vec<Client> {
        let spend = self.setup.client().get("/", &self.loops[0].key).status;
        assert!([200, 429].contains(&spend), "{spend}");
        let hold = |_| {
            let mut client = self.setup.client();
            client.send(head("GET", "/slow", &self.holder, &[], 0));
            assert_eq!(client.head().unwrap().0, 200);
            client
        };
        (0..2).map(hold).collect()
    }

    /// Runs all loops and the good key until `stop`. Returns the refusals that each loop saw.
    fn run(&self, stop: &AtomicBool) -> Vec<u64> {
        std::thread::scope(|scope| {
            let loops: Vec<_> = self.loops.iter().map(|of| scope.spawn(|| self.hammer(of, stop))).collect();
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // After a kill no gateway runs, so there is no response.
                    let response = self.one("/", &self.good);
                    assert!(response.is_none_or(|response| response.status == 200), "the good key was refused");
                    std::thread::sleep(GOOD_PAUSE);
                }
            });
            loops.into_iter().map(|refused| refused.join().unwrap()).collect()
        })
    }

    fn hammer(&self, of: &Loop, stop: &AtomicBool) -> u64 {
        let request = head("GET", of.path, &of.key, &[], 0);
        let (mut refused, mut client) = (0, None);
        while !stop.load(Ordering::Relaxed) {
            let Ok(mut connected) = client.take().map_or_else(|| Client::try_connect(self.setup.address), Ok) else {
                continue;
            };
            let sent = connected.try_send(&request).and_then(|()| connected.try_response_to("GET"));
            let Ok(response) = sent else { continue };
            assert_eq!(response.code(), of.code);
            refused += 1;
            client = (response.header("connection") != Some("close")).then_some(connected);
        }
        refused
    }

    fn one(&self, path: &str, key: &str) -> Option<crate::support::Response> {
        let mut client = Client::try_connect(self.setup.address).ok()?;
        client.try_send(head("GET", path, key, &[], 0)).ok()?;
        client.try_response_to("GET").ok()
    }

    /// Refusals in the journal, by outcome.
    fn recorded(&self) -> HashMap<String, u64> {
        let mut recorded = HashMap::new();
        for line in self.setup.ok(&["audit", "export"]).lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let count = record["count"].as_u64().unwrap_or(1);
            *recorded.entry(record["outcome"].as_str().unwrap().to_owned()).or_default() += count;
        }
        recorded
    }

    fn journal_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.setup.path().join("audit")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }
}

fn key(setup: &Setup, org: &str) -> String {
    setup.ok(&["org", "create", org]);
    setup.ok(&["user", "create", "--org", org, "ada@example.com"]);
    another_key(setup, org)
}

fn another_key(setup: &Setup, org: &str) -> String {
    setup.ok(&["key", "create", "--org", org, "--user", "ada@example.com", "laptop"])
}

fn id(key: &str) -> &str {
    &key[8..17]
}

/// The sum of the counts that a journal must have, and may have: the responses to the last requests before a kill may
/// be lost on their way to the client.
fn assert_counts(attack: &Attack, seen: &[u64], lost: u64) {
    let recorded = attack.recorded();
    for (of, seen) in attack.loops.iter().zip(seen) {
        let recorded = recorded[of.outcome];
        assert!(
            (*seen..=seen + lost).contains(&recorded),
            "{}: clients counted {seen}, the journal {recorded}",
            of.outcome
        );
    }
    attack.setup.ok(&["audit", "verify"]);
}

fn soak(seconds: u64) {
    let upstream = upstream();
    let attack = Attack::new(&upstream);
    let gateway = attack.setup.start();
    let holders = attack.prepare();
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    let seen = std::thread::scope(|scope| {
        let _over = SetOnDrop(&stop);
        let running = scope.spawn(|| attack.run(&stop));
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    let written = metric(attack.setup.admin, "keygate_audit_records_total{result=\"written\"}");
    assert!(written >= seen.iter().sum::<u64>() as f64);
    drop(holders);
    gateway.stop();
    assert_counts(&attack, &seen, 0);
    let (bytes, took) = (attack.journal_bytes(), begun.elapsed().as_secs());
    println!("{seen:?} refusals in {took} s: {bytes} bytes of journal");
    // The least that the slots and the index have, and the share of the time.
    let bound = 1_000_000 + MAX_BYTES * (took + 2) / 1800;
    assert!(bytes < bound.min(MAX_BYTES), "{bytes} bytes of journal in {took} s");
}

#[test]
fn loops_of_refusals_cost_a_bounded_journal() {
    soak(3);
}

#[test]
#[ignore = "runs for KEYGATE_SOAK_SECONDS, half an hour by default"]
fn refusals_soak() {
    let seconds = std::env::var("KEYGATE_SOAK_SECONDS").map_or(1800, |seconds| seconds.parse().unwrap());
    soak(seconds);
}

#[test]
fn kills_under_loops_of_refusals_lose_no_count() {
    let upstream = upstream();
    let attack = Attack::new(&upstream);
    let mut seen = vec![0; attack.loops.len()];
    const KILLS: u64 = 3;
    for _ in 0..KILLS {
        let mut gateway: Running = attack.setup.start();
        let holders = attack.prepare();
        let stop = AtomicBool::new(false);
        let counted = std::thread::scope(|scope| {
            let _over = SetOnDrop(&stop);
            let running = scope.spawn(|| attack.run(&stop));
            let refused = || metric(attack.setup.admin, "keygate_audit_refusals_coalesced_total");
            eventually("refusals are counted", || refused() > 500.0);
            gateway.kill();
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        drop(holders);
        seen.iter_mut().zip(counted).for_each(|(seen, counted)| *seen += counted);
    }
    // The last start recovers the counts. Each loop may have been refused once more without learning of it, and the
    // exhausted key while its token was spent.
    attack.setup.start().stop();
    assert_counts(&attack, &seen, 2 * KILLS);
}

#[test]
fn refusals_shrink_to_counts_below_the_low_water_mark() {
    const REFUSALS: u64 = 60;
    let upstream = upstream();
    let setup = Setup::new(upstream.address, "");
    let key = key(&setup, "acme");
    setup.ok(&["key", "revoke", id(&key)]);
    // No volume has so much space, so that the journal is below the mark from the start.
    setup.write(&setup.text().replace("low_water: 0%", "low_water: 512TiB"));
    let gateway = setup.start_logged();
    let log = || std::fs::read_to_string(setup.path().join("log")).unwrap();
    eventually("the mark is crossed", || log().contains("refusals are only counted"));
    let begun = Instant::now();
    for _ in 0..REFUSALS {
        assert_eq!(setup.client().get("/", &key).status, 401);
    }
    let seconds = begun.elapsed().as_secs() + 2;
    gateway.stop();
    let records = setup.ok(&["audit", "export"]);
    let records: Vec<serde_json::Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = records.iter().filter(|record| record["outcome"] == "revoked");
    let counts: Vec<u64> = counts.map(|record| record["count"].as_u64().unwrap_or(1)).collect();
    assert_eq!(counts.iter().sum::<u64>(), REFUSALS, "{counts:?}");
    // One record for each second, where up to ten more would have a record of their own above the mark.
    assert!(counts.len() as u64 <= seconds, "{counts:?} in {seconds} s");
}
