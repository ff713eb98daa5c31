//! Where the upstream is, and how patient we are with it.

use std::time::Duration;

use rustls::pki_types::ServerName;

use crate::tls::ClientSettings;

/// The upstream's endpoints and time-outs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// What is spoken to all of them.
    pub protocol: Protocol,
    /// Whom we believe, and who we are, at endpoints that are encrypted.
    pub tls: ClientSettings,
    /// How long it may take.
    pub timeouts: Timeouts,
}

/// What is spoken to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: where connections are not encrypted, with prior knowledge (RFC 9113, section 3.3).
    Http2,
}

/// How long the upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To make a connection to one endpoint, name resolution included.
    pub connect: Duration,
    /// From the request being sent to the response's head. While the request's body goes, the upstream is not late.
    pub response: Duration,
    /// Between two pieces of a response body.
    pub response_idle: Duration,
    /// From the request being sent to the last byte of the response.
    pub exchange: Duration,
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
