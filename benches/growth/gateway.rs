//! The gateway as a process, on a copy of a state file.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::directory::StateFile;
use crate::ports::free_address;
use crate::{clients, upstream};

/// Longest time that a start takes: under valgrind, with many keys, some minutes.
const START: Duration = Duration::from_secs(600);

/// A running gateway, killed with this.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    child: Child,
    _dir: tempfile::TempDir,
}

impl Gateway {
    /// Returns when it accepts connections. It is run by the command `wrapper`, if that is not empty.
    pub(crate) fn start(file: &StateFile, config: &str, wrapper: &[String]) -> Self {
        Self::start_before(1, file, config, wrapper)
    }

    /// The same, with this many endpoints behind it.
    pub(crate) fn start_before(endpoints: usize, file: &StateFile, config: &str, wrapper: &[String]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(file.dir.path().join("state.db"), dir.path().join("state.db")).unwrap();
        let wal = file.dir.path().join("state.db-wal");
        if wal.exists() {
            fs::copy(wal, dir.path().join("state.db-wal")).unwrap();
        }
        let (address, admin) = (free_address(), free_address());
        let upstreams =
            upstream::start_many(endpoints).iter().map(|address| format!("'http://{address}'")).collect::<Vec<_>>();
        let text = format!(
            "listen: [{{ address: '{address}' }}]\nadmin: {{ socket: admin.sock, address: '{admin}' }}\n\
             upstream: {{ endpoints: [{}] }}\nstate: {{ embedded: {{ path: state.db }} }}\n\
             audit: {{ path: audit }}\n{config}",
            upstreams.join(", ")
        );
        let path: PathBuf = dir.path().join("keygate.yaml");
        fs::write(&path, text).unwrap();
        let binary = std::env::var("KEYGATE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_keygate").to_owned());
        let line: Vec<&str> = wrapper.iter().map(String::as_str).chain([binary.as_str()]).collect();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).args(["serve", "--config"]).arg(path).stdin(Stdio::null()).stderr(Stdio::null());
        let gateway = Self { address, child: command.spawn().unwrap(), _dir: dir };
        let deadline = Instant::now() + START;
        // The listeners are bound before the state is read: a response is the sign of a start.
        while load_one(address, &file.keys[0]).is_none() {
            assert!(Instant::now() < deadline, "the gateway does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        gateway
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident bytes.
    pub(crate) fn resident(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
    }

    /// CPU seconds of each worker.
    pub(crate) fn worker_seconds(&self) -> Vec<f64> {
        let seconds = |task: &PathBuf| {
            let schedstat = fs::read_to_string(task.join("schedstat")).unwrap();
            schedstat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
        };
        self.workers().iter().map(seconds).collect()
    }

    /// Directories of the workers' threads in `/proc`.
    fn workers(&self) -> Vec<PathBuf> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap().map(|task| task.unwrap().path());
        let is_worker = |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap().starts_with("worker-");
        let mut workers: Vec<PathBuf> = tasks.filter(is_worker).collect();
        workers.sort();
        workers
    }
}

fn load_one(address: SocketAddr, key: &str) -> Option<()> {
    let mut stream = TcpStream::connect(address).ok()?;
    clients::exchange(&mut stream, key)
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
