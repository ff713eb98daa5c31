//! Cost of a request, end to end: the real binary over loopback, beside its peers at the same job.
//!
//! It compares the CPU time of the proxy's processes, which repeats where throughput does not. The rounds of
//! all peers are interleaved, and ratios are taken within a round. Before it is measured, each peer is checked for
//! doing the job. Where one core is shared, by one request in flight, nothing overlaps and nothing waits for another
//! core: these figures repeat best. Cores are the first two of the machine.
//!
//! `cargo bench --bench end_to_end` measures (`make bench-peers` installs the peers first); arguments after `--`:
//! - `--out DIRECTORY`: also writes `peers.txt`, `peers.json` and `peers.svg`;
//! - `--rounds N`: rounds, 7 by default;
//! - `--only TEXT`: only the scenarios whose name contains it;
//! - `--share N`: an N-th of the requests, to try it out.
//!
//! Without `--bench`, as under `cargo test`, it only tries itself out. `KEYGATE_BINARY` names another
//! build of the gateway.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]

#[path = "../load/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other benchmarks need more of it")]
mod load;
#[path = "../peers/mod.rs"]
#[allow(dead_code, reason = "the other benchmarks need more of it")]
mod peers;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the tests need more of it")]
mod support;

mod figures;
mod plot;
mod report;
mod scenario;

use std::path::PathBuf;
use std::time::Instant;

use figures::Figures;
use peers::job::Job;
use scenario::SCENARIOS;
use support::ports;

/// Keys in the directory.
const KEYS: usize = 10_000;

/// Size of the measurement.
struct Size {
    keys: usize,
    rounds: usize,
    /// Divisor of the number of requests.
    share: usize,
    /// True when processes have cores of their own; without, figures mean nothing.
    pinned: bool,
}

fn main() {
    peers::minimal::run_if_asked();
    let arguments: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    let number = |name: &str, default: usize| value(name).map_or(default, |number| number.parse().expect("a number"));
    let size = if arguments.iter().any(|argument| argument == "--bench") {
        Size { keys: KEYS, rounds: number("--rounds", 7), share: number("--share", 1), pinned: true }
    } else {
        Size { keys: 100, rounds: 1, share: 1000, pinned: false }
    };
    let only = value("--only").map_or("", String::as_str);
    let begun = Instant::now();
    let job = Job::new(size.keys, load::upstream());
    let mut all: Vec<Figures> = Vec::new();
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.name.contains(only)) {
        let figures = figures::measure(scenario, &job, &size);
        print!("{}", report::text(std::slice::from_ref(&figures)));
        all.push(figures);
    }
    eprintln!("{} scenarios in {} s", all.len(), begun.elapsed().as_secs());
    if let Some(out) = value("--out").map(PathBuf::from) {
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(out.join("peers.txt"), report::text(&all)).unwrap();
        std::fs::write(out.join("peers.json"), format!("{:#}\n", report::json(&all, &size))).unwrap();
        std::fs::write(out.join("peers.svg"), plot::svg(&all)).unwrap();
    }
}
