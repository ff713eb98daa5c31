//! Cost of a request, end to end: the real binary over loopback, next to HAProxy with the same task.
//!
//! Proxy, load and upstream share one core, with one request in flight: nothing overlaps and nothing waits for another
//! core, so the CPU time of the proxy's process repeats within a few per cent where throughput does not. The rounds of
//! all proxies are interleaved, and ratios are taken within a round.
//!
//! `cargo bench --bench end_to_end` measures; without `--bench`, as under `cargo test`, it only tries itself out.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../../tests/support/ports.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests need more of it")]
mod ports;

#[allow(dead_code, reason = "the other benchmarks need more of it")]
mod load;
#[allow(dead_code, reason = "the other benchmarks need more of it")]
mod proxies;

use std::process::Command;

use proxies::{Job, Proxy};

/// Keys in the directory.
const KEYS: usize = 10_000;

/// Size of the measurement.
struct Size {
    rounds: usize,
    requests: usize,
    keys: usize,
}

fn main() {
    let measure = std::env::args().any(|argument| argument == "--bench");
    let size = match measure {
        true => Size { rounds: 7, requests: 40_000, keys: KEYS },
        false => Size { rounds: 1, requests: 200, keys: 10 },
    };
    if measure {
        share_one_core();
    }
    let upstream = load::upstream();
    let job = Job::new(size.keys, upstream);
    let mut proxies = vec![
        Proxy::keygate(&job, "keygate", "written", &[]),
        Proxy::keygate(&job, "keygate, synced audit", "synced", &[]),
    ];
    match Proxy::haproxy(&job, &[]) {
        Some(haproxy) if measure => proxies.push(haproxy),
        Some(_) => {}
        None => println!("haproxy is not installed, so there is nothing to compare with: apt-get install haproxy"),
    }
    let direct = rounds(&size, &job, &mut proxies);
    report(&proxies, &direct);
}

/// This process, its threads and the proxies that it starts, on core 0.
fn share_one_core() {
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["-apc", "0", &own]).output();
    assert!(pinned.is_ok_and(|output| output.status.success()), "taskset (package util-linux) pins to one core");
}

/// CPU seconds per 100k requests of every proxy, in every round.
fn rounds(size: &Size, job: &Job, proxies: &mut [Proxy]) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::new(); proxies.len()];
    for proxy in proxies.iter() {
        load::run(proxy.address, &job.key, size.requests / 10 + 1);
    }
    for _ in 0..size.rounds {
        for (proxy, figures) in proxies.iter().zip(&mut figures) {
            let before = proxy.cpu_seconds();
            load::run(proxy.address, &job.key, size.requests);
            #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
            figures.push((proxy.cpu_seconds() - before) * 100_000.0 / size.requests as f64);
        }
    }
    figures
}

fn report(proxies: &[Proxy], figures: &[Vec<f64>]) {
    let reference = proxies.len() - 1;
    println!("{:28}{:>28}{:>34}", "CPU seconds per 100k requests", "median (min to max)", "to the last, per round");
    for (proxy, own) in proxies.iter().zip(figures) {
        let ratios: Vec<f64> = own.iter().zip(&figures[reference]).map(|(own, reference)| own / reference).collect();
        println!("{:28}{:>28}{:>34}", proxy.name, spread(own), spread(&ratios));
    }
}

fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    format!("{:.2} ({:.2} to {:.2})", sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
}
