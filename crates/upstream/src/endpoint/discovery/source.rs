//! Source of endpoints: one entry of the configuration, or one line of a watched file.
//!
//! | entry | endpoints | `Host` |
//! |---|---|---|
//! | `http://10.0.0.1:8081` | this address | as configured |
//! | `http://store:8081` | every address of the name | as configured |
//! | `srv+http://_http._tcp.store` | every address of every target of the SRV records with the best priority, by their weights ([`super::weights`]) | `store` |
//! | `unix:/run/store.sock` | this socket | `localhost` |
//!
//! With `https` and `srv+https`, the certificate must be for the host as configured, for SRV without the labels that
//! begin with `_`: what DNS answers is not authenticated, so that it cannot say which certificate is right (RFC 6125,
//! section 6.5.1).

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::Uri;
use rustls::pki_types::ServerName;

use crate::settings::{Address, EQUAL_WEIGHT, Endpoint};

/// Longest path of a Unix socket, in bytes (`sun_path`).
const MAX_SOCKET_PATH: usize = 107;

/// Source of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Endpoint as far as the entry says it. A name's has no address.
    endpoint: Endpoint,
    pub(super) kind: SourceKind,
}

/// Way in which the addresses of a source are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum SourceKind {
    /// The entry is the address.
    Fixed,
    /// A and AAAA records of a host name.
    Host,
    /// SRV records, and the A and AAAA records of their targets.
    Service,
}

/// Reason why a text is no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Not an address, name or path.
    #[error("`{0}` is not an endpoint such as http://127.0.0.1:8081 or https://store.internal")]
    NotAnEndpoint(String),
    /// A path, a query or a user beside the host.
    #[error("`{0}` is more than scheme, host and port; remove the rest")]
    HasMore(String),
    /// A relative or too long path of a socket.
    #[error("`{0}` is not a socket; give unix: and an absolute path of at most 107 bytes")]
    NotASocket(String),
    /// SRV records hold the ports.
    #[error("`{0}` has a port, which the SRV records hold; remove it")]
    ServiceWithPort(String),
}

impl Source {
    /// Entry as it was configured: its label in logs and metrics.
    pub fn name(&self) -> &str {
        &self.endpoint.source
    }

    /// Name that certificates must be for; none without TLS.
    pub fn tls_name(&mut self) -> Option<&mut ServerName<'static>> {
        self.endpoint.tls.as_mut()
    }

    /// Name to look up, without its port.
    pub(super) fn host(&self) -> &str {
        &self.endpoint.host
    }

    /// Port of a host; that of a service is in its records.
    pub(super) fn port(&self) -> u16 {
        self.endpoint.port
    }

    /// Endpoint of a source without addresses that were looked up: its own address, or a place that has none yet.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Endpoint at an address that was looked up, with its weight among those of this source.
    pub(super) fn endpoint_at(&self, address: SocketAddr, weight: u32) -> Endpoint {
        Endpoint { address: Address::Tcp(address), port: address.port(), weight, ..self.endpoint.clone() }
    }

    /// Source without an address, which stands for a file that lists none.
    pub(super) fn placeholder(file: &Path) -> Self {
        Self::local(file.display().to_string(), Address::Unresolved)
    }

    /// Source without a host name.
    fn local(source: String, address: Address) -> Self {
        let host = "localhost".to_owned();
        let authority = host.clone();
        let endpoint = Endpoint { host, port: 0, authority, tls: None, address, source, weight: EQUAL_WEIGHT };
        Self { endpoint, kind: SourceKind::Fixed }
    }

    fn socket(text: &str) -> Result<Self, SourceError> {
        let path = PathBuf::from(text.strip_prefix("unix:").unwrap_or(text));
        if !path.is_absolute() || path.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(SourceError::NotASocket(text.to_owned()));
        }
        Ok(Self::local(text.to_owned(), Address::Unix(path)))
    }

    fn service(uri: &Uri, authority: &http::uri::Authority, is_encrypted: bool) -> Result<Self, SourceError> {
        let host = authority.host();
        if authority.as_str() != host {
            return Err(SourceError::ServiceWithPort(uri.to_string()));
        }
        let domain = host.trim_end_matches('.').split('.').filter(|label| !label.starts_with('_'));
        let domain = domain.collect::<Vec<_>>().join(".");
        let tls = server_name(is_encrypted, &domain);
        let (Ok(tls), false) = (tls, domain.is_empty()) else {
            return Err(SourceError::NotAnEndpoint(uri.to_string()));
        };
        let endpoint = Endpoint {
            host: host.to_owned(),
            port: 0,
            authority: domain,
            tls,
            address: Address::Unresolved,
            source: host.to_owned(),
            weight: EQUAL_WEIGHT,
        };
        Ok(Self { endpoint, kind: SourceKind::Service })
    }

    fn host_and_port(uri: &Uri, authority: &http::uri::Authority, is_encrypted: bool) -> Result<Self, SourceError> {
        let host = authority.host();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == host => default_port(is_encrypted),
            // The rest behind the host is no port, such as 99999.
            None => return Err(SourceError::NotAnEndpoint(uri.to_string())),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let (Ok(tls), false) = (server_name(is_encrypted, bare), host.is_empty() || port == 0) else {
            return Err(SourceError::NotAnEndpoint(uri.to_string()));
        };
        let (address, kind) = match bare.parse::<IpAddr>() {
            Ok(address) => (Address::Tcp((address, port).into()), SourceKind::Fixed),
            Err(_) => (Address::Unresolved, SourceKind::Host),
        };
        let authority = format!("{host}:{port}");
        let host = bare.to_owned();
        let source = authority.clone();
        let endpoint = Endpoint { host, port, source, authority, tls, address, weight: EQUAL_WEIGHT };
        Ok(Self { endpoint, kind })
    }
}

