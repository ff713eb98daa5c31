//! System calls by kind for each request, with one connection and with many: those of all threads, each with
//! a tracer of its own.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::CONNECTIONS;
use crate::counters::{self, strace::Tracer};
use crate::peers::job::Job;
use crate::peers::{Proxy, Setup};

/// System calls for each request, by kind. Those that begin and end connections are among them, with a small share.
pub(crate) struct SystemCalls {
    pub(crate) kinds: BTreeMap<String, f64>,
    /// Calls of the threads that serve no requests, for each second: under strace, few requests come in a second.
    pub(crate) background_per_second: f64,
}

impl SystemCalls {
    pub(crate) fn total(&self) -> f64 {
        self.kinds.values().sum()
    }
}

/// Requests of a count with many connections, for each of one with one connection: so the opening of connections, which
/// is counted as well, has a small share.
pub(crate) const MORE: usize = 4;

/// Counts with one connection and with [`CONNECTIONS`].
pub(crate) fn count_both(proxy: &Proxy, job: &Job, setup: &Setup<'_>, requests: usize) -> [SystemCalls; 2] {
    [(1, requests), (CONNECTIONS, requests * MORE)]
        .map(|(connections, requests)| count_with(proxy, job, setup, connections, requests))
}

/// Counts with this many connections.
pub(crate) fn count_with(
    proxy: &Proxy,
    job: &Job,
    setup: &Setup<'_>,
    connections: usize,
    requests: usize,
) -> SystemCalls {
    let run = |requests| crate::run_load(proxy, job, setup, connections, requests);
    run(requests / 10 + connections);
    count(proxy, requests, run)
}

/// Counts the system calls of this many requests.
fn count(proxy: &Proxy, requests: usize, run: impl Fn(usize)) -> SystemCalls {
    let (directory, begun) = (tempfile::tempdir().unwrap(), Instant::now());
    let threads = counters::threads(proxy.id());
    // A program whose threads have no such name has one.
    let serves = |name: &str| name.starts_with("worker") || threads.len() == 1;
    let attach = |(id, name): &(u32, String)| Some((serves(name), Tracer::attach(*id, directory.path())?));
    let tracers: Vec<(bool, Tracer)> = threads.iter().filter_map(attach).collect();
    assert!(tracers.iter().any(|(serves, _)| *serves), "no thread that serves is left");
    run(requests);
    let (mut kinds, mut background) = (BTreeMap::new(), 0.0);
    for (serves, tracer) in tracers {
        for (kind, calls) in tracer.end() {
            #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
            let each = calls / requests as f64;
            *kinds.entry(kind).or_insert(0.0) += each;
            background += if serves { 0.0 } else { calls };
        }
    }
    assert!(!kinds.is_empty(), "strace has counted nothing");
    SystemCalls { kinds, background_per_second: background / begun.elapsed().as_secs_f64() }
}
