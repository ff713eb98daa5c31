//! Check of the upstreams: a request that does not come through the gateway, to each endpoint. The judgement is in
//! [`super::exposure`].

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use super::certificate_chain::judge_validity;
use super::client::{self, TIMEOUT};
use super::environment::Environment;
use super::exposure::{Answer, Place, judge};
use super::finding::Findings;
use crate::config::{Config, Upstream};
use platform::tls::{self, CertificateFacts, ClientSettings, ClientTls};
use upstream::{Address, Endpoint, HealthKind, Protocol};

/// Endpoints of one upstream that are probed: the others are most likely like them.
const MAX_ENDPOINTS: usize = 8;

/// One request to one endpoint.
struct Probe<'a> {
    endpoint: &'a Endpoint,
    address: Option<SocketAddr>,
    path: &'a str,
    upstream: &'a Upstream,
}

/// Sends a request without credentials, identity headers and client certificate to the endpoints of all upstreams.
pub(super) async fn check(environment: &Environment, findings: &mut Findings) {
    let config = &environment.config;
    let now = environment.now.0.cast_signed() / 1_000_000;
    for (place, upstream) in config.upstreams.iter().enumerate() {
        let path = probe_path(config, place, upstream);
        let endpoints = upstream.settings.endpoints.iter();
        for endpoint in endpoints.take(MAX_ENDPOINTS) {
            let subject = format!("upstream `{}`, {}", upstream.settings.name, endpoint.source);
            match addresses(endpoint).await {
                Ok(addresses) => {
                    for address in addresses {
                        let probe = Probe { endpoint, address, path: &path, upstream };
                        let (answer, certificate) = probe.send().await;
                        judge(&subject, probe.place(), &answer, environment.gateway.is_ok(), findings);
                        if let Some(certificate) = certificate {
                            judge_validity(format!("{subject}: certificate"), &certificate, now, findings);
                        }
                    }
                }
                Err(error) => judge(&subject, Place::Network, &Answer::Unreachable(error), false, findings),
            }
        }
    }
}

/// The path of the probe: one that the upstream is asked for anyway.
fn probe_path(config: &Config, place: usize, upstream: &Upstream) -> String {
    if let Some(HealthKind::Http { path, .. }) = upstream.settings.health.as_ref().map(|health| &health.kind) {
        return path.to_string();
    }
    let is_plain = |path: &&str| !path.contains(['{', '*']);
    let routes = config.routes.iter().filter(|route| route.upstream == place && route.serve.is_none());
    let routes = routes.filter(|route| route.strip_prefix.is_none());
    let routes = routes.filter(|route| route.methods.is_empty() || route.methods.contains(&http::Method::GET));
    routes.map(|route| &*route.path).find(is_plain).unwrap_or("/").to_owned()
}

/// The addresses of an endpoint; none for a socket. Those of a name are looked up as the system does it.
async fn addresses(endpoint: &Endpoint) -> Result<Vec<Option<SocketAddr>>, String> {
    match &endpoint.address {
        Address::Tcp(address) => Ok(vec![Some(*address)]),
        Address::Unix(_) => Ok(vec![None]),
        Address::Unresolved if endpoint.port == 0 => {
            Err("its addresses come from SRV records or a file, and were not looked up".to_owned())
        }
        Address::Unresolved => match timeout(TIMEOUT, lookup_host((&*endpoint.host, endpoint.port))).await {
            Ok(Ok(found)) => Ok(found.take(MAX_ENDPOINTS).map(Some).collect()),
            Ok(Err(error)) => Err(format!("{} cannot be resolved: {error}", endpoint.host)),
            Err(_) => Err(format!("{} cannot be resolved in time", endpoint.host)),
        },
    }
}

