//! A gateway as a separate process, with its log at level trace.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{Client, KEYGATE, Upstream, free_address, until};

/// A running gateway. Dropping it kills the process.
pub struct GatewayProcess {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    dir: tempfile::TempDir,
    child: Child,
}

impl GatewayProcess {
    /// Starts it with this block `session`, and waits until it is ready.
    pub fn start(upstream: &Upstream, session: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [address, admin] = [free_address(), free_address()];
        let text = format!(
            "listen: [{{ address: '{address}', http2: prior_knowledge }}]\n\
             admin: {{ socket: admin.sock, address: '{admin}' }}\n\
             upstream: {{ endpoints: ['http://{}'] }}\n\
             state: {{ embedded: {{ path: state.db }} }}\n\
             audit: {{ path: audit }}\ntimeouts: {{ lame_duck: 0s }}\n{session}\n",
            upstream.address
        );
        fs::write(dir.path().join("keygate.yaml"), text).unwrap();
        let gateway = Self { address, admin, child: spawn(dir.path()), dir };
        gateway.wait();
        gateway
    }

    /// Kills the process (SIGKILL) and starts it again. The log file is truncated.
    pub fn restart_suddenly(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.dir.path());
        self.wait();
    }

    fn wait(&self) {
        until("the gateway is ready", || {
            let mut client = Client::try_connect(self.admin).ok()?;
            client.try_send("GET /ready HTTP/1.1\r\nHost: a\r\n\r\n").ok()?;
            client.try_response_to("GET").ok().filter(|response| response.status == 200).map(drop)
        });
    }

    /// Runs a management command that must succeed, and returns its output.
    pub fn keygate(&self, arguments: &[&str]) -> String {
        let config = self.dir.path().join("keygate.yaml");
        let output = Command::new(KEYGATE).args(arguments).arg("--config").arg(config).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// The only log line with the reason for which the request with this id was refused.
    pub fn refusal(&self, request_id: &str) -> String {
        let line = until("the log has the reason", || {
            let log = self.log();
            let mut lines = log.lines().filter(|line| line.contains(request_id) && line.contains("sign-in refused"));
            lines.next().map(|line| (line.to_owned(), lines.count()))
        });
        assert_eq!(line.1, 0, "it is logged more than once: {}", line.0);
        line.0
    }

    /// The content of all files in one of its directories.
    pub fn files(&self, directory: &str) -> Vec<u8> {
        contents(&self.dir.path().join(directory))
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spawn(dir: &Path) -> Child {
    let log = fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(KEYGATE);
    command.arg("serve").arg("--config").arg(dir.join("keygate.yaml"));
    command.env("KEYGATE_LOG", "trace").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap()
}

fn contents(directory: &Path) -> Vec<u8> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.flat_map(|path| if path.is_dir() { contents(&path) } else { fs::read(&path).unwrap() }).collect()
}
