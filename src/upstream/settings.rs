//! Where the upstream is, and how patient we are with it.

use std::time::Duration;

use rustls::pki_types::ServerName;

use crate::tls::ClientSettings;

/// The upstream's endpoints and time-outs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// Whom we believe, and who we are, at endpoints that are encrypted.
    pub tls: ClientSettings,
    /// To make a connection to one endpoint, name resolution included.
    pub connect_timeout: Duration,
    /// From the request's head being sent to the response's head.
    pub response_timeout: Duration,
    /// Between two pieces of a response body.
    pub response_idle_timeout: Duration,
}

/// One endpoint, `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What goes into `Host`: host and port as configured.
    pub authority: String,
    /// Whom its certificate must be for; none when connections to it are not encrypted.
    pub tls: Option<ServerName<'static>>,
}
