//! Settings of traces.

use std::str::FromStr;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderName, Uri};

use super::sampling::Ratio;
use crate::secret::Secret;
use crate::tls::ClientSettings;

/// Path of an endpoint that is given without one (OTLP specification, "OTLP/HTTP request").
const PATH: &str = "/v1/traces";

/// Settings of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Collector.
    pub endpoint: Endpoint,
    /// Header fields of each request to it, such as a token.
    pub headers: Vec<(HeaderName, Secret)>,
    /// Trusted authorities, and the gateway's own certificate.
    pub tls: ClientSettings,
    /// Time for one batch to be accepted by the collector, with all tries.
    pub timeout: Duration,
    /// Share of the traces that begin here which are exported.
    pub ratio: Ratio,
    /// Use of a `traceparent` that does not come from a trusted proxy.
    pub clients: ClientContext,
    /// Requests that wait to be exported, at most.
    pub queue: usize,
    /// Name of this service: `service.name`.
    pub service: String,
    /// Name of this gateway: `service.instance.id`.
    pub instance: String,
}

/// Use of a `traceparent` that does not come from a trusted proxy. A new trace begins in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientContext {
    /// It is ignored.
    #[default]
    Ignore,
    /// The new trace links to it.
    Link,
}

/// Address of the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    uri: Uri,
}

/// Text that is not the address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the address of a collector, such as http://localhost:4318")]
pub struct InvalidEndpoint;

impl Endpoint {
    /// True with `https`.
    pub fn is_encrypted(&self) -> bool {
        self.uri.scheme() == Some(&Scheme::HTTPS)
    }

    /// The whole address.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.uri.host().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Port, by default that of the scheme.
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let mut parts = text.parse::<Uri>().map_err(|_| InvalidEndpoint)?.into_parts();
        let is_http = matches!(&parts.scheme, Some(scheme) if [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        // Credentials belong into a header that comes from a file.
        let is_host = |authority: &Authority| !authority.host().is_empty() && !authority.as_str().contains('@');
        if !is_http || !parts.authority.as_ref().is_some_and(is_host) {
            return Err(InvalidEndpoint);
        }
        if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
            parts.path_and_query = Some(http::uri::PathAndQuery::from_static(PATH));
        }
        Uri::from_parts(parts).map(|uri| Self { uri }).map_err(|_| InvalidEndpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_without_a_path_gets_that_of_otlp() {
        let parse = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.uri.to_string());
        assert_eq!(parse("http://localhost:4318"), Ok("http://localhost:4318/v1/traces".to_owned()));
        assert_eq!(parse("https://otel.example/"), Ok("https://otel.example/v1/traces".to_owned()));
        assert_eq!(parse("https://otel.example/in?x=1"), Ok("https://otel.example/in?x=1".to_owned()));
        for wrong in ["", "localhost:4318", "grpc://localhost:4317", "/v1/traces", "http://", "http://user:pass@host"] {
            assert_eq!(parse(wrong), Err(InvalidEndpoint), "{wrong}");
        }
    }

    #[test]
    fn endpoint_has_a_host_and_a_port() {
        let parts = |text: &str| {
            let endpoint: Endpoint = text.parse().unwrap();
            (endpoint.host().to_owned(), endpoint.port(), endpoint.is_encrypted())
        };
        assert_eq!(parts("http://[::1]:4318"), ("::1".to_owned(), 4318, false));
        assert_eq!(parts("https://otel.example"), ("otel.example".to_owned(), 443, true));
        assert_eq!(parts("http://otel.example"), ("otel.example".to_owned(), 80, false));
    }
}
