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
use crate::peers::{Peer, Proxy, Setup};
use crate::{KEYS, callgrind, load, strace};

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
    let counts: Vec<[f64; 4]> = (0..COUNTS).map(|_| count_once(&job)).collect();
    let lowest = |figure: usize| counts.iter().map(|figures| figures[figure]).fold(f64::INFINITY, f64::min);
    Baseline {
        about: "Counts for each request of the build that `make cost-check` counts; `make cost-baseline` writes this \
                file. They are higher than those of the build that is deployed (`make cost`), which takes too long to \
                build for each change."
            .to_owned(),
        instructions: lowest(0).round(),
        background_instructions: lowest(1).round(),
        system_calls_1_connection: hundredths(lowest(2)),
        system_calls_64_connections: hundredths(lowest(3)),
    }
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
    println!("{:32}{:>12}{:>12}{:>10}", "cost of a request", "baseline", "counted", "change");
    let mut holds = true;
    for (name, baseline, counted, is_bound) in rows {
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
