//! The running gateway, as its admin interfaces show it.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::StatusCode;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::client::{self, TIMEOUT, in_full};
use crate::config::Config;
use control::admin::{CONFIG_PATH, ConfigReport, ReadinessReport, SHIPPING_PATH};
use domain::page::Page;
use journal::shipping::SinkReport;

/// A gateway that listens on the admin socket of the configuration.
pub(super) struct RunningGateway {
    /// Process behind the socket; none in another PID namespace.
    pub(super) pid: Option<i32>,
    /// User that the process runs as.
    pub(super) uid: u32,
    /// Active configuration.
    pub(super) report: ConfigReport,
    /// Readiness; the error when the admin listener does not answer.
    pub(super) readiness: Result<ReadinessReport, String>,
    /// Reports on the sinks of the audit, as `keygate audit ship status` gets them.
    pub(super) sinks: Result<Vec<SinkReport>, String>,
    /// Text of `/metrics`; the error when the admin listener does not answer.
    pub(super) metrics: Result<String, String>,
}

impl RunningGateway {
    /// Asks the gateway behind the admin socket.
    pub(super) async fn inspect(config: &Config) -> Result<Self, String> {
        let socket = &config.admin.socket;
        let stream = UnixStream::connect(socket).await.map_err(|error| format!("{}: {error}", socket.display()))?;
        let peer = stream.peer_cred().map_err(|error| error.to_string())?;
        let address = reachable_address(config.admin.address);
        let report = fetch_from_socket(stream, CONFIG_PATH).await?;
        let stream = UnixStream::connect(socket).await.map_err(|error| format!("{}: {error}", socket.display()))?;
        let sinks = fetch_from_socket(stream, SHIPPING_PATH).await.map(|page: Page<SinkReport>| page.items);
        let readiness = fetch(address, "/ready").await.and_then(|body| {
            serde_json::from_str(&body).map_err(|_| format!("{address} is not the admin listener of a gateway"))
        });
        let pid = peer.pid().filter(|pid| *pid > 0);
        Ok(Self { pid, uid: peer.uid(), report, readiness, sinks, metrics: fetch(address, "/metrics").await })
    }

    /// Value of a metric by its name with its labels, as the text shows it.
    pub(super) fn metric(&self, series: &str) -> Option<f64> {
        find_metric(self.metrics.as_ref().ok()?, series)
    }
}

/// Fetches a document from the admin socket.
async fn fetch_from_socket<T: DeserializeOwned>(stream: UnixStream, path: &str) -> Result<T, String> {
    let (status, body) = client::get(stream, "keygate", path).await.map_err(|error| in_full(&error))?;
    if status != StatusCode::OK {
        return Err(format!("the admin socket answers {status}"));
    }
    serde_json::from_slice(&body).map_err(|error| format!("the gateway is of another version: {error}"))
}

/// Fetches a document of the admin listener. `/ready` of a gateway that is not ready has another status than 200.
async fn fetch(address: SocketAddr, path: &str) -> Result<String, String> {
    let stream = timeout(TIMEOUT, TcpStream::connect(address)).await;
    let stream = stream.map_err(|_| format!("{address}: no connection in time"))?;
    let stream = stream.map_err(|error| format!("{address}: {error}"))?;
    let (_, body) = client::get(stream, &address.to_string(), path).await.map_err(|error| in_full(&error))?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// The value of a series in the text exposition format.
fn find_metric(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The address at which this machine reaches a listener: loopback for a listener on all addresses.
pub(super) fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_on_all_addresses_is_reached_by_loopback() {
        let reached = |address: &str| reachable_address(address.parse().unwrap()).to_string();
        for (address, expected) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(reached(address), expected);
        }
    }

    #[test]
    fn metric_is_found_by_its_whole_name() {
        let text = "# TYPE a gauge\na_b 1\na{c=\"d\"} 2.5\na 3\n";
        assert_eq!(find_metric(text, "a"), Some(3.0));
        assert_eq!(find_metric(text, "a{c=\"d\"}"), Some(2.5));
        assert_eq!(find_metric(text, "b"), None);
    }
}
