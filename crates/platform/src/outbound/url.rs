//! Address of a server of HTTP.

use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// An `http` or `https` address with a host, and without credentials: those belong into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl(Uri);

/// Text that is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an http or https address without credentials")]
pub struct InvalidHttpUrl;

impl HttpUrl {
    /// The same address; with this path, if it has none.
    #[must_use]
    pub fn with_default_path(self, path: &'static str) -> Self {
        let mut parts = self.0.clone().into_parts();
        if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
            parts.path_and_query = Some(PathAndQuery::from_static(path));
        }
        Uri::from_parts(parts).map_or(self, Self)
    }

    /// True with `https`.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// True for an address of this machine.
    pub fn is_local(&self) -> bool {
        self.host() == "localhost" || self.host().parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The whole address.
    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// Host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let host = self.0.host().unwrap_or_default();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Port, by default that of the scheme.
    pub fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// Path and query, the target of requests.
    pub fn target(&self) -> Uri {
        self.0.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()))
    }

    /// Host and port as the address has them: the value of `Host`.
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", Authority::as_str)
    }
}

impl FromStr for HttpUrl {
    type Err = InvalidHttpUrl;

    fn from_str(text: &str) -> Result<Self, InvalidHttpUrl> {
        let uri = text.parse::<Uri>().map_err(|_| InvalidHttpUrl)?;
        let is_http = uri.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let is_host = |authority: &Authority| !authority.host().is_empty() && !authority.as_str().contains('@');
        if is_http && uri.authority().is_some_and(is_host) { Ok(Self(uri)) } else { Err(InvalidHttpUrl) }
    }
}
