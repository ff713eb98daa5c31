//! Commands against a gateway elsewhere, `--server`: the same output as over the admin socket, and errors of their own.

mod apply;
mod audit;
mod commands;
mod errors;
mod state;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ended, Gateway, Upstream};
use crate::tls::authority::Authority;

/// A gateway whose management API has TLS of an authority that only the file `ca.pem` names.
struct Fixture {
    gateway: Gateway,
    _upstream: Upstream,
    files: TempDir,
}

/// All scopes of a token.
const ALL: &str = "orgs:read,orgs:write,users:read,users:write,keys:read,keys:create,keys:rotate,keys:revoke,keys:set,\
                   usage:read,audit:read,tokens:manage";

impl Fixture {
    /// Starts it with a token of all scopes and organizations in the file `token`.
    fn start() -> Self {
        Self::with("")
    }

    /// The same, where a token has these calls.
    fn limited(calls: &str) -> Self {
        Self::configured("", &format!("limits: {{ management: {calls} }}\n"))
    }

    /// The same, with more TLS settings of the management listener. The authority has certified the client, too, by the
    /// name `pipeline.example`.
    fn with(tls: &str) -> Self {
        Self::configured(tls, "")
    }

    fn configured(tls: &str, more: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        authority.write(&files.path().join("ca.pem"));
        authority.certify(&["127.0.0.1"]).write(files.path(), "server");
        authority.certify(&["pipeline.example"]).write(files.path(), "client");
        let path = files.path().display();
        let listen = format!(
            "\nlisten: [{{ address: 127.0.0.1:0 }}, {{ address: 127.0.0.1:0, serves: management, \
             tls: {{ certificates: [{{ chain: {path}/server.pem, key: {path}/server.key }}] {} }} }}]\n{more}",
            tls.replace("FILES", &path.to_string()),
        );
        let upstream = Upstream::start();
        let gateway = Gateway::with(&[upstream.address], &listen);
        let fixture = Self { gateway, _upstream: upstream, files };
        fixture.token("token", &format!("token create pipeline --allow {ALL}"));
        fixture
    }

    /// Creates a token over the socket, and writes it to a file that only its owner reads.
    fn token(&self, name: &str, line: &str) {
        let created = self.local(line);
        assert_eq!(created.code, 0, "{created:?}");
        self.write(name, &created.out);
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.files.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    /// Address of the management listener.
    fn api(&self) -> SocketAddr {
        self.gateway.addresses()[1]
    }

    /// Runs a command over the admin socket.
    fn local(&self, line: &str) -> Ended {
        let socket = self.gateway.dir.path().join("admin.sock");
        run(line, self.gateway.dir.path(), &["--socket".as_ref(), &socket], "")
    }

    /// Runs a command over the management API, with the token of a file.
    fn with_token(&self, token: &str, line: &str, input: &str) -> Ended {
        let server = format!("https://{}", self.api());
        let [token, ca] = [token, "ca.pem"].map(|name| self.files.path().join(name));
        let options: [&Path; 6] =
            ["--server".as_ref(), server.as_ref(), "--token-file".as_ref(), &token, "--ca".as_ref(), &ca];
        run(line, self.files.path(), &options, input)
    }

    fn remote(&self, line: &str) -> Ended {
        self.with_token("token", line, "")
    }

    /// Runs a command over both, which must succeed with the same output.
    fn same(&self, line: &str) -> String {
        let [local, remote] = [self.local(line), self.remote(line)];
        assert_eq!(local.code, 0, "{line}: {local:?}");
        assert_eq!(remote, local, "{line}");
        remote.out
    }

    /// Runs a command over the API, which must succeed.
    fn json(&self, line: &str) -> Value {
        let ended = self.remote(&format!("{line} --json"));
        assert_eq!(ended.code, 0, "{line}: {ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }
}

/// Runs a command. The configuration is that of the directory, where there is one.
fn run(line: &str, directory: &Path, options: &[&Path], input: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    command.args(line.split_whitespace()).args(options).env("KEYGATE_CONFIG", directory.join("keygate.yaml"));
    for variable in ["SUDO_UID", "KEYGATE_SERVER", "KEYGATE_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    Ended::of_reading(&mut command, input)
}
