//! The gateway and its peers at the same job, each a process of its own: bearer key, SHA-256, look-up among all keys, a
//! rate per key, a concurrency per organization, identity headers set and the client's replaced, connections to the
//! upstream kept, one log line or record per request.

pub(crate) mod check;
mod configuration;
pub(crate) mod job;
pub(crate) mod minimal;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use job::{Job, NO_LIMIT};

use crate::load::Shape;

/// A program that does the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Keygate,
    /// The gateway with each record on disk before its request is forwarded.
    KeygateSynced,
    Haproxy,
    NginxLua,
    /// Nothing of the job but forwarding.
    NginxPure,
    /// The smallest proxy with the job on hyper.
    Hyper,
    /// The same, with `httparse` on plain sockets in place of hyper.
    Direct,
    /// The smallest proxy with the job on Pingora, with Redis only: a program of its own, in `pingora/`.
    Pingora,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Keygate => "keygate",
            Self::KeygateSynced => "keygate, synced audit",
            Self::Haproxy => "HAProxy",
            Self::NginxLua => "nginx with Lua",
            Self::NginxPure => "nginx, pure proxy",
            Self::Hyper => "smallest hyper proxy",
            Self::Direct => "smallest proxy without hyper",
            Self::Pingora => "Pingora",
        }
    }

    /// True when its programs are installed.
    pub(crate) fn is_installed(self) -> bool {
        let runs = |program: &str| Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
        match self {
            Self::Haproxy => runs("haproxy").is_ok(),
            Self::NginxPure => runs("nginx").is_ok(),
            Self::NginxLua => {
                runs("nginx").is_ok() && configuration::LUA_MODULES.iter().all(|file| Path::new(file).exists())
            }
            Self::Pingora => Path::new(configuration::PINGORA).exists(),
            Self::Keygate | Self::KeygateSynced | Self::Hyper | Self::Direct => true,
        }
    }

    /// True when it refuses and limits; the others only forward.
    pub(crate) fn does_the_job(self) -> bool {
        self != Self::NginxPure
    }
}

/// Circumstances in which a peer does the job.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) workers: usize,
    pub(crate) frontend: Frontend,
    /// Requests whose cost is counted.
    pub(crate) shape: Shape,
    /// Port of the Redis that counts the requests of all keys.
    pub(crate) redis: Option<u16>,
    /// Requests an hour of each key.
    pub(crate) limit: u32,
    /// The requests spend a budget of their organization; keygate only.
    pub(crate) has_budget: bool,
    /// Size at which the gateway closes a segment of its journal.
    pub(crate) segment: &'static str,
    /// Command that runs the program, if not empty.
    pub(crate) wrapper: &'a [String],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frontend {
    Plain,
    /// With HTTP/2 by ALPN.
    Tls,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// The gateway only: questions of other proxies.
    Decisions(Questions),
}

/// Protocol of the proxies that ask, and what becomes of the slots, as the configuration names them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Questions {
    pub(crate) protocol: &'static str,
    pub(crate) slots: &'static str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            workers: 1,
            frontend: Frontend::Plain,
            shape: Shape::Small,
            redis: None,
            limit: NO_LIMIT,
            has_budget: false,
            segment: "64MiB",
            wrapper: &[],
        }
    }
}

/// A running proxy, ended with the benchmark.
pub(crate) struct Proxy {
    pub(crate) peer: Peer,
    pub(crate) address: SocketAddr,
    /// Directory of its journal, or its log; none of a program without either.
    pub(crate) journal: Option<PathBuf>,
    child: Child,
    /// Has its configuration; removed with it.
    _dir: tempfile::TempDir,
}

impl Proxy {
    /// Starts it, and waits until it accepts connections.
    pub(crate) fn start(peer: Peer, job: &Job, setup: &Setup<'_>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = crate::ports::free_address();
        let (mut command, journal) = configuration::command(peer, job, setup, dir.path(), address);
        let errors = dir.path().join("stderr");
        let child = command.stdin(Stdio::null()).stderr(std::fs::File::create(&errors).unwrap()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{} cannot be started: {error}", peer.name()));
        let mut proxy = Self { peer, address, journal, child, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(address).is_err() {
            if proxy.child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                panic!("{} does not start: {}", peer.name(), std::fs::read_to_string(&errors).unwrap());
            }
            // Under valgrind a start takes seconds: attempts without a pause would take the processor from it.
            std::thread::sleep(Duration::from_millis(20));
        }
        proxy
    }

    /// Number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds of all its threads, and of those of its children, so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.id())
    }

    /// Asks it to end as an operator does, and waits.
    pub(crate) fn terminate(&mut self) {
        let asked = Command::new("kill").arg(self.id().to_string()).status();
        assert!(asked.is_ok_and(|status| status.success()));
        self.child.wait().unwrap();
    }
}

fn cpu_seconds(process: u32) -> f64 {
    let mut seconds = 0.0;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let task = task.unwrap().path();
        let schedstat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        seconds += schedstat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
        let children = std::fs::read_to_string(task.join("children")).unwrap_or_default();
        seconds += children.split_whitespace().map(|child| cpu_seconds(child.parse().unwrap())).sum::<f64>();
    }
    seconds
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its children end with it only when it is asked to end; it may have ended already.
        Command::new("kill").arg(self.id().to_string()).stderr(Stdio::null()).status().ok();
        let deadline = Instant::now() + Duration::from_secs(1);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
