//! Network namespaces: one for the test, and one for a client that reaches it over a link.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::eventually;

/// Set in a test process that runs within namespaces of its own.
const WITHIN: &str = "KEYGATE_WITHIN_NETWORK";
/// Addresses of the two ends, of the range for tests of networks (RFC 2544).
pub const SERVER: &str = "198.18.0.1";
const CLIENT: &str = "198.18.0.2";

/// The network of the client, which ends with the handle.
pub struct ClientNetwork {
    /// Process that keeps the namespace.
    keeper: Child,
}

impl ClientNetwork {
    /// Runs the test again within a network namespace of its own, so that the network of the machine stays as it is,
    /// and links a second one to it there. Returns `None` in the first process, when the test has passed. `test` is its
    /// full name.
    pub fn link(test: &str) -> Option<Self> {
        if std::env::var_os(WITHIN).is_none() {
            run_within(test);
            return None;
        }
        let keeper = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap();
        let network = Self { keeper };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        eventually("the namespace of the client is there", || std::fs::read_link(network.path()).unwrap() != own);
        let pid = network.keeper.id().to_string();
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", "server", "type", "veth", "peer", "name", "client", "netns", &pid]);
        ip(&["address", "add", &format!("{SERVER}/30"), "dev", "server"]);
        ip(&["link", "set", "server", "up"]);
        network.ip(&["address", "add", &format!("{CLIENT}/30"), "dev", "client"]);
        network.ip(&["link", "set", "client", "up"]);
        Some(network)
    }

    /// A command of the client, in its network.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg(program);
        command
    }

    fn path(&self) -> PathBuf {
        Path::new("/proc").join(self.keeper.id().to_string()).join("ns/net")
    }

    fn ip(&self, arguments: &[&str]) {
        run(self.command("ip").args(arguments));
    }
}

impl Drop for ClientNetwork {
    fn drop(&mut self) {
        self.keeper.kill().ok();
        self.keeper.wait().ok();
    }
}

/// Runs the test again in a namespace, which needs root or user namespaces.
fn run_within(test: &str) {
    let unshared = [&["--net"][..], &["--user", "--map-root-user", "--net"]];
    let is_allowed = |options: &&[&str]| {
        let mut tried = Command::new("unshare");
        tried.args(*options).arg("true").stderr(Stdio::null());
        tried.status().expect("unshare (package util-linux) is installed").success()
    };
    let options = unshared.into_iter().find(is_allowed);
    let options =
        options.expect("this test makes network namespaces: run it as root, or where user namespaces are allowed");
    let mut again = Command::new("unshare");
    again.args(options).arg(std::env::current_exe().unwrap());
    let output = again.args(["--exact", test, "--nocapture"]).env(WITHIN, "1").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "within a network namespace: {stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let output = command.output().expect("ip (package iproute2) and nsenter (package util-linux) are installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
