//! A gateway as a process, started from the binary.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::{Client, eventually, exit_status, free_address};

pub const KEYGATE: &str = env!("CARGO_BIN_EXE_keygate");

/// A configuration in a directory, and the ports it names.
pub struct Setup {
    pub dir: tempfile::TempDir,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

/// A running gateway, killed when the test ends without having stopped it.
pub struct Running {
    child: Child,
}

impl Setup {
    pub fn new(upstream: SocketAddr, blocks: &str) -> Self {
        Self::with_state(upstream, "{ embedded: { path: state.db } }", blocks)
    }

    /// The same, with another state.
    pub fn with_state(upstream: SocketAddr, state: &str, blocks: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (address, admin) = (free_address(), free_address());
        // No load balancer has to notice that the gateway stops, unless the test is about that.
        let timeouts = if blocks.contains("lame_duck") { "" } else { "timeouts: { lame_duck: 0s }\n" };
        let text = format!(
            "listen: [{{ address: '{address}', http2: prior_knowledge }}]\n\
             admin: {{ socket: admin.sock, address: '{admin}' }}\n\
             upstream: {{ endpoints: ['http://{upstream}'] }}\n\
             state: {state}\n\
             audit: {{ low_water: 0%, path: audit }}\n{timeouts}{blocks}\n"
        );
        std::fs::write(dir.path().join("keygate.yaml"), text).unwrap();
        Self { dir, address, admin }
    }

    /// The current text of the configuration file.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.path().join("keygate.yaml")).unwrap()
    }

    /// Replaces the configuration file atomically, by a rename.
    pub fn write(&self, text: &str) {
        let file = self.path().join("keygate.yaml");
        std::fs::write(file.with_extension("new"), text).unwrap();
        std::fs::rename(file.with_extension("new"), file).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a management command to its end.
    pub fn keygate(&self, arguments: &[&str]) -> Output {
        let config = self.path().join("keygate.yaml");
        Command::new(KEYGATE).args(arguments).arg("--config").arg(config).output().unwrap()
    }

    /// The same, with this text as its standard input.
    pub fn keygate_reading(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new(KEYGATE);
        command.args(arguments).arg("--config").arg(self.path().join("keygate.yaml"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that needs no more of it has ended.
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).ok();
        child.wait_with_output().unwrap()
    }

    /// Runs a management command that must succeed, and returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.keygate(arguments);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {}\n{stdout}{stderr}", output.status);
        stdout.trim_end().to_owned()
    }

    /// The setup, and such a key.
    pub fn and_key(self) -> (Self, String) {
        let key = self.key();
        (self, key)
    }

    /// Creates an organization, a user and a key; returns the key.
    pub fn key(&self) -> String {
        self.ok(&["org", "create", "acme"]);
        self.ok(&["user", "create", "--org", "acme", "ada@example.com"]);
        self.ok(&["key", "create", "--org", "acme", "--user", "ada@example.com", "laptop"])
    }

    /// Starts the gateway and waits until it is ready.
    pub fn start(&self) -> Running {
        self.start_by(&mut Command::new(KEYGATE))
    }

    /// The same, with its logs in the file `log`.
    pub fn start_logged(&self) -> Running {
        let log = std::fs::File::create(self.path().join("log")).unwrap();
        self.started(Command::new(KEYGATE).stderr(log), &self.path().join("keygate.yaml"))
    }

    /// The same, by a command that executes the gateway.
    pub fn start_by(&self, command: &mut Command) -> Running {
        let log = std::fs::File::create(self.path().join("stderr")).unwrap();
        self.started(command.stderr(log), &self.path().join("keygate.yaml"))
    }

    /// Starts the gateway in the directory, with a path to its configuration that is relative to that.
    pub fn start_within(&self) -> Running {
        self.started(Command::new(KEYGATE).current_dir(self.path()).stderr(Stdio::null()), Path::new("keygate.yaml"))
    }

    fn started(&self, command: &mut Command, config: &Path) -> Running {
        command.args(["serve", "--config"]).arg(config).stdin(Stdio::null());
        let mut running = Running { child: command.spawn().unwrap() };
        eventually("the gateway is ready", || {
            let ended = running.child.try_wait().unwrap();
            let log = || std::fs::read_to_string(self.path().join("stderr")).unwrap_or_default();
            assert!(ended.is_none(), "the gateway has ended before it was ready: {ended:?}\n{}", log());
            self.keygate(&["health"]).status.success()
        });
        running
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }
}

impl Running {
    /// A gateway that was started in another way.
    pub fn of(child: Child) -> Self {
        Self { child }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the gateway (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends SIGHUP: reload the configuration.
    pub fn hang_up(&self) {
        self.signal("HUP");
    }

    pub fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Waits for the gateway to exit, and returns its exit code.
    pub fn wait(&mut self) -> i32 {
        exit_status(&mut self.child).code().expect("it ended by itself")
    }

    /// Stops the gateway with SIGTERM; it must exit with 0.
    pub fn stop(mut self) {
        self.terminate();
        assert_eq!(self.wait(), 0);
    }

    /// Peak resident memory, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
