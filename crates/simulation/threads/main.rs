//! All interleavings of threads, by `loom`, in the two places where they share more than a lock: the shares of the
//! connection limiter, and what a writer of the journal tells the requests whose lines it has taken.
//!
//! The files of the product are compiled here as they are, with `loom` behind their `sync` modules.
//! `docs/development/design/proved.md` names what is not modelled.
#![allow(clippy::print_stdout, reason = "a program of tests")]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "parts of the product that are not used here")]

/// Shares of connections: `crates/upstream/src/connection/limits`.
mod limits {
    #[path = "../../../upstream/src/connection/limits/limiter.rs"]
    mod limiter;
    #[path = "../../../upstream/src/connection/limits/permit.rs"]
    mod permit;
    #[path = "../../../upstream/src/connection/limits/queue.rs"]
    mod queue;
    #[path = "../../../upstream/src/connection/limits/share.rs"]
    mod share;
    mod sync;
    #[path = "../../../upstream/src/connection/limits/worker_link.rs"]
    mod worker_link;

    pub(crate) mod connections;

    pub(crate) use limiter::ConnectionLimiter;
    pub(crate) use permit::{ClosingMark, ConnectionPermit};
    pub(crate) use queue::{Acquisition, Grant, LocalRequest, QueueFull, QueuePlace};
    pub(crate) use share::OpenConnections;
    pub(crate) use worker_link::{ConnectionBounds, EndpointLink, IdleUse, WorkerLink};
}

/// Completion of a batch and mode of a journal: `crates/journal/src/audit/write`.
mod write {
    #[path = "../../../journal/src/audit/write/completion.rs"]
    pub(crate) mod completion;
    #[path = "../../../journal/src/audit/write/mode.rs"]
    pub(crate) mod mode;
    mod sync;

    pub(crate) mod lines;
}

/// A test: its name, and all its interleavings.
type Test = (&'static str, fn());

use limits::connections;
use write::lines;

const TESTS: [Test; 5] = [
    (
        "shares and what is borrowed never exceed the bound",
        connections::shares_and_what_is_borrowed_never_exceed_the_bound,
    ),
    ("a request that waits for another worker is woken", connections::request_that_waits_for_another_worker_is_woken),
    (
        "a worker that borrows leaves the share of the other one",
        connections::worker_that_borrows_leaves_the_share_of_the_other_one,
    ),
    ("a request learns that its line was written", lines::request_learns_that_its_line_was_written),
    (
        "a request learns that its line was refused, after the mode has changed",
        lines::request_learns_that_its_line_was_refused_after_the_mode_has_changed,
    ),
];

/// Mutants: each must be found.
const MUTANTS: [Test; 2] = [
    ("a request is told before the mode has changed", lines::request_is_told_before_the_mode_has_changed),
    ("wake-ups do not synchronize with one another", connections::wake_up_does_not_synchronize),
];

fn main() {
    for (name, test) in TESTS {
        let begun = std::time::Instant::now();
        test();
        println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
    }
    for (name, test) in MUTANTS {
        assert!(std::panic::catch_unwind(test).is_err(), "mutant: {name}: not found");
        println!("mutant: {name}: found");
    }
}
