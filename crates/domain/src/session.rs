//! Web sessions on the wire: the token in the browser's cookie, its hash, and the check against cross-site request
//! forgery (CSRF).
//!
//! A session token is an opaque value of 256 bits in a cookie. Only its SHA-256 is stored; the plain value ([`Token`])
//! and its hash ([`TokenDigest`]) are different types, and `Debug` shows neither.

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{COOKIE, ORIGIN, UPGRADE};
use http::{HeaderMap, HeaderName, Method};
use sha2::{Digest as _, Sha256};

use crate::secret::{Secret, digests_match};

/// Prefix of the names of all the gateway's cookies. A browser accepts a cookie with the prefix `__Host-` only over an
/// encrypted connection (or from its own machine), for exactly this host and all its paths, so that no sibling domain
/// can plant one (RFC 6265bis, section 4.1.3.2).
const COOKIES: &[u8] = b"__Host-keygate";
/// Name of the session cookie.
pub const COOKIE_NAME: &str = "__Host-keygate";
/// Beginning of the name of the cookie that binds the sign-ins in progress of a browser to it; a part that is different
/// for each value follows, so that tabs that begin at once do not replace each other's.
pub const SIGN_IN_COOKIE_PREFIX: &str = "__Host-keygate-sign-in";
/// Name of the cookie of a browser that must not be signed in without a click: its user has signed
/// out, or it has tried.
pub const NO_SILENT_COOKIE_NAME: &str = "__Host-keygate-no-silent";
/// Beginning of the name of the cookie that carries a new key to the page that shows it; the key id follows, so that
/// two keys that are created at once do not meet.
pub const NEW_KEY_COOKIE_PREFIX: &str = "__Host-keygate-new-";

/// Relation of the sending page's origin to ours, as the browser reports it (Fetch Metadata, section 2.3).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Characters of a token: 256 bits in base64url.
const LENGTH: usize = 43;

/// An opaque value of 256 bits in plain text: 43 characters of base64url (RFC 4648, section 5).
///
/// It exists from its generation until it is sent; a presented one is only hashed.
#[derive(Clone, Debug)]
pub struct Token(Secret);

/// The SHA-256 of a [`Token`].
///
/// - Comparison takes constant time.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

/// Error: a request has several different values for one of the gateway's cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is more than one cookie of one name")]
pub struct AmbiguousCookie;

impl Token {
    /// Generates a random token.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(Secret::new(URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// A token that a browser presents, to be given to it once more; none for a text of another form.
    fn from_presented(presented: &[u8]) -> Option<Self> {
        let has_form = presented.len() == LENGTH && URL_SAFE_NO_PAD.decode(presented).is_ok();
        let text = std::str::from_utf8(presented).ok().filter(|_| has_form)?;
        Some(Self(Secret::new(text.to_owned())))
    }

    /// The plain text, for the cookie or the link that carries it.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The digest that is stored of it.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of(self.expose().as_bytes())
    }
}

impl TokenDigest {
    /// Hashes a presented token, of any form.
    pub fn of(presented: &[u8]) -> Self {
        Self(Sha256::digest(presented).into())
    }

    /// The 32 bytes, as they are stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Makes a digest from its 32 bytes, as it is stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Reads the cookie of this name and hashes its token; none when there is no such cookie.
///
/// # Errors
/// [`AmbiguousCookie`] when there are several with different values: a browser sends only one, and a server behind the
/// gateway could read the other.
pub fn read_cookie(headers: &HeaderMap, name: &str) -> Result<Option<TokenDigest>, AmbiguousCookie> {
    let fields = headers.get_all(COOKIE).into_iter();
    let mut values =
        fields.flat_map(|field| cookie_pairs(field.as_bytes())).filter_map(|pair| value_of(pair, name.as_bytes()));
    let Some(first) = values.next() else { return Ok(None) };
    if values.any(|other| other != first) {
        return Err(AmbiguousCookie);
    }
    // A value of another length is no token: it is hashed as an empty one, whose digest no session has.
    Ok(Some(TokenDigest::of(if first.len() == LENGTH { first } else { b"" })))
}

/// The value of the first cookie of this name.
pub fn cookie_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let fields = headers.get_all(COOKIE).into_iter();
    fields.flat_map(|field| cookie_pairs(field.as_bytes())).find_map(|pair| value_of(pair, name.as_bytes()))
}

/// The sign-in cookies of a browser, as names and tokens, in the order in which it sends them: the oldest first (RFC
/// 6265, section 5.4). There are several when tabs without one began to sign in at once.
pub fn sign_in_cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, Token)> {
    let fields = headers.get_all(COOKIE).into_iter();
    fields.flat_map(|field| cookie_pairs(field.as_bytes())).filter_map(|pair| {
        let (name, value) = split_pair(pair)?;
        let name = std::str::from_utf8(name).ok().filter(|name| name.starts_with(SIGN_IN_COOKIE_PREFIX))?;
        Some((name, Token::from_presented(value)?))
    })
}

/// Name of the sign-in cookie that carries a token.
pub fn sign_in_cookie_name(token: &Token) -> String {
    let [first, second, third, fourth, ..] = *token.digest().as_bytes();
    format!("{SIGN_IN_COOKIE_PREFIX}-{:08x}", u32::from_be_bytes([first, second, third, fourth]))
}

