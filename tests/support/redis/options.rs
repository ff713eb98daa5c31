//! Options of a server.

use std::fs::File;
use std::path::Path;

use super::{Certificates, Clock, Redis, free_port};

/// Options of a server: any directive of `redis.conf`.
#[derive(Clone, Default)]
pub struct Options {
    settings: Vec<(String, String)>,
    pub(super) password: Option<String>,
    pub(super) certificates: Option<Certificates>,
    pub(super) clock: Option<Clock>,
    sentinel: bool,
}

/// The Unix socket, in the directory of a server.
pub(super) const SOCKET: &str = "redis.sock";
/// Configuration file that a sentinel rewrites; it does not start without one.
const SENTINEL: &str = "sentinel.conf";

impl Options {
    /// Sets a directive of `redis.conf`. A later one overrides an earlier one.
    #[must_use]
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Writes every change to disk before replying.
    #[must_use]
    pub fn appendonly(self) -> Self {
        self.arg("appendonly", "yes").arg("appendfsync", "always")
    }

    /// Requires a password of every client.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.arg("requirepass", password).arg("masterauth", password)
    }

    /// Speaks TLS on its port, and nothing else: to clients that have a certificate of the same authority, unless
    /// `.arg("tls-auth-clients", "no")` follows. So it does to replicas and to the other nodes of a Cluster.
    #[must_use]
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// Gives it a wall clock of its own.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Makes it a sentinel instead of a server of data.
    pub(super) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Starts a server, and waits until it answers.
    pub fn start(self) -> Redis {
        // A port that was free may be taken by the time that the server asks for it: by tests beside this one.
        (0..20).find_map(|_| Redis::start_at(free_port(), &self)).expect("one port of twenty is not taken in between")
    }

    /// Starts many at the same time.
    pub fn start_many(self, count: usize) -> Vec<Redis> {
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..count).map(|_| scope.spawn(|| self.clone().start())).collect();
            started.into_iter().map(|server| server.join().unwrap()).collect()
        })
    }

    /// The arguments of `redis-server` in a directory.
    pub(super) fn arguments(&self, port: u16, dir: &Path) -> Vec<String> {
        let mut words = Vec::new();
        if self.sentinel {
            File::options().create(true).append(true).open(dir.join(SENTINEL)).unwrap();
            words.extend([SENTINEL.to_owned(), "--sentinel".to_owned()]);
        }
        let mut set = |key: &str, value: &str| words.extend([format!("--{key}"), value.to_owned()]);
        set("bind", "127.0.0.1");
        set("unixsocket", text(&dir.join(SOCKET)));
        if !self.sentinel {
            set("save", "");
            set("appendonly", "no");
            set("maxmemory-policy", "noeviction");
        }
        match &self.certificates {
            None => set("port", &port.to_string()),
            Some(certificates) => {
                set("port", "0");
                set("tls-port", &port.to_string());
                set("tls-ca-cert-file", text(&certificates.ca()));
                set("tls-cert-file", text(&certificates.server().0));
                set("tls-key-file", text(&certificates.server().1));
                set("tls-auth-clients", "yes");
                set("tls-replication", "yes");
                set("tls-cluster", "yes");
            }
        }
        self.settings.iter().for_each(|(key, value)| set(key, value));
        words
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("directories for tests have plain names")
}
