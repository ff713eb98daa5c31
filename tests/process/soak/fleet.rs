//! A gateway of the soak, and the processes that it has been.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{KEYGATE, Setup, eventually};

pub struct Member {
    pub setup: Setup,
    /// The process that serves.
    pub current: u32,
    /// Processes that were started here, and not by their predecessors.
    children: Vec<Child>,
    kills: usize,
    reloads: std::cell::Cell<usize>,
}

impl Member {
    pub fn new(upstream: SocketAddr, state: &str, blocks: &str) -> Self {
        let setup = Setup::with_state(upstream, state, blocks);
        // So that records of a long soak do not wait for their segment to be full.
        setup.write(&setup.text().replace("path: audit", "path: audit, segment_size: 4MiB"));
        Self { setup, current: 0, children: Vec::new(), kills: 0, reloads: std::cell::Cell::default() }
    }

    fn log_path(&self) -> PathBuf {
        self.setup.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Starts the gateway, and waits until it is ready.
    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = Command::new(KEYGATE);
        command.args(["serve", "--config"]).arg(self.setup.path().join("keygate.yaml"));
        let child = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        self.current = child.id();
        self.children.push(child);
        self.await_ready();
    }

    fn await_ready(&self) {
        eventually("the gateway is ready", || {
            self.assert_running();
            self.setup.keygate(&["health"]).status.success()
        });
    }

    /// Changes the configuration, and has the gateway read it.
    pub fn reload(&self) {
        let number = self.reloads.get() + 1;
        self.reloads.set(number);
        let text = self.setup.text();
        let text = text.lines().filter(|line| !line.starts_with("# reload")).collect::<Vec<_>>().join("\n");
        self.setup.write(&format!("{text}\n# reload {number}\n"));
        signal(self.current, "HUP");
    }

    /// Has a new process take over.
    pub fn upgrade(&mut self) {
        let output = self.setup.keygate(&["upgrade"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}\n{}", self.log());
        let process = text.split("(process ").nth(1).and_then(|rest| rest.split(')').next()?.parse().ok());
        self.current = process.unwrap();
        self.reap();
    }

    pub fn kill(&mut self) {
        self.assert_running();
        self.kills += 1;
        signal(self.current, "KILL");
        self.await_end();
    }

    /// Stops the gateway.
    pub fn stop(&mut self) {
        signal(self.current, "TERM");
        self.await_end();
    }

    fn await_end(&mut self) {
        eventually("the process has ended", || {
            self.reap();
            !is_running(self.current)
        });
    }

    /// Takes note of children that have ended: their ids are free then.
    fn reap(&mut self) {
        self.children.retain_mut(|child| child.try_wait().unwrap().is_none());
    }

    pub fn assert_running(&self) {
        assert!(is_running(self.current), "process {} has ended\n{}", self.current, self.log());
    }

    /// Checks that each process that has served says in the log how it ended, and that only those that were killed here
    /// were told of by the next one.
    pub fn check_ends(&mut self) {
        eventually("the processes that were replaced have ended", || {
            self.reap();
            self.children.is_empty()
        });
        let log = self.log();
        let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        let (served, stopped) = (count("serve: serving "), count("serve: stopped"));
        let silent = count("the last gateway ended without stopping");
        println!("{served} processes: {stopped} stopped, {silent} ended without stopping, {} were killed", self.kills);
        assert_eq!((silent, served), (self.kills, stopped + self.kills), "an end has no line\n{log}");
        assert_eq!(count("panicked"), 0, "{log}");
    }

    /// Calls a function with each record of the journal.
    pub fn for_each_record(&self, mut each: impl FnMut(&Value)) {
        let mut command = Command::new(KEYGATE);
        command.args(["audit", "export", "--config"]).arg(self.setup.path().join("keygate.yaml"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            each(&serde_json::from_str(&line.unwrap()).unwrap());
        }
        assert!(child.wait().unwrap().success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.current != 0 && is_running(self.current) {
            signal(self.current, "KILL");
        }
        self.children.iter_mut().for_each(|child| {
            // It may have ended already.
            child.kill().ok();
            child.wait().ok();
        });
    }
}

fn signal(process: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap();
}

/// Returns whether a process runs, and is no zombie.
fn is_running(process: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X']))
}
