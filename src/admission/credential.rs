//! What a request presents: a key, or the cookie of a web session.
//!
//! - A bearer key decides alone, good or bad; a cookie that comes with it is not looked at.
//! - A cookie is presented by the browser whether its user wants it or not, so an unsafe request with one must come from a
//!   page of the same origin.

use http::request::Parts;

use super::bearer;
use crate::key::{self, KeyDigest, KeyId};
use crate::session::{self, TokenDigest};

/// The method that records of management have: no request of a session may be taken for one.
const MANAGEMENT: &str = "ADMIN";

/// A credential, as it is looked up.
pub(super) enum Credential {
    /// A key.
    Key(Presented),
    /// A web session.
    Session(TokenDigest),
}

/// What a key is recognized by, and found by.
pub(super) struct Presented {
    pub(super) digest: KeyDigest,
    /// The id that it names, when it is of our own format.
    pub(super) id: Option<KeyId>,
}

/// Why there is nothing to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CredentialError {
    /// Of the bearer key.
    Bearer(bearer::BearerError),
    /// Several session cookies.
    Ambiguous,
    /// A session's cookie on an unsafe request that no page of ours sent.
    CrossSite,
    /// A session's cookie with the method by which records of management are known.
    Method,
}

/// The credential of a request; `origin` is where pages that may use sessions are, if sessions are used at all.
pub(super) fn of(head: &Parts, origin: Option<&str>) -> Result<Credential, CredentialError> {
    let error = match bearer::parse_token(&head.headers) {
        Ok(token) => return key(token).map(Credential::Key),
        Err(error) => error,
    };
    let (bearer::BearerError::Missing, Some(origin)) = (error, origin) else {
        return Err(CredentialError::Bearer(error));
    };
    let cookie = session::presented(&head.headers, session::COOKIE_NAME).map_err(|_| CredentialError::Ambiguous)?;
    let digest = cookie.ok_or(CredentialError::Bearer(error))?;
    if head.method.as_str() == MANAGEMENT {
        return Err(CredentialError::Method);
    }
    let is_own = session::is_own_doing(&head.method, &head.headers, origin);
    if is_own { Ok(Credential::Session(digest)) } else { Err(CredentialError::CrossSite) }
}

fn key(token: &[u8]) -> Result<Presented, CredentialError> {
    let id = key::parse(token);
    if id.is_none() && looks_like_ours(token) {
        return Err(CredentialError::Bearer(bearer::BearerError::Malformed));
    }
    Ok(Presented { digest: KeyDigest::of(token), id })
}

/// Whether a token is shaped like a key of ours. Imported keys of older systems have shapes of their own.
fn looks_like_ours(token: &[u8]) -> bool {
    token.len() == key::KEY_LENGTH && token.starts_with(key::PREFIX.as_bytes())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::session::Token;

    const ORIGIN: &str = "https://gateway.example";

    fn presented(method: &str, fields: &[(&str, &str)], origin: Option<&str>) -> Result<&'static str, CredentialError> {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let credential = of(&request.body(()).unwrap().into_parts().0, origin)?;
        Ok(match credential {
            Credential::Key(_) => "key",
            Credential::Session(_) => "session",
        })
    }

    #[test]
    fn a_key_decides_alone() {
        let cookie = format!("__Host-keygate={}", Token::generate().unwrap().expose());
        let cookie = ("cookie", cookie.as_str());
        assert_eq!(presented("GET", &[cookie], Some(ORIGIN)), Ok("session"));
        assert_eq!(presented("GET", &[cookie], None), Err(CredentialError::Bearer(bearer::BearerError::Missing)));
        assert_eq!(presented("POST", &[cookie, ("authorization", "Bearer other")], Some(ORIGIN)), Ok("key"));
        let empty = presented("GET", &[cookie, ("authorization", "Bearer ")], Some(ORIGIN));
        assert_eq!(empty, Err(CredentialError::Bearer(bearer::BearerError::Empty)));
        let twice = [cookie, ("authorization", "Bearer a"), ("authorization", "Bearer a")];
        assert_eq!(presented("GET", &twice, Some(ORIGIN)), Err(CredentialError::Bearer(bearer::BearerError::Repeated)));
        assert_eq!(presented("GET", &[], Some(ORIGIN)), Err(CredentialError::Bearer(bearer::BearerError::Missing)));
    }

    #[test]
    fn an_unsafe_request_with_a_cookie_comes_from_our_own_pages() {
        let cookie = format!("a=b; __Host-keygate={}", Token::generate().unwrap().expose());
        let cookie = ("cookie", cookie.as_str());
        assert_eq!(presented("POST", &[cookie], Some(ORIGIN)), Err(CredentialError::CrossSite));
        assert_eq!(
            presented("POST", &[cookie, ("sec-fetch-site", "cross-site")], Some(ORIGIN)),
            Err(CredentialError::CrossSite)
        );
        assert_eq!(presented("POST", &[cookie, ("sec-fetch-site", "same-origin")], Some(ORIGIN)), Ok("session"));
        assert_eq!(presented("POST", &[cookie, ("origin", ORIGIN)], Some(ORIGIN)), Ok("session"));
        assert_eq!(presented("ADMIN", &[cookie, ("origin", ORIGIN)], Some(ORIGIN)), Err(CredentialError::Method));
    }
}
