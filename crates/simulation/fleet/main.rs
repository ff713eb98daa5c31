//! Fleet: a deterministic simulation of many gateways on a Redis Cluster, in virtual time, that checks
//! the promised bounds.
//!
//! `cargo bench --bench fleet` runs the full size once; `make fleet` runs it with several seeds. Without `--bench`, as
//! under `cargo test`, a small fleet runs with a few seeds, and each bound is broken on purpose. `docs/capacity.md`
//! describes what is simulated, and what is the product's own code.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark fails by panicking, and has no public API")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers below 2^53"
)]
#![allow(unreachable_pub, reason = "the modules of a program")]

mod assertion;
mod budgets;
mod checks;
mod database;
mod decisions;
mod directory;
mod disk;
mod event;
mod faults;
mod gateway;
mod heartbeat;
mod identity;
mod journal;
mod leases;
mod links;
mod loss;
mod lua;
mod network;
mod offline;
mod options;
mod processes;
mod product;
mod random;
mod record;
mod refusals;
mod replies;
mod report;
mod requests;
mod revocations;
mod withdrawal;
mod server_faults;
mod shard;
mod ship;
mod signs;
mod sinks;
mod subjects;
mod trace;
mod world;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use options::{Break, Options};
use report::Outcome;
use world::World;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    if !is_bench && arguments.is_empty() {
        test();
        return ExitCode::SUCCESS;
    }
    let options = match Options::full().parse(arguments.into_iter()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut outcomes = Vec::new();
    for run in 0..options.runs {
        let outcome = simulate(Options { seed: options.seed + run, ..options.clone() });
        if options.json {
            println!("{}", outcome.json());
        } else {
            print!("{outcome}");
        }
        outcomes.push(outcome);
    }
    if outcomes.iter().any(Outcome::is_broken) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// One run. Shows its progress on a terminal.
fn simulate(options: Options) -> Outcome {
    let seconds = options.seconds;
    let mut world = World::new(options);
    let is_terminal = std::io::stderr().is_terminal();
    world.run(|time, counts| {
        if is_terminal {
            eprint!("\r{} s of {seconds} s, {} events, {} admitted ", time / 1_000_000, counts.events, counts.admitted);
        }
    });
    if is_terminal {
        eprint!("\r{:70}\r", "");
    }
    Outcome::new(&world)
}

/// A small fleet keeps all bounds, runs the same way twice, and each bound that is broken on purpose is found.
fn test() {
    let size = |broken| match broken {
        // Slots that are given twice after an absence are seen only where organizations are at their limits.
        Some(Break::Absence) => Options { requests: 3000, ..Options::small() },
        // Quiet keys, of which a slot is taken, on servers without faults for a while.
        Some(Break::SignOfLife) => {
            Options { shards: 40, orgs: 40, keys: 400, seconds: 60, requests: 50, ..Options::small() }
        }
        // Uses without Redis that are not repaid are seen only where the keys are at their limits afterwards.
        Some(Break::Bucket | Break::Cost) => {
            Options { gateways: 5, shards: 3, orgs: 4, keys: 20, seconds: 40, requests: 3000, ..Options::small() }
        }
        _ => Options::small(),
    };
    let small = |seed, broken| simulate(Options { seed, broken, ..size(broken) });
    for seed in 1..=2 {
        let outcome = small(seed, None);
        print!("{outcome}");
        assert!(!outcome.is_broken(), "seed {seed}");
        if seed == 1 {
            assert_eq!(outcome.digest, small(seed, None).digest, "the same seed gives the same run");
        }
    }
    for broken in Break::ALL {
        // An absence in which slots are given twice is rare: it takes some histories until one has it.
        let found =
            (1..=12).find_map(|seed| small(seed, Some(broken)).violation.filter(|found| found.bound == broken.bound()));
        let found = found.unwrap_or_else(|| panic!("{} was not found", broken.name()));
        println!("broken on purpose: {}; found: {}", found.bound, found.text);
    }
}
