//! System calls by kind of one thread, counted by strace.
//!
//! A thread with a tracer of its own does not wait while the calls of another one are counted.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A tracer of one thread.
pub(crate) struct Tracer {
    strace: Child,
    /// Its messages: a closed pipe would end it before it writes the counts.
    messages: BufReader<ChildStderr>,
    out: PathBuf,
}

impl Tracer {
    /// Returns when strace counts. It writes its table into `directory`. None when the thread has ended.
    pub(crate) fn attach(thread: u32, directory: &Path) -> Option<Self> {
        let out = directory.join(thread.to_string());
        // Without `-f`, one thread is traced.
        let mut strace = Command::new("strace")
            .args(["-c", "-p", &thread.to_string(), "-o"])
            .arg(&out)
            .stderr(Stdio::piped())
            .spawn()
            .expect("strace is installed");
        let (mut line, mut messages) = (String::new(), BufReader::new(strace.stderr.take().unwrap()));
        messages.read_line(&mut line).unwrap();
        if line.contains("No such process") {
            strace.wait().unwrap();
            return None;
        }
        assert!(line.contains("attached"), "strace cannot count: {line}");
        Some(Self { strace, messages, out })
    }

    /// Calls by kind since the tracer was attached.
    pub(crate) fn end(mut self) -> BTreeMap<String, f64> {
        let interrupted = Command::new("kill").args(["-INT", &self.strace.id().to_string()]).status();
        assert!(interrupted.unwrap().success());
        self.strace.wait().unwrap();
        drop(self.messages);
        calls(&std::fs::read_to_string(&self.out).unwrap())
    }
}

/// Number of calls by name, from the table that strace prints: share, seconds, microseconds for each call, calls,
/// errors where there are any, name.
fn calls(table: &str) -> BTreeMap<String, f64> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let calls = columns.get(3)?.parse().ok()?;
        columns.last().filter(|name| **name != "total").map(|name| ((*name).to_owned(), calls))
    };
    table.lines().filter_map(row).collect()
}
