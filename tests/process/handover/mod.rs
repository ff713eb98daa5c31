//! Replacing a gateway by another process: under load, with requests and tunnels in flight, and when the new one fails.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::upstream::Received;
use crate::support::{Client, Running, Setup, Upstream, eventually, head};

mod activation;
mod dashboard;
mod example;
mod failures;
mod impostor;
mod in_flight;
mod interceptor;
mod journal_states;
mod keys;
mod many_keys;
mod package;
mod repeated;
mod shipping;
mod signal;
mod under_load;

/// Tokens of a bucket that does not refill.
const BURST: usize = 1_000_000;
/// Bounds of the tests: two workers, a bucket that does not refill, and a short drain.
const BLOCKS: &str = "
workers: 2
limits: { key: { requests: 1, per: 1h, burst: 1000000 }, org: { concurrent: 100 } }
timeouts: { lame_duck: 200ms, drain: 20s }
routes: [{ name: all, path: '/**', upgrade: [websocket] }]
";

/// A gateway and the processes that have replaced it, all killed when the test ends.
struct Lineage {
    setup: Setup,
    first: Running,
    /// The processes that took over, oldest first.
    later: Mutex<Vec<u32>>,
}

impl Lineage {
    fn start(setup: Setup) -> Self {
        let first = setup.start_logged();
        Self { setup, first, later: Mutex::default() }
    }

    /// Replaces the gateway, and returns the id of the process that was replaced.
    fn upgrade(&self) -> u32 {
        let before = self.current();
        let output = self.try_upgrade(&[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}\n{}", self.log());
        before
    }

    /// Runs `keygate upgrade`, until the process before has served its last requests, and notes the
    /// process that it started.
    fn try_upgrade(&self, arguments: &[&str]) -> Output {
        let output = self.setup.keygate(&[&["upgrade"][..], arguments].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let started = text.split("(process ").nth(1).and_then(|rest| rest.split(')').next()?.parse::<u32>().ok());
        self.later.lock().unwrap().extend(started.filter(|_| output.status.success()));
        output
    }

    /// The id of the process that has the place now.
    fn current(&self) -> u32 {
        self.later.lock().unwrap().last().copied().unwrap_or(self.first.id())
    }

    fn log(&self) -> String {
        // A gateway that a shell starts has none; the failure that is reported with it must not be lost.
        std::fs::read_to_string(self.setup.path().join("log")).unwrap_or_default()
    }

    /// Waits until a process that was replaced has ended.
    fn wait_for_end(&mut self, process: u32) {
        if process == self.first.id() {
            assert_eq!(self.first.wait(), 0, "{}", self.log());
        } else {
            eventually("the process that was replaced ends", || !is_running(process));
        }
    }

    /// Stops the gateway, whose exit code cannot be seen when it is not the first.
    fn stop(&mut self) {
        let last = self.current();
        signal(last, "TERM");
        self.wait_for_end(last);
    }

    /// Tokens that were taken from the bucket of a key.
    fn taken(&self, key: &str) -> usize {
        let explained = self.setup.ok(&["explain", &key[8..17], "--json"]);
        let explained: serde_json::Value = serde_json::from_str(&explained).unwrap();
        let remaining = crate::sudden_death::find(&explained, "remaining").and_then(serde_json::Value::as_u64).unwrap();
        // A part of a token that has flowed in is not shown.
        BURST - usize::try_from(remaining).unwrap()
    }

    /// Checks the journal, and returns the number of its records of API requests by their outcomes.
    fn outcomes(&self) -> std::collections::BTreeMap<String, usize> {
        self.setup.ok(&["audit", "verify"]);
        self.exported_outcomes()
    }

    /// As [`Lineage::outcomes`], of a journal that may have problems.
    fn exported_outcomes(&self) -> std::collections::BTreeMap<String, usize> {
        let mut outcomes = std::collections::BTreeMap::new();
        for line in self.setup.ok(&["audit", "export"]).lines() {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            if record["auth_method"] == "api-key" {
                *outcomes.entry(record["outcome"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        outcomes
    }
}

impl Drop for Lineage {
    fn drop(&mut self) {
        for process in self.later.lock().unwrap().iter().filter(|process| is_running(**process)) {
            signal(*process, "KILL");
        }
    }
}

fn signal(process: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap();
}

/// Stops a process (SIGSTOP), and waits until all its threads have stopped: on a busy machine some run on for a while.
fn stop(process: u32) {
    signal(process, "STOP");
    let tasks = Path::new("/proc").join(process.to_string()).join("task");
    eventually("all threads have stopped", || {
        let stats =
            std::fs::read_dir(&tasks).unwrap().map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")));
        stats
            .into_iter()
            .all(|stat| stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().trim_start().starts_with('T')))
    });
}

/// Returns whether a process runs, and is no zombie.
fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X']))
}

/// An upstream that echoes through tunnels, answers `/slow` only when it is told to, and counts requests in flight.
struct Backend {
    upstream: Upstream,
    counts: std::sync::Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    slow: AtomicUsize,
    released: AtomicUsize,
}

impl Backend {
    fn start() -> Self {
        let counts = std::sync::Arc::new(Counts::default());
        let shared = std::sync::Arc::clone(&counts);
        let upstream = Upstream::answering(move |received, stream| answer(&shared, received, stream));
        Self { upstream, counts }
    }

    /// Lets this many slow requests end.
    fn release(&self, count: usize) {
        self.counts.released.fetch_add(count, Ordering::SeqCst);
    }

    fn slow(&self) -> usize {
        self.counts.slow.load(Ordering::SeqCst)
    }
}

fn answer(counts: &Counts, received: &Received, stream: &mut TcpStream) {
    if received.header("upgrade").is_some() {
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").ok();
        let mut reading = stream.try_clone().unwrap();
        std::io::copy(&mut reading, stream).ok();
        stream.shutdown(std::net::Shutdown::Both).ok();
        return;
    }
    if received.path() == "/slow" {
        let place = counts.slow.fetch_add(1, Ordering::SeqCst);
        while counts.released.load(Ordering::SeqCst) <= place {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nx-cost: 7\r\ncontent-length: 2\r\n\r\nok").ok();
}

/// A tunnel through the gateway, whose far end echoes.
struct Tunnel(Client);

impl Tunnel {
    fn open(setup: &Setup, key: &str) -> Self {
        let mut client = setup.client();
        client.send(head("GET", "/tunnel", key, &[("Connection", "upgrade"), ("Upgrade", "websocket")], 0));
        assert_eq!(client.head().unwrap().0, 101);
        let mut tunnel = Self(client);
        tunnel.echo();
        tunnel
    }

    fn echo(&mut self) {
        self.0.send("echo");
        assert_eq!(self.0.read_exact(4), b"echo");
    }

    fn close(mut self) {
        self.0.finish();
        self.0.rest();
    }
}
