//! Soak: the attacks of the tests, in a loop, on three gateways that share a Redis, while they are reloaded,
//! replaced and killed.
//!
//! - `make soak` runs it for half an hour; `SOAK_MINUTES` says how long.
//! - No process ends without a line in a log; every request that the upstream has received is in one record, and every
//!   record that says so was received; descriptors and memory stay flat in the last two thirds.

mod attacks;
mod counting_upstream;
mod fleet;
mod samples;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counting_upstream::CountingUpstream;
use fleet::Member;
use samples::Samples;

use crate::support::redis::Redis;
use crate::support::{Client, Random, eventually, head};

const BLOCKS: &str = "
workers: 2
limits: { key: { requests: 1000000, per: 1s }, org: { concurrent: 200 }, bad_keys: { requests: 10000, per: 1s } }
timeouts: { lame_duck: 200ms, drain: 10s, head: 5s, body_idle: 5s, write_idle: 5s, response: 20s }
routes: [{ name: all, path: '/**' }]
";
/// Time between two reloads of all gateways.
const RELOADS: Duration = Duration::from_secs(10);
/// Time between two hand-overs of the first gateway, and between two kills of the second one. The
/// third one is left alone.
const REPLACEMENTS: Duration = Duration::from_secs(60);
/// Time between two looks at descriptors and memory.
const LOOKS: Duration = Duration::from_secs(5);
/// Honest clients of each gateway, and the pause between two requests of one.
const CLIENTS: usize = 2;
const PAUSE: Duration = Duration::from_millis(20);

fn minutes() -> u64 {
    std::env::var("KEYGATE_SOAK_MINUTES").map_or(30, |minutes| minutes.parse().expect("a number of minutes"))
}

#[test]
#[ignore = "takes half an hour: `make soak`"]
fn fleet_under_attack_ends_no_process_silently_and_loses_no_record() {
    let (server, upstream) = (Redis::start(), CountingUpstream::start());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", server.url());
    let mut fleet: Vec<Member> = (0..3).map(|_| Member::new(upstream.address, &state, BLOCKS)).collect();
    let key = fleet[0].setup.key();
    fleet.iter_mut().for_each(Member::start);
    let addresses: Vec<_> = fleet.iter().map(|member| member.setup.address).collect();
    let targets: Vec<_> = fleet.iter().map(|member| (member.setup.address, member.setup.admin)).collect();
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut samples = Samples::new(fleet.len());
    std::thread::scope(|scope| {
        let goes_on = || !stop.load(Ordering::Relaxed);
        for address in addresses.iter().flat_map(|address| [*address; CLIENTS]) {
            let (key, served) = (&key, &served);
            scope.spawn(move || honest(address, key, goes_on, served));
        }
        for (number, attack) in attacks::ALL.iter().enumerate() {
            let (key, targets) = (&key, &targets);
            scope.spawn(move || {
                let mut random = Random::new(number as u64);
                while goes_on() {
                    let (address, admin) = targets[random.index(targets.len())];
                    attack(&attacks::Target { address, admin, key }, &mut random);
                    std::thread::sleep(PAUSE);
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disturb(&mut fleet, &mut samples)));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let served = served.into_inner();
    println!("{served} requests of honest clients were served, {} reached the upstream", upstream.count());
    samples.print();
    for member in &mut fleet {
        eventually("it still serves", || member.setup.client().get("/", &key).status == 200);
        member.stop();
        member.check_ends();
    }
    assert!(served > 100, "only {served} requests were served");
    check_records(&fleet, &upstream);
    samples.check();
}

/// Sends requests of a client that does nothing wrong. Gateways that are killed have their requests fail.
fn honest(address: std::net::SocketAddr, key: &str, goes_on: impl Fn() -> bool, served: &AtomicUsize) {
    while goes_on() {
        let Ok(mut client) = Client::try_connect(address) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        while goes_on() && client.try_send(head("GET", "/", key, &[], 0)).is_ok() {
            let Ok(response) = client.try_response_to("GET") else { break };
            served.fetch_add(usize::from(response.status == 200), Ordering::Relaxed);
            if response.header("connection") == Some("close") {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Reloads, replaces and kills gateways until the time is over.
fn disturb(fleet: &mut [Member], samples: &mut Samples) {
    let (begun, length) = (Instant::now(), Duration::from_secs(60 * minutes()));
    let (mut reload, mut look) = (RELOADS, LOOKS);
    let (mut hand_over, mut kill) = (REPLACEMENTS / 2, REPLACEMENTS);
    while begun.elapsed() < length {
        let now = begun.elapsed();
        if now >= reload {
            reload += RELOADS;
            fleet.iter().for_each(Member::reload);
        }
        if now >= hand_over {
            hand_over += REPLACEMENTS;
            fleet[0].upgrade();
        }
        if now >= kill {
            kill += REPLACEMENTS;
            fleet[1].kill();
            fleet[1].start();
        }
        if now >= look {
            look += LOOKS;
            let part = now.as_secs_f64() / length.as_secs_f64();
            samples.look(part, fleet.iter().map(|member| member.current));
        }
        for member in &*fleet {
            member.assert_running();
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Compares the records of all gateways with what the upstream has received.
fn check_records(fleet: &[Member], upstream: &CountingUpstream) {
    let received = upstream.received();
    let (mut recorded, mut unsent) = (std::collections::HashSet::new(), 0);
    for member in fleet {
        member.setup.ok(&["audit", "verify"]);
        member.for_each_record(|record| {
            let id: uuid::Uuid = record["id"].as_str().unwrap().parse().unwrap();
            let outcome = record["outcome"].as_str().unwrap();
            if received.contains(&id) {
                assert!(recorded.insert(id), "two records of one request: {record}");
            } else if record["auth_method"] == "api-key" {
                // Refused, or ended on the way: by a kill, by its client, or for want of a connection.
                assert_ne!(outcome, "completed", "it was not received: {record}");
                unsent += usize::from(outcome == "aborted");
            }
        });
    }
    println!("{} records of received requests; a kill came before {unsent} others were sent", recorded.len());
    assert_eq!(recorded.len(), received.len(), "each request that the upstream has received is in one record");
}
