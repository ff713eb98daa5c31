//! What is said of a provider in the configuration.

use std::net::IpAddr;

use openidconnect::url::{Host, Url};

use crate::secret::Secret;
use crate::tls::ClientSettings;

/// A provider, and who we are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it is called in addresses and logs.
    pub name: String,
    /// What people read on its button.
    pub label: String,
    /// Its issuer identifier, exactly as its own documents have it; see [`Settings::check_issuer`].
    pub issuer: String,
    /// Our name there.
    pub client_id: String,
    /// Our secret there; none for a public client, which has only PKCE.
    pub client_secret: Option<Secret>,
    /// What is asked for beside `openid`.
    pub scopes: Vec<String>,
    /// The claims that are wanted beside `email` and `name`: when the ID token lacks one, userinfo is asked.
    pub claims: Vec<String>,
    /// By whom it must be certified.
    pub tls: ClientSettings,
}

/// Why a text cannot be an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIssuer {
    /// It is no URL.
    #[error("is not a URL; give the provider's issuer, such as https://login.example.com")]
    NotAUrl,
    /// Anybody on the way could be the provider.
    #[error("is not https; only a provider on this machine (127.0.0.1, ::1, localhost) may have http")]
    Insecure,
    /// An issuer has no such parts (OpenID Connect Discovery 1.0, section 3).
    #[error("must not have a user, a query or a fragment")]
    Parts,
}

impl Settings {
    /// Whether a text can be an issuer.
    ///
    /// # Errors
    /// [`InvalidIssuer`] when it cannot.
    pub fn check_issuer(issuer: &str) -> Result<(), InvalidIssuer> {
        parse_issuer(issuer).map(drop)
    }
}

/// An issuer as an address.
pub(super) fn parse_issuer(issuer: &str) -> Result<Url, InvalidIssuer> {
    let url = Url::parse(issuer).map_err(|_| InvalidIssuer::NotAUrl)?;
    if !url.has_host() {
        return Err(InvalidIssuer::NotAUrl);
    }
    if !is_encrypted(&url) && !is_local(&url) {
        return Err(InvalidIssuer::Insecure);
    }
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user || url.query().is_some() || url.fragment().is_some() {
        return Err(InvalidIssuer::Parts);
    }
    Ok(url)
}

/// Whether what is sent there is encrypted.
pub(super) fn is_encrypted(url: &Url) -> bool {
    url.scheme() == "https"
}

/// Whether what is sent there in the clear never leaves this machine.
pub(super) fn is_local(url: &Url) -> bool {
    url.scheme() == "http"
        && match url.host() {
            Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
            Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_encrypted_or_on_this_machine() {
        for good in [
            "https://login.example.com",
            "https://login.example.com/realms/a/",
            "https://10.0.0.1:8443",
            "http://127.0.0.1:8080",
            "http://[::1]:8080/a",
            "http://localhost",
        ] {
            assert_eq!(Settings::check_issuer(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", InvalidIssuer::NotAUrl),
            ("login.example.com", InvalidIssuer::NotAUrl),
            ("https:", InvalidIssuer::NotAUrl),
            ("data:text/plain,https", InvalidIssuer::NotAUrl),
            ("http://login.example.com", InvalidIssuer::Insecure),
            ("http://localhost.example.com", InvalidIssuer::Insecure),
            ("http://127.0.0.1.example.com", InvalidIssuer::Insecure),
            ("http://10.0.0.1", InvalidIssuer::Insecure),
            ("ftp://127.0.0.1", InvalidIssuer::Insecure),
            ("https://user@login.example.com", InvalidIssuer::Parts),
            ("https://login.example.com/?tenant=a", InvalidIssuer::Parts),
            ("https://login.example.com/#a", InvalidIssuer::Parts),
        ] {
            assert_eq!(Settings::check_issuer(bad), Err(why), "{bad}");
        }
    }
}
