//! `keygate health`: checks `/ready` on the admin listener, as an orchestrator would. It reads no more of the
//! file than the address, so that a file with errors elsewhere has no gateway restarted that serves.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, anyhow};
use tokio::net::TcpStream;

use super::client::ClientRequest;
use super::installation::Installation;
use super::{CliError, ExitStatus, control, output};
use ::control::admin::ReadinessReport;

pub(super) fn run(installation: &Installation) -> Result<(), CliError> {
    let address = local_address(installation.admin_address()?);
    let response = control::runtime()?.block_on(async {
        let stream = TcpStream::connect(address).await?;
        control::exchange(stream, ClientRequest::get("/ready")).await
    });
    let (_, body) = response.map_err(|e| {
        CliError::new(ExitStatus::Unreachable, e.context(format!("http://{address}/ready cannot be reached")))
    })?;
    let report: ReadinessReport =
        serde_json::from_slice(&body).with_context(|| format!("{address} is not the admin listener of a gateway"))?;
    if report.ready {
        return Ok(output::line("ready")?);
    }
    Err(CliError::new(ExitStatus::Failed, anyhow!("not ready: {}", report.text())))
}

/// The address at which this machine reaches a listener: loopback for a listener on all addresses.
pub(super) fn local_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    address
}
