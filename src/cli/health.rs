//! `keygate health`: whether the gateway is ready, asked the way an orchestrator would.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, anyhow};
use http::Method;
use tokio::net::TcpStream;

use super::{CliError, ExitStatus, client, control, output};
use crate::admin::ReadinessReport;
use crate::config::Config;

pub(super) fn run(config: &Config) -> Result<(), CliError> {
    let address = reachable(config.admin.address);
    let asked = control::runtime()?.block_on(async {
        let stream = TcpStream::connect(address).await?;
        client::exchange(stream, Method::GET, "/ready", Vec::new()).await
    });
    let (_, body) = asked.map_err(|e| {
        CliError::new(ExitStatus::Unreachable, e.context(format!("http://{address}/ready cannot be reached")))
    })?;
    let report: ReadinessReport =
        serde_json::from_slice(&body).with_context(|| format!("{address} is not the admin listener of a gateway"))?;
    if report.ready {
        return Ok(output::line("ready")?);
    }
    Err(CliError::new(ExitStatus::Failed, anyhow!("not ready: {}", report.reasons.join(", "))))
}

/// A listener on all addresses is asked on this machine's own.
pub(super) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    address
}
