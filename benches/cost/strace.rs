//! System calls by kind, counted by strace.
//!
//! Each thread has a tracer of its own: a thread does not wait while the calls of another one are counted.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use crate::CONNECTIONS;
use crate::callgrind::thread_names;
use crate::peers::job::Job;
use crate::peers::{Proxy, Setup};

/// System calls for each request, by kind. Those that begin and end connections are among them, with a small share.
pub(crate) struct SystemCalls {
    pub(crate) kinds: BTreeMap<String, f64>,
    /// Calls of the threads that serve no requests, for each second: under strace, few requests come in a second.
    pub(crate) background_per_second: f64,
}

/// A tracer of one thread.
struct Tracer {
    strace: Child,
    /// Its messages: a closed pipe would end it before it writes the counts.
    messages: BufReader<ChildStderr>,
    out: PathBuf,
    serves: bool,
}

impl Tracer {
    fn attach(thread: u32, serves: bool, directory: &Path) -> Self {
        let out = directory.join(thread.to_string());
        let mut strace = Command::new("strace")
            .args(["-c", "-p", &thread.to_string(), "-o"])
            .arg(&out)
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is installed");
        let (mut line, mut messages) = (String::new(), BufReader::new(strace.stderr.take().unwrap()));
        messages.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "strace cannot count: {line}");
        Self { strace, messages, out, serves }
    }

    /// Calls by kind since the tracer was attached.
    fn end(mut self) -> BTreeMap<String, f64> {
        let interrupted = Command::new("kill").args(["-INT", &self.strace.id().to_string()]).status();
        assert!(interrupted.unwrap().success());
        self.strace.wait().unwrap();
        drop(self.messages);
        calls(&std::fs::read_to_string(&self.out).unwrap())
    }
}

impl SystemCalls {
    pub(crate) fn total(&self) -> f64 {
        self.kinds.values().sum()
    }
}

/// Requests of a count with many connections, for each of one with one connection: so the opening of connections, which is
/// counted as well, has a small share.
const MORE: usize = 4;

/// Counts with one connection and with [`CONNECTIONS`].
pub(crate) fn count_both(proxy: &Proxy, job: &Job, setup: &Setup<'_>, requests: usize) -> [SystemCalls; 2] {
    [(1, requests), (CONNECTIONS, requests * MORE)].map(|(connections, requests)| {
        let run = |requests| crate::run_load(proxy, job, setup, connections, requests);
        run(requests / 10 + connections);
        count(proxy, requests, run)
    })
}

/// Counts the system calls of this many requests.
fn count(proxy: &Proxy, requests: usize, run: impl Fn(usize)) -> SystemCalls {
    let (directory, begun) = (tempfile::tempdir().unwrap(), Instant::now());
    let threads = thread_names(proxy.id());
    // A program whose threads have no such name has one.
    let serves = |name: &str| name.starts_with("worker") || threads.len() == 1;
    let attach = |(id, name): &(u32, String)| Tracer::attach(*id, serves(name), directory.path());
    let tracers: Vec<Tracer> = threads.iter().map(attach).collect();
    run(requests);
    let (mut kinds, mut background) = (BTreeMap::new(), 0.0);
    for tracer in tracers {
        let serves = tracer.serves;
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

/// Number of calls by name, from the table that strace prints: share, seconds, microseconds for each call, calls, errors
/// where there are any, name.
fn calls(table: &str) -> BTreeMap<String, f64> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let calls = columns.get(3)?.parse().ok()?;
        columns.last().filter(|name| **name != "total").map(|name| ((*name).to_owned(), calls))
    };
    table.lines().filter_map(row).collect()
}
