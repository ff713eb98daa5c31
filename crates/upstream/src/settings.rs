//! Settings of one upstream: endpoints, protocol, TLS and time-outs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Version;
use rustls::pki_types::ServerName;

use super::connection::lifetime::Lifetimes;
use super::connection::limits::ConnectionBounds;
use super::endpoint::balance::BalanceSettings;
use super::endpoint::health::HealthSettings;
use super::endpoint::outlier::OutlierSettings;
use super::exchange::retry::RetrySettings;
use platform::tls::ClientSettings;

/// Name of the only upstream of a configuration that gives it none.
pub const DEFAULT_NAME: &str = "default";

/// Settings of one upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Name, by which the configurations before and after a reload have the same upstream.
    pub name: Arc<str>,
    /// Endpoints, at least one.
    pub endpoints: Vec<Endpoint>,
    /// Protocol spoken to all endpoints.
    pub protocol: Protocol,
    /// Trusted authorities, and the client certificate, for endpoints with TLS.
    pub tls: ClientSettings,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// Policy of balancing, and weights.
    pub balance: BalanceSettings,
    /// Outlier ejection.
    pub outlier: OutlierSettings,
    /// Active checks; none when none are configured.
    pub health: Option<Arc<HealthSettings>>,
    /// Bounds of the life of a connection.
    pub lifetimes: Lifetimes,
    /// Bounds of the number of connections.
    pub connections: ConnectionBounds,
    /// Retries.
    pub retries: RetrySettings,
    /// Requests in flight of all workers at most; none: any number.
    pub max_requests: Option<usize>,
}

/// Protocol spoken to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2. Without TLS with prior knowledge (RFC 9113, section 3.3).
    Http2,
}

impl Protocol {
    /// Version of HTTP.
    pub(super) fn version(self) -> Version {
        match self {
            Self::Http1 => Version::HTTP_11,
            Self::Http2 => Version::HTTP_2,
        }
    }
}

/// Time-outs of an exchange with the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connecting to one endpoint, name resolution and TLS handshake included.
    pub connect: Duration,
    /// From the request being sent to the response's head. It begins anew while the request's body advances.
    pub response: Duration,
    /// Between two pieces of a response body.
    pub response_idle: Duration,
    /// From the request being sent to the last byte of the response.
    pub exchange: Duration,
}

impl Default for Timeouts {
    /// Connecting is given up while the client still waits, so that another endpoint is tried. The others are as long
    /// as most clients wait, and as long as a large download takes.
    fn default() -> Self {
        let minute = Duration::from_mins(1);
        Self { connect: Duration::from_secs(2), response: minute, response_idle: minute, exchange: minute * 15 }
    }
}

/// Endpoint: one server of the upstream, at one address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host name or address as configured; an IPv6 address without brackets.
    pub host: String,
    /// Port; 0 for a Unix socket.
    pub port: u16,
    /// Value of `Host`.
    pub authority: String,
    /// Name that the endpoint's certificate must be for; none: connections have no TLS.
    pub tls: Option<ServerName<'static>>,
    /// Address that connections go to.
    pub address: Address,
    /// Entry of the configuration that the endpoint comes from: label of its counters.
    pub source: String,
    /// Part in the requests of its entry, in thousandths of an equal one: 1000, unless SRV records have weights.
    pub weight: u32,
}

/// Weight of an endpoint that has an equal part in the requests of its entry.
pub(super) const EQUAL_WEIGHT: u32 = 1000;

/// Address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// IP address and port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// No address is known yet: connecting fails at once.
    Unresolved,
}

impl Endpoint {
    /// The server, whatever its weight: the same for two endpoints that keep one state.
    pub(super) fn server(&self) -> Self {
        Self { weight: EQUAL_WEIGHT, ..self.clone() }
    }

    /// Label in logs and in the metrics of a single server. One source can have several endpoints, so that the address
    /// of a resolved one is a part of its label.
    pub fn label(&self) -> String {
        match &self.address {
            Address::Tcp(address) if self.host.parse() != Ok(address.ip()) => format!("{}@{address}", self.source),
            Address::Tcp(_) | Address::Unix(_) | Address::Unresolved => self.source.clone(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Settings of an upstream with so many endpoints, at addresses where nothing listens.
    pub(crate) fn settings(count: usize) -> Settings {
        let endpoint = |number: usize| {
            let address = SocketAddr::from(([192, 0, 2, 1], u16::try_from(number + 1).unwrap()));
            Endpoint {
                host: address.ip().to_string(),
                port: address.port(),
                authority: address.to_string(),
                tls: None,
                address: Address::Tcp(address),
                source: address.to_string(),
                weight: EQUAL_WEIGHT,
            }
        };
        let second = Duration::from_secs(1);
        Settings {
            name: DEFAULT_NAME.into(),
            endpoints: (0..count).map(endpoint).collect(),
            protocol: Protocol::Http1,
            tls: ClientSettings::default(),
            timeouts: Timeouts { connect: second, response: second, response_idle: second, exchange: second },
            balance: BalanceSettings::default(),
            outlier: OutlierSettings::default(),
            health: None,
            lifetimes: Lifetimes::default(),
            connections: ConnectionBounds::default(),
            retries: RetrySettings::default(),
            max_requests: None,
        }
    }
}