fn default_port(is_encrypted: bool) -> u16 {
    if is_encrypted { 443 } else { 80 }
}

fn server_name(is_encrypted: bool, host: &str) -> Result<Option<ServerName<'static>>, ()> {
    is_encrypted.then(|| ServerName::try_from(host.to_owned())).transpose().map_err(drop)
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        if text.starts_with("unix:") {
            return Self::socket(text);
        }
        let uri: Uri = text.parse().map_err(|_| SourceError::NotAnEndpoint(text.to_owned()))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(SourceError::NotAnEndpoint(uri.to_string()));
        };
        if !matches!(scheme, "http" | "https" | "srv+http" | "srv+https") {
            return Err(SourceError::NotAnEndpoint(uri.to_string()));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(SourceError::HasMore(uri.to_string()));
        }
        let is_encrypted = scheme.ends_with("https");
        if scheme.starts_with("srv+") {
            Self::service(&uri, authority, is_encrypted)
        } else {
            Self::host_and_port(&uri, authority, is_encrypted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        text.parse().unwrap()
    }

    #[test]
    fn address_is_an_endpoint_and_a_name_is_looked_up() {
        let fixed = source("http://[::1]:81");
        assert_eq!((fixed.kind, fixed.endpoint().label()), (SourceKind::Fixed, "[::1]:81".to_owned()));
        assert_eq!(fixed.endpoint().address, Address::Tcp("[::1]:81".parse().unwrap()));
        let name = source("https://store.internal");
        assert_eq!((name.kind, name.host(), name.port()), (SourceKind::Host, "store.internal", 443));
        let at = name.endpoint_at("10.0.0.1:443".parse().unwrap(), EQUAL_WEIGHT);
        assert_eq!((&*at.authority, &*at.label()), ("store.internal:443", "store.internal:443@10.0.0.1:443"));
        assert_eq!(at.tls, Some(ServerName::try_from("store.internal").unwrap()));
    }

    #[test]
    fn service_is_verified_by_its_domain() {
        let service = source("srv+https://_http._tcp.store.internal");
        assert_eq!((service.kind, service.host()), (SourceKind::Service, "_http._tcp.store.internal"));
        let at = service.endpoint_at("10.0.0.1:8443".parse().unwrap(), EQUAL_WEIGHT);
        assert_eq!((&*at.authority, at.port), ("store.internal", 8443));
        assert_eq!(at.tls, Some(ServerName::try_from("store.internal").unwrap()));
        assert!(matches!("srv+http://_http._tcp.store:80".parse::<Source>(), Err(SourceError::ServiceWithPort(_))));
        assert!(matches!("srv+http://_http._tcp".parse::<Source>(), Err(SourceError::NotAnEndpoint(_))));
    }

    #[test]
    fn port_that_is_no_port_is_an_error_and_not_the_default() {
        for text in ["http://store:99999", "http://store:0", "http://store:", "https://[::1]:65536"] {
            assert!(matches!(text.parse::<Source>(), Err(SourceError::NotAnEndpoint(_))), "{text}");
        }
        assert!(matches!("srv+http://_http._tcp.store:99999".parse::<Source>(), Err(SourceError::ServiceWithPort(_))));
    }

    #[test]
    fn socket_has_an_absolute_path() {
        let socket = source("unix:/run/store.sock").endpoint();
        assert_eq!((socket.address, &*socket.authority), (Address::Unix("/run/store.sock".into()), "localhost"));
        for text in ["unix:run/store.sock", "unix:", &format!("unix:/{}", "x".repeat(107))] {
            assert!(matches!(text.parse::<Source>(), Err(SourceError::NotASocket(_))), "{text}");
        }
    }
}
