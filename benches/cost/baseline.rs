//! The counts that a change must not raise unnoticed: instructions and system calls of the gateway, compared with
//! `baseline.json`.
//!
//! They are counted on a build of their own (`make cost-check`), not on that of deployments, whose whole-program
//! optimization takes longer to build than all tests. It has the optimization of releases for this crate, and reuses
//! the libraries of the tests' build. Its counts are higher than those of deployments, and move with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::load::Shape;
use crate::peers::job::Job;
use crate::peers::{Frontend, Peer, Proxy, Setup};
use crate::{CHECK, CONNECTIONS, FORWARD_AUTH, KEYS, callgrind, load, strace};

/// Requests of each count.
const REQUESTS: usize = 4_000;
/// Counts of which the lowest of each figure is taken: what disturbs a count, such as a timer on a busy machine, raises
/// it. A comparison counts again only while a figure is above its bound.
const COUNTS: usize = 3;
/// Rise above the baseline that fails. The lowest counts repeat within a per cent.
const MOST_RISE: f64 = 1.03;
/// System calls for each request that may come on top: the threads that wake up by time make some 200 in a second, and
/// how many of these fall on a request depends on how busy the machine is.
const MOST_CALLS_BY_TIME: f64 = 0.3;
/// Fall below the baseline after which it should be counted anew, so that what was won is not lost unnoticed.
const NOTABLE_FALL: f64 = 0.97;

/// The one of [`PATHS`] whose requests spend a budget.
const WITH_BUDGET: &str = "request with a quota";
/// The ways to the gateway whose cost is counted, each with one connection at a time.
const PATHS: [(&str, Frontend, Shape); 8] = [
    ("request", Frontend::Plain, Shape::Small),
    (WITH_BUDGET, Frontend::Plain, Shape::Small),
    ("request, keys in turn", Frontend::Plain, Shape::KeysInTurn),
    ("request, new connection", Frontend::Plain, Shape::NewConnections),
    ("request over TLS", Frontend::Tls, Shape::Small),
    ("request over HTTP/2", Frontend::Http2, Shape::Small),
    ("decision", Frontend::Decisions(FORWARD_AUTH), Shape::Small),
    ("decision by gRPC", Frontend::Decisions(CHECK), Shape::Small),
];

/// Counts for each request.
#[derive(Serialize, Deserialize)]
struct Baseline {
    /// Explanation of the counts, for people.
    about: String,
    /// By the names of [`PATHS`].
    paths: BTreeMap<String, Counts>,
    /// Of the first of [`PATHS`], with 64 connections.
    system_calls_64_connections: f64,
}

/// Counts for each request, one connection.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Counts {
    /// Instructions in user space of all threads.
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
    let job = Job::new(KEYS, load::upstream());
    let path = path();
    if write {
        std::fs::write(&path, serde_json::to_string_pretty(&count_all(&job)).unwrap() + "\n").unwrap();
        println!("wrote {}", path.display());
        return true;
    }
    let baseline: Baseline = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    compare(&baseline, &job)
}

fn count_all(job: &Job) -> Baseline {
    let paths = PATHS.iter().map(|(name, frontend, shape)| {
        let [instructions, system_calls] = lowest([0.0; 2], || count(job, name, *frontend, *shape));
        (name.to_string(), Counts { instructions: instructions.round(), system_calls: hundredths(system_calls) })
    });
    Baseline {
        about: "Counts for each request of the build that `make cost-check` counts; `make cost-baseline` writes this \
                file. They are higher than those of the build that is deployed (`make cost`), which takes too long to \
                build for each change."
            .to_owned(),
        paths: paths.collect(),
        system_calls_64_connections: hundredths(lowest([0.0], || [count_calls_of_many(job)])[0]),
    }
}

/// The lowest of each figure of several counts, which end when all are within their bounds.
fn lowest<const N: usize>(bounds: [f64; N], mut count: impl FnMut() -> [f64; N]) -> [f64; N] {
    let mut lowest = [f64::INFINITY; N];
    for _ in 0..COUNTS {
        lowest.iter_mut().zip(count()).for_each(|(lowest, counted)| *lowest = lowest.min(counted));
        if lowest.iter().zip(bounds).all(|(lowest, bound)| *lowest <= bound) {
            break;
        }
    }
    lowest
}

/// Instructions and system calls of a request.
fn count(job: &Job, path: &str, frontend: Frontend, shape: Shape) -> [f64; 2] {
    let setup = Setup { frontend, shape, has_budget: path == WITH_BUDGET, ..Setup::default() };
    let proxy = Proxy::start(Peer::Keygate, job, &setup);
    let calls = strace::count_with(&proxy, job, &setup, 1, REQUESTS).total();
    drop(proxy);
    [callgrind::count(Peer::Keygate, job, &setup, REQUESTS).total(), calls]
}

/// System calls of a request with 64 connections.
fn count_calls_of_many(job: &Job) -> f64 {
    let setup = Setup::default();
    let proxy = Proxy::start(Peer::Keygate, job, &setup);
    strace::count_with(&proxy, job, &setup, CONNECTIONS, REQUESTS * strace::MORE).total()
}

/// Counts and prints all figures; returns whether none has risen too far.
fn compare(baseline: &Baseline, job: &Job) -> bool {
    println!("{:38}{:>12}{:>12}{:>10}", "cost of a request", "baseline", "counted", "change");
    let mut holds = true;
    for (name, frontend, shape) in PATHS {
        let Counts { instructions, system_calls } =
            *baseline.paths.get(name).unwrap_or_else(|| panic!("{name} has no baseline: make cost-baseline"));
        let bounds = [instructions * MOST_RISE, most_calls(system_calls)];
        let counted = lowest(bounds, || count(job, name, frontend, shape));
        holds &= print_row(&format!("{name}: instructions"), instructions, counted[0].round(), bounds[0]);
        holds &= print_row(&format!("{name}: system calls"), system_calls, hundredths(counted[1]), bounds[1]);
    }
    let many = baseline.system_calls_64_connections;
    let bound = most_calls(many);
    let [counted] = lowest([bound], || [count_calls_of_many(job)]);
    holds &= print_row("64 connections: system calls", many, hundredths(counted), bound);
    if !holds {
        println!(
            "A request costs more than before. If that is intended, run `make cost-baseline`, and say why in the \
             commit."
        );
    }
    holds
}

/// The bound of the system calls of a request.
fn most_calls(baseline: f64) -> f64 {
    (baseline * MOST_RISE).max(baseline + MOST_CALLS_BY_TIME)
}

/// Prints a figure; returns whether it is within its bound.
fn print_row(name: &str, baseline: f64, counted: f64, bound: f64) -> bool {
    println!("{name:38}{baseline:>12}{counted:>12}{:>9.1}%", (counted / baseline - 1.0) * 100.0);
    if counted < baseline * NOTABLE_FALL {
        println!("  has fallen: `make cost-baseline` keeps what was won");
    }
    let holds = counted <= bound;
    if !holds {
        println!("  has risen too far: at most {bound:.2}");
    }
    holds
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/cost/baseline.json")
}

fn hundredths(count: f64) -> f64 {
    (count * 100.0).round() / 100.0
}
