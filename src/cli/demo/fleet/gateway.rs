//! A gateway of a demo with two gateways: a process of this program.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::process::Process;
use super::{BURST, PERIOD};
use crate::cli::call::Call;
use crate::cli::client::ClientRequest;
use crate::cli::control::{self, Server};
use crate::cli::installation::Installation;
use ::control::admin::ReadinessReport;

/// A gateway, which runs or does not.
pub(super) struct Gateway {
    /// Address for clients.
    pub(super) address: SocketAddr,
    name: String,
    dir: PathBuf,
    admin: SocketAddr,
    installation: Installation,
    process: Option<Process>,
}

impl Gateway {
    /// Writes the configuration of a gateway into a directory of its own, and starts it. `redis` is the URL of Redis;
    /// the addresses are those for clients and of the admin listener, and that of the upstream.
    pub(super) async fn start(
        dir: &Path,
        name: &str,
        redis: &str,
        [address, admin, upstream]: [SocketAddr; 3],
    ) -> anyhow::Result<Self> {
        let dir = directory(dir, name);
        fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let file = dir.join("keygate.yaml");
        let text = configuration(name, [address, admin, upstream], redis);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let installation = Installation::new(Some(file), Some(dir.join("admin.sock")));
        let mut gateway = Self { address, name: name.to_owned(), dir, admin, installation, process: None };
        gateway.start_again().await?;
        Ok(gateway)
    }

    /// Starts it where it was, and waits until it is ready.
    pub(super) async fn start_again(&mut self) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let arguments = ["serve", "--config", "keygate.yaml"].map(OsStr::new);
        let process = self.process.insert(Process::start(&self.name, &self.dir, &program, &arguments)?);
        let admin = self.admin;
        process.until_ready(async || is_ready(admin).await.unwrap_or(false)).await
    }

    /// Performs a call over its admin socket.
    pub(super) async fn perform<T: DeserializeOwned>(&self, call: &Call) -> anyhow::Result<T> {
        let performed = async { Server::open(&self.installation).await?.perform(call).await };
        performed.await.map_err(|error| error.into_cause().context(format!("{} failed", self.name)))
    }

    /// `kill -9`. Returns when it has ended.
    pub(super) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Stops it as SIGTERM does: when it has ended, its journal is complete.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        let process = self.process.take().ok_or_else(|| anyhow!("{} does not run", self.name))?;
        process.stop().await
    }

    /// Directory of its audit journal.
    pub(super) fn journal(&self) -> PathBuf {
        self.dir.join("audit")
    }
}

/// Directory of the gateway with this name.
pub(super) fn directory(dir: &Path, name: &str) -> PathBuf {
    dir.join(name)
}

async fn is_ready(admin: SocketAddr) -> anyhow::Result<bool> {
    let stream = TcpStream::connect(admin).await?;
    let (_, body) = control::exchange(stream, ClientRequest::get("/ready")).await?;
    Ok(serde_json::from_slice::<ReadinessReport>(&body)?.ready)
}

fn configuration(name: &str, [address, admin, upstream]: [SocketAddr; 3], redis: &str) -> String {
    let per = PERIOD.as_secs();
    format!(
        r#"# Written by `keygate demo --fleet`. config/keygate.yaml of the project documents every key.
gateway: {name}
workers: 2
listen:
  - address: "{address}"
admin: {{ socket: admin.sock, address: "{admin}" }}
upstream: {{ endpoints: ["http://{upstream}"] }}
state:
  # All is on one machine, which may be busy: a decision has more time than the default of 50ms.
  redis: {{ url: "{redis}", deadline: 2s }}
limits:
  key: {{ requests: {BURST}, per: {per}s, burst: {BURST} }}
  org: {{ concurrent: 100 }}
# A disk that is nearly full is no reason to hide the demo's refusals in counts.
audit: {{ low_water: 0%, path: audit }}
# No load balancer has to notice that the gateway stops.
timeouts: {{ lame_duck: 0s, drain: 2s }}
routes:
  - {{ name: orders, path: "/orders" }}
  - {{ name: events, path: "/events" }}
"#
    )
}