impl Probe<'_> {
    fn place(&self) -> Place {
        match self.address {
            None => Place::Socket,
            Some(address) if address.ip().is_loopback() => Place::ThisMachine,
            Some(_) => Place::Network,
        }
    }

    /// Sends the request; returns the answer, and the certificate of the endpoint.
    async fn send(&self) -> (Answer, Option<CertificateFacts>) {
        match (&self.endpoint.address, self.address) {
            (Address::Unix(path), _) => match UnixStream::connect(path).await {
                Ok(stream) => (self.ask(stream).await, None),
                Err(error) => (Answer::Unreachable(error.to_string()), None),
            },
            (_, Some(address)) => match timeout(TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => self.ask_over_tcp(stream).await,
                Ok(Err(error)) => (Answer::Unreachable(error.to_string()), None),
                Err(_) => (Answer::Unreachable("no connection in time".to_owned()), None),
            },
            (_, None) => (Answer::Unreachable("no address".to_owned()), None),
        }
    }

    async fn ask_over_tcp(&self, stream: TcpStream) -> (Answer, Option<CertificateFacts>) {
        let Some(name) = &self.endpoint.tls else { return (self.ask(stream).await, None) };
        // Without our own certificate: an upstream that requires one refuses everybody else.
        let settings = ClientSettings { identity: None, ..self.upstream.settings.tls.clone() };
        let protocols: &'static [&'static [u8]] = match self.upstream.settings.protocol {
            Protocol::Http1 => &[b"http/1.1"],
            Protocol::Http2 => &[b"h2"],
        };
        let connector = match ClientTls::open(&settings, protocols) {
            Ok(tls) => tls.connector(),
            Err(error) => return (Answer::Unreachable(error.in_full()), None),
        };
        match timeout(TIMEOUT, tls::connect(&connector, name.clone(), stream)).await {
            Ok(Ok(stream)) => {
                let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let leaf = leaf.and_then(|leaf| CertificateFacts::from_der(leaf));
                (self.ask(stream).await, leaf)
            }
            Ok(Err(error)) => (Answer::of_error(&error), None),
            Err(_) => (Answer::NoResponse("no TLS handshake in time".to_owned()), None),
        }
    }

    async fn ask<S>(&self, stream: S) -> Answer
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let authority = self.upstream.host.name().unwrap_or(&self.endpoint.authority);
        let status = match self.upstream.settings.protocol {
            Protocol::Http1 => client::get(stream, authority, self.path).await.map(|(status, _)| status),
            Protocol::Http2 => {
                let scheme = if self.endpoint.tls.is_some() { "https" } else { "http" };
                client::status_over_http2(stream, &format!("{scheme}://{authority}{}", self.path)).await
            }
        };
        status.map_or_else(|error| Answer::of_error(&error), Answer::Status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of the probe of the only upstream.
    fn path(blocks: &str) -> String {
        let text = format!(
            "listen: [{{ address: 127.0.0.1:0 }}]\n\
             admin: {{ socket: admin.sock, address: 127.0.0.1:1 }}\n\
             state: {{ embedded: {{ path: state.db }} }}\n\
             audit: {{ path: audit }}\n{blocks}"
        );
        let config = Config::parse(std::path::Path::new("keygate.yaml"), &text).unwrap();
        probe_path(&config, 0, &config.upstreams[0])
    }

    #[test]
    fn probe_asks_for_a_path_that_the_upstream_is_asked_for_anyway() {
        let endpoints = "endpoints: ['http://127.0.0.1:8081']";
        let upstream = format!("upstream: {{ {endpoints} }}\n");
        let of_routes = |routes: &str| path(&format!("{upstream}routes: [{routes}]\n"));
        assert_eq!(path(&upstream), "/");
        assert_eq!(of_routes("{ name: a, path: '/a/{id}' }, { name: b, path: '/b/**' }"), "/");
        assert_eq!(of_routes("{ name: a, methods: [POST], path: /a }, { name: b, path: /b }"), "/b");
        assert_eq!(of_routes("{ name: a, path: /v1/a, strip_prefix: /v1 }, { name: b, path: /b }"), "/b");
        let health = format!("upstream: {{ {endpoints}, health: {{ path: /up }} }}\n");
        assert_eq!(path(&format!("{health}routes: [{{ name: b, path: /b }}]\n")), "/up");
    }
}
