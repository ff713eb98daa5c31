//! Settings of traces.

use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, Uri};

use super::sampling::Ratio;
use crate::outbound::HttpUrl;
use crate::tls::ClientSettings;
use domain::secret::Secret;

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
    url: HttpUrl,
}

/// Text that is not the address of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the address of a collector, such as http://localhost:4318")]
pub struct InvalidEndpoint;

impl Endpoint {
    /// The address, with its path.
    pub fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// True with `https`.
    pub fn is_encrypted(&self) -> bool {
        self.url.is_encrypted()
    }

    /// The whole address.
    pub fn uri(&self) -> &Uri {
        self.url.uri()
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let url: HttpUrl = text.parse().map_err(|_| InvalidEndpoint)?;
        Ok(Self { url: url.with_default_path(PATH) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_without_a_path_gets_that_of_otlp() {
        let parse = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.uri().to_string());
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
            (endpoint.url().host().to_owned(), endpoint.url().port(), endpoint.is_encrypted())
        };
        assert_eq!(parts("http://[::1]:4318"), ("::1".to_owned(), 4318, false));
        assert_eq!(parts("https://otel.example"), ("otel.example".to_owned(), 443, true));
        assert_eq!(parts("http://otel.example"), ("otel.example".to_owned(), 80, false));
    }
}
