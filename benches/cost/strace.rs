//! System calls by kind, counted by strace.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::CONNECTIONS;
use crate::load;
use crate::peers::Proxy;

/// System calls for each request, by kind. Those that begin and end connections are among them, with a small share.
pub(crate) struct SystemCalls {
    pub(crate) kinds: BTreeMap<String, f64>,
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
pub(crate) fn count_both(proxy: &Proxy, key: &str, requests: usize) -> [SystemCalls; 2] {
    [count(proxy, key, 1, requests), count(proxy, key, CONNECTIONS, requests * MORE)]
}

/// Counts the system calls of requests on this many connections at once.
fn count(proxy: &Proxy, key: &str, connections: usize, requests: usize) -> SystemCalls {
    load::run_many(proxy.address, key, connections, requests / 10 + connections);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("counts");
    let mut strace = Command::new("strace")
        .args(["-f", "-c", "-p", &proxy.id().to_string(), "-o"])
        .arg(&out)
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace is installed");
    // It says so when it has attached to all threads.
    let (mut line, mut messages) = (String::new(), BufReader::new(strace.stderr.take().unwrap()));
    messages.read_line(&mut line).unwrap();
    assert!(line.contains("attached"), "strace cannot count: {line}");
    load::run_many(proxy.address, key, connections, requests);
    let interrupted = Command::new("kill").args(["-INT", &strace.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    // Until then its messages can be written: a closed pipe would end it before it writes the counts.
    strace.wait().unwrap();
    drop(messages);
    let kinds = calls(&std::fs::read_to_string(&out).unwrap());
    assert!(!kinds.is_empty(), "strace has counted nothing");
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let kinds = kinds.into_iter().map(|(kind, calls)| (kind, calls / requests as f64)).collect();
    SystemCalls { kinds }
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