/// The pairs of a `Cookie` field, without surrounding blanks (RFC 6265, section 4.2.1).
pub fn cookie_pairs(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

/// Returns true for a pair of a `Cookie` field that is one of the gateway's own: upstreams must not see those.
pub fn is_gateway_cookie(pair: &[u8]) -> bool {
    pair.get(..COOKIES.len()).is_some_and(|start| start.eq_ignore_ascii_case(COOKIES))
}

fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    split_pair(pair).and_then(|(found, value)| (found == name).then_some(value))
}

/// Name and value of a pair of a `Cookie` field.
fn split_pair(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, value) = pair.split_at_checked(pair.iter().position(|byte| *byte == b'=')?)?;
    Some((name.trim_ascii(), value[1..].trim_ascii()))
}

/// CSRF check: returns true when a request with a cookie may be treated as its user's intent.
///
/// Safe methods (RFC 9110, section 9.2.1) may come from any origin: they change nothing, and the browser lets no other
/// origin read the response. An upgrade is not safe: any page may open a WebSocket, write to it and read it (RFC 6455,
/// section 10.2). For upgrades and all other methods the browser must report that the sending page has the same origin:
/// by `Sec-Fetch-Site`, or, where a browser does not send that field, by `Origin`.
pub fn is_same_origin(method: &Method, headers: &HeaderMap, origin: &str) -> bool {
    if method.is_safe() && !headers.contains_key(UPGRADE) {
        return true;
    }
    match (single_value(headers, &SEC_FETCH_SITE), single_value(headers, &ORIGIN)) {
        (Some(site), _) => site == b"same-origin",
        (None, Some(from)) => from == origin.as_bytes(),
        (None, None) => false,
    }
}

/// The only value of a field. Several values count as an empty one, which no check accepts.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).into_iter();
    let first = values.next()?.as_bytes();
    Some(if values.next().is_some() { b"" } else { first })
}

impl PartialEq for TokenDigest {
    fn eq(&self, other: &Self) -> bool {
        digests_match(&self.0, &other.0)
    }
}

impl Eq for TokenDigest {}

impl Hash for TokenDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (first, _) = self.0.split_first_chunk::<8>().expect("a digest has 32 bytes");
        state.write_u64(u64::from_ne_bytes(*first));
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn cookies(fields: &[&str]) -> Result<Option<TokenDigest>, AmbiguousCookie> {
        read_cookie(&headers(&fields.iter().map(|field| (COOKIE, *field)).collect::<Vec<_>>()), COOKIE_NAME)
    }

    #[test]
    fn session_cookie_is_found_among_others() {
        let token = Token::generate().unwrap();
        assert_eq!(token.expose().len(), LENGTH);
        let ours = format!("__Host-keygate={}", token.expose());
        let among = format!("a=1; {ours}; b=2");
        for fields in [vec![ours.as_str()], vec![&among], vec!["a=1", &ours], vec![&ours, &ours]] {
            assert_eq!(cookies(&fields), Ok(Some(token.digest())));
        }
        for none in ["", "a=1", "keygate=x", "__Host-keygate", "__Host-keygate-sign-in=x", "x__Host-keygate=x"] {
            assert_eq!(cookies(&[none]), Ok(None), "{none}");
        }
        let other = format!("__Host-keygate={}", Token::generate().unwrap().expose());
        assert_eq!(cookies(&[&ours, &other]), Err(AmbiguousCookie));
        assert_eq!(format!("{token:?} {:?}", token.digest()), "Token(Secret(…)) TokenDigest(…)");
    }

    #[test]
    fn gateway_cookies_are_recognized_in_any_case() {
        for ours in ["__Host-keygate=1", "__Host-keygate-sign-in=1", "__host-KEYGATE=1", "__Host-keygate"] {
            assert!(is_gateway_cookie(ours.as_bytes()), "{ours}");
        }
        for other in ["a=__Host-keygate=1", "keygate=1", "__Host-key", ""] {
            assert!(!is_gateway_cookie(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn unsafe_methods_require_the_same_origin() {
        let own = "https://gateway.example";
        let is_own = |method: Method, fields: &[(HeaderName, &str)]| is_same_origin(&method, &headers(fields), own);
        assert!(is_own(Method::GET, &[]));
        assert!(is_own(Method::POST, &[(SEC_FETCH_SITE, "same-origin")]));
        assert!(is_own(Method::POST, &[(ORIGIN, own)]));
        for site in ["same-site", "cross-site", "none", "", "Same-Origin"] {
            assert!(!is_own(Method::POST, &[(SEC_FETCH_SITE, site), (ORIGIN, own)]), "{site}");
        }
        for origin in ["null", "https://gateway.example.evil", "http://gateway.example", "https://gateway.example:8443"]
        {
            assert!(!is_own(Method::DELETE, &[(ORIGIN, origin)]), "{origin}");
        }
        assert!(!is_own(Method::POST, &[]));
        assert!(!is_own(Method::GET, &[(UPGRADE, "websocket")]));
        assert!(!is_own(Method::GET, &[(UPGRADE, "websocket"), (ORIGIN, "https://evil.example")]));
        assert!(is_own(Method::GET, &[(UPGRADE, "websocket"), (ORIGIN, own)]));
        assert!(!is_own(Method::POST, &[(SEC_FETCH_SITE, "same-origin"), (SEC_FETCH_SITE, "same-origin")]));
        assert!(!is_own(Method::POST, &[(ORIGIN, own), (ORIGIN, own)]));
    }
}
