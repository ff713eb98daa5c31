//! Settings of a provider.

use std::net::IpAddr;

use url::{Host, Url};

use domain::secret::Secret;
use platform::tls::ClientSettings;

/// Settings of a provider, and of this gateway as its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The provider's name in addresses and logs.
    pub name: String,
    /// The label of its button on the sign-in page.
    pub label: String,
    /// The issuer identifier, exactly as in the discovery document; see [`Settings::check_issuer`].
    pub issuer: String,
    /// The id of this gateway as a client of the provider.
    pub client_id: String,
    /// Further audiences (`aud`) that are trusted: a token for others besides is refused.
    pub audiences: Vec<String>,
    /// The client secret; none for a public client, which has only PKCE.
    pub client_secret: Option<Secret>,
    /// The scopes to request besides `openid`.
    pub scopes: Vec<String>,
    /// The claims to read besides `email` and `name`. Userinfo is fetched when the ID token lacks one.
    pub claims: Vec<String>,
    /// TLS settings: the authorities that the provider's certificate must come from.
    pub tls: ClientSettings,
}

/// Reason why a text cannot be an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIssuer {
    /// The text is not a URL.
    #[error("is not a URL; give the provider's issuer, such as https://login.example.com")]
    NotAUrl,
    /// The URL is not encrypted: an attacker on the network path could answer as the provider.
    #[error("is not https; only a provider on this machine (127.0.0.1, ::1, localhost) may have http")]
    Insecure,
    /// The URL has parts that an issuer must not have (OpenID Connect Discovery 1.0, section 3).
    #[error("must not have a user, a query or a fragment")]
    Parts,
}

impl Settings {
    /// Checks that a text can be an issuer.
    ///
    /// # Errors
    /// [`InvalidIssuer`] when it cannot.
    pub fn check_issuer(issuer: &str) -> Result<(), InvalidIssuer> {
        parse_issuer(issuer).map(drop)
    }
}

/// Parses an issuer.
pub(crate) fn parse_issuer(issuer: &str) -> Result<Url, InvalidIssuer> {
    let url = Url::parse(issuer).map_err(|_| InvalidIssuer::NotAUrl)?;
    if !url.has_host() {
        return Err(InvalidIssuer::NotAUrl);
    }
    if !is_https(&url) && !is_loopback_http(&url) {
        return Err(InvalidIssuer::Insecure);
    }
    let has_user = !url.username().is_empty() || url.password().is_some();
    if has_user || url.query().is_some() || url.fragment().is_some() {
        return Err(InvalidIssuer::Parts);
    }
    Ok(url)
}

/// Returns whether a URL is `https`.
pub(super) fn is_https(url: &Url) -> bool {
    url.scheme() == "https"
}

/// Returns whether a URL is `http` on this machine, so that nothing that is sent there leaves it.
pub(super) fn is_loopback_http(url: &Url) -> bool {
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
    fn issuer_is_encrypted_or_on_this_machine() {
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
