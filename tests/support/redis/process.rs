//! A `redis-server` process: its signals, its log, its end.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Clock, until};

const LOG: &str = "redis.log";

/// A process, killed when dropped. Its output is in a file of its directory.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it in a directory, with a wall clock of its own if there is one.
    pub fn start(dir: &Path, arguments: &[String], clock: Option<&Clock>) -> Self {
        let log = dir.join(LOG);
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new("redis-server");
        command
            .args(arguments)
            .current_dir(dir)
            .envs(clock.into_iter().flat_map(Clock::environment))
            .stdin(Stdio::null())
            .stderr(output.try_clone().unwrap())
            .stdout(output);
        let child = command.spawn().unwrap_or_else(|error| match error.kind() {
            ErrorKind::NotFound => panic!(
                "redis-server is not installed: on Debian, `apt-get install redis-server` (package redis-server), \
                 or `make setup`"
            ),
            _ => panic!("redis-server does not start: {error}"),
        });
        Self { child, log }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has ended, by itself or not.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it where it is (SIGSTOP), and returns when it has stopped.
    pub fn stop(&self) {
        self.signal("STOP");
        until("the process stops", || (self.state() == 'T').then_some(()));
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Returns whether it is stopped where it is.
    pub fn is_stopped(&self) -> bool {
        self.state() == 'T'
    }

    /// Terminates it (SIGTERM), and waits.
    pub fn terminate(&mut self) {
        self.signal("TERM");
        self.child.wait().unwrap();
    }

    /// Kills it (SIGKILL), and waits. It may have ended already, or be stopped.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().unwrap();
        assert!(sent.success(), "SIG{name} does not reach {}", self.id());
    }

    /// As `proc(5)` has it: the letter after the name in parentheses.
    fn state(&self) -> char {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
