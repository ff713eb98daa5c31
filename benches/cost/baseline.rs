//! The counts that a change must not raise unnoticed: instructions and system calls of the gateway, compared with
//! `baseline.json`.
//!
//! They are counted on a build of their own (`make cost-check`), not on that of deployments, whose whole-program
//! optimization takes longer to build than all tests. It has the optimization of releases for this crate, and reuses
//! the libraries of the tests' build. Its counts are higher than those of deployments, and move with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::peers::job::Job;
use crate::peers::{Frontend, Peer, Proxy, Questions, Setup};
use crate::{CHECK, FORWARD_AUTH, KEYS, callgrind, load, strace};

/// Requests of each count.
const REQUESTS: usize = 4_000;
/// Counts of which the lowest of each figure is taken: what disturbs a count, such as a timer on a
/// busy machine, raises it.
const COUNTS: usize = 3;
/// Rise above the baseline that fails. The lowest counts repeat within a per cent.
const MOST_RISE: f64 = 1.03;
/// Fall below the baseline after which it should be counted anew, so that what was won is not lost unnoticed.
const NOTABLE_FALL: f64 = 0.97;

/// Counts for each request.
#[derive(Serialize, Deserialize)]
struct Baseline {
    /// Explanation of the counts, for people.
    about: String,
    /// Instructions in user space of all threads, one connection.
    instructions: f64,
    /// The same of the threads that are not workers.
    background_instructions: f64,
    system_calls_1_connection: f64,
    system_calls_64_connections: f64,
    /// A decision for another proxy that asks by `forward_auth`.
    decision: Decision,
    /// The same for one that asks by gRPC.
    grpc_decision: Decision,
}

/// Counts for each decision, one connection.
#[derive(Serialize, Deserialize)]
struct Decision {
    instructions: f64,
    system_calls: f64,
}

/// Compares with the file, or writes it; returns whether nothing has risen.
pub(crate) fn check(write: bool) -> bool {
    for (tool, argument) in [("valgrind", "--version"), ("strace", "-V")] {
        let found = Command::new(tool).arg(argument).stdout(Stdio::null()).status();
        assert!(
            found.is_ok(),
            "{tool} is not installed, and the cost of a request cannot be counted: apt-get install {tool}"
        );
    }
    let counted = count();
    let path = path();
    if write {
        std::fs::write(&path, serde_json::to_string_pretty(&counted).unwrap() + "\n").unwrap();
        println!("wrote {}", path.display());
        return true;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let baseline: Baseline = serde_json::from_str(&text).unwrap();
    compare(&baseline, &counted)
}

fn count() -> Baseline {
    let job = Job::new(KEYS, load::upstream());
    let [instructions, background, one, many] = lowest(|| count_once(&job));
    let [decision, grpc_decision] = [FORWARD_AUTH, CHECK].map(|questions| {
        let [instructions, system_calls] = lowest(|| count_decisions(&job, questions));
        Decision { instructions: instructions.round(), system_calls: hundredths(system_calls) }
    });
    Baseline {
        about: "Counts for each request of the build that `make cost-check` counts; `make cost-baseline` writes this \
                file. They are higher than those of the build that is deployed (`make cost`), which takes too long to \
                build for each change."
            .to_owned(),
        instructions: instructions.round(),
        background_instructions: background.round(),
        system_calls_1_connection: hundredths(one),
        system_calls_64_connections: hundredths(many),
        decision,
        grpc_decision,
    }
}

/// The lowest of each figure of several counts.
fn lowest<const N: usize>(mut count: impl FnMut() -> [f64; N]) -> [f64; N] {
    let mut lowest = [f64::INFINITY; N];
    for _ in 0..COUNTS {
        lowest.iter_mut().zip(count()).for_each(|(lowest, counted)| *lowest = lowest.min(counted));
    }
    lowest
}

/// The figures of the file, in its order.
fn count_once(job: &Job) -> [f64; 4] {
    let proxy = Proxy::start(Peer::Keygate, job, &Setup::default());
    let [one, many] = strace::count_both(&proxy, job, &Setup::default(), REQUESTS).map(|calls| calls.total());
    drop(proxy);
    let instructions = callgrind::count(Peer::Keygate, job, &Setup::default(), REQUESTS);
    let is_worker = |name: &str| name.starts_with("worker");
    let background = instructions.threads.iter().filter(|(name, _)| !is_worker(name)).map(|(_, count)| count).sum();
    [instructions.total(), background, one, many]
}

/// Instructions and system calls of a decision.
fn count_decisions(job: &Job, questions: Questions) -> [f64; 2] {
    let setup = Setup { frontend: Frontend::Decisions(questions), ..Setup::default() };
    let proxy = Proxy::start(Peer::Keygate, job, &setup);
    let calls = strace::count_with(&proxy, job, &setup, 1, REQUESTS).total();
    drop(proxy);
    [callgrind::count(Peer::Keygate, job, &setup, REQUESTS).total(), calls]
}

/// Prints all figures; returns whether none has risen too far.
fn compare(baseline: &Baseline, counted: &Baseline) -> bool {
    let rows = [
        ("instructions", baseline.instructions, counted.instructions, true),
        // They vary with the time that the count takes, and are part of all instructions.
        ("of them in the background", baseline.background_instructions, counted.background_instructions, false),
        ("system calls, 1 connection", baseline.system_calls_1_connection, counted.system_calls_1_connection, true),
        (
            "system calls, 64 connections",
            baseline.system_calls_64_connections,
            counted.system_calls_64_connections,
            true,
        ),
    ];
    let decisions = [
        ("decision, instructions", baseline.decision.instructions, counted.decision.instructions, true),
        ("decision, system calls", baseline.decision.system_calls, counted.decision.system_calls, true),
        (
            "decision by gRPC, instructions",
            baseline.grpc_decision.instructions,
            counted.grpc_decision.instructions,
            true,
        ),
        (
            "decision by gRPC, system calls",
            baseline.grpc_decision.system_calls,
            counted.grpc_decision.system_calls,
            true,
        ),
    ];
    println!("{:32}{:>12}{:>12}{:>10}", "cost of a request", "baseline", "counted", "change");
    let mut holds = true;
    for (name, baseline, counted, is_bound) in rows.into_iter().chain(decisions) {
        println!("{name:32}{baseline:>12}{counted:>12}{:>9.1}%", (counted / baseline - 1.0) * 100.0);
        if is_bound && counted > baseline * MOST_RISE {
            holds = false;
            println!("  has risen by more than 3 %");
        } else if is_bound && counted < baseline * NOTABLE_FALL {
            println!("  has fallen: `make cost-baseline` keeps what was won");
        }
    }
    if !holds {
        println!(
            "A request costs more than before. If that is intended, run `make cost-baseline`, and say why in the \
             commit."
        );
    }
    holds
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cost/baseline.json")
}

fn hundredths(count: f64) -> f64 {
    (count * 100.0).round() / 100.0
}
