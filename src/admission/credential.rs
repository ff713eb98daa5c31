//! Credentials of requests: an API key, or the cookie of a web session.
//!
//! - A key decides alone, valid or not: a cookie that comes with it is not read. It is in `Authorization`, as a bearer
//!   token or, where the configuration says so, in HTTP Basic; in a field that the configuration lists; or in the offer
//!   of a WebSocket. It is never in two of them, and never in the query string.
//! - A browser sends a cookie with every request to the origin, also with one that another site provoked. Therefore an
//!   unsafe request with a session cookie must come from a page of the same origin.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::websocket_key::OfferedKey;
use super::{bearer, key_field};
use domain::head_fields::{CredentialFields, FieldSet};
use domain::identity::MANAGEMENT_METHOD;
use domain::key::{self, KeyDigest, KeyId};
use domain::management_token;
use domain::refusal::Refusal;
use domain::session::{self, TokenDigest};

/// Credential, as the state looks it up.
pub(super) enum Credential {
    /// API key.
    Key(PresentedKey),
    /// Web session.
    Session(TokenDigest),
}

/// Presented key: the digest by which it is recognized, and the id by which it is found.
pub(super) struct PresentedKey {
    pub(super) digest: KeyDigest,
    /// Id that the key names, when it has keygate's own format.
    pub(super) id: Option<KeyId>,
}

/// Places in which a request to a route may have its credential.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// Fields, beside `Authorization`, that may carry a key.
    pub(super) fields: &'a CredentialFields,
    /// True if `Authorization` is the upstream's: then a key in one of `fields` is the only credential.
    pub(super) pass_authorization: bool,
    /// True if the request may become a WebSocket, whose offer of subprotocols may have a key.
    pub(super) websocket: bool,
    /// Origin of the pages whose users may use sessions; none: sessions are no credential.
    pub(super) session_origin: Option<&'a str>,
}

/// Reads the credential of a request, whose head has these fields.
///
/// # Errors
/// The refusal, when there is nothing that could be looked up.
pub(super) fn read(head: &Parts, fields: FieldSet, places: Places<'_>) -> Result<Credential, Refusal> {
    if places.websocket
        && let Some(offered) = head.extensions.get::<OfferedKey>()
    {
        let has_authorization = !places.pass_authorization && head.headers.contains_key(AUTHORIZATION);
        if fields.contains(FieldSet::CREDENTIAL) || has_authorization {
            return Err(Refusal::RepeatedCredential);
        }
        return read_key(offered.key()?).map(Credential::Key);
    }
    if fields.contains(FieldSet::CREDENTIAL) {
        let token = key_field::parse_key(&head.headers, places.fields, places.pass_authorization)?;
        return read_key(token).map(Credential::Key);
    }
    if places.pass_authorization {
        return Err(Refusal::NoCredential);
    }
    let refusal = match bearer::parse_token(&head.headers) {
        Ok(token) => return read_key(token).map(Credential::Key),
        Err(refusal) => refusal,
    };
    if refusal == Refusal::NoCredential
        && places.fields.has_basic()
        && let Some(key) = bearer::parse_basic(&head.headers)?
    {
        return read_key(&key).map(Credential::Key);
    }
    let (Refusal::NoCredential, Some(origin)) = (refusal, places.session_origin) else { return Err(refusal) };
    let cookie = session::read_cookie(&head.headers, session::COOKIE_NAME).map_err(|_| Refusal::RepeatedSession)?;
    let digest = cookie.ok_or(refusal)?;
    if head.method.as_str() == MANAGEMENT_METHOD {
        return Err(Refusal::ReservedMethod);
    }
    let is_own = session::is_same_origin(&head.method, &head.headers, origin);
    if is_own { Ok(Credential::Session(digest)) } else { Err(Refusal::CrossSite) }
}

fn read_key(token: &[u8]) -> Result<PresentedKey, Refusal> {
    let id = key::parse(token);
    // Only keys of keygate's format have a checksum. A management token is no key, even where its digest was imported.
    if id.is_none() && (key::is_mistyped(token) || management_token::parse(token).is_some()) {
        return Err(Refusal::MalformedKey);
    }
    Ok(PresentedKey { digest: KeyDigest::of(token), id })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use domain::session::Token;

    const ORIGIN: &str = "https://gateway.example";

    fn read_kind(method: &str, fields: &[(&str, &str)], origin: Option<&str>) -> Result<&'static str, Refusal> {
        read_kind_at(method, fields, origin, false)
    }

    fn read_kind_at(
        method: &str,
        fields: &[(&str, &str)],
        origin: Option<&str>,
        pass_authorization: bool,
    ) -> Result<&'static str, Refusal> {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let listed = CredentialFields::new(vec!["X-API-Key".parse().unwrap()]);
        let places = Places { fields: &listed, pass_authorization, websocket: true, session_origin: origin };
        let credential = read(&head, FieldSet::of_request(&head.headers, &listed), places)?;
        Ok(match credential {
            Credential::Key(_) => "key",
            Credential::Session(_) => "session",
        })
    }

    #[test]
    fn bearer_key_decides_alone() {
        let cookie = format!("__Host-keygate={}", Token::generate().unwrap().expose());
        let cookie = ("cookie", cookie.as_str());
        assert_eq!(read_kind("GET", &[cookie], Some(ORIGIN)), Ok("session"));
        assert_eq!(read_kind("GET", &[cookie], None), Err(Refusal::NoCredential));
        assert_eq!(read_kind("POST", &[cookie, ("authorization", "Bearer other")], Some(ORIGIN)), Ok("key"));
        let empty = read_kind("GET", &[cookie, ("authorization", "Bearer ")], Some(ORIGIN));
        assert_eq!(empty, Err(Refusal::EmptyToken));
        let twice = [cookie, ("authorization", "Bearer a"), ("authorization", "Bearer a")];
        assert_eq!(read_kind("GET", &twice, Some(ORIGIN)), Err(Refusal::RepeatedCredential));
        assert_eq!(read_kind("GET", &[], Some(ORIGIN)), Err(Refusal::NoCredential));
    }

    #[test]
    fn key_in_a_listed_field_decides_alone() {
        let cookie = format!("__Host-keygate={}", Token::generate().unwrap().expose());
        let cookie = ("cookie", cookie.as_str());
        let field = ("x-api-key", "other");
        assert_eq!(read_kind("POST", &[cookie, field], Some(ORIGIN)), Ok("key"));
        assert_eq!(read_kind("GET", &[cookie, ("x-api-key", "")], Some(ORIGIN)), Err(Refusal::EmptyToken));
        let both = [field, ("authorization", "Bearer other")];
        assert_eq!(read_kind("GET", &both, Some(ORIGIN)), Err(Refusal::RepeatedCredential));
    }

    #[test]
    fn management_token_is_no_key() {
        let token = management_token::PlainToken::generate().unwrap();
        let text = token.expose().expose();
        for field in [("authorization", &*format!("Bearer {text}")), ("x-api-key", text)] {
            assert_eq!(read_kind("GET", &[field], Some(ORIGIN)), Err(Refusal::MalformedKey), "{field:?}");
        }
        let other = format!("{}x", &text[..63]);
        assert_eq!(read_kind("GET", &[("x-api-key", &other)], None), Ok("key"), "a key of another system");
    }

    #[test]
    fn route_that_passes_authorization_needs_a_key_in_a_listed_field() {
        let cookie = format!("__Host-keygate={}", Token::generate().unwrap().expose());
        let cookie = ("cookie", cookie.as_str());
        let bearer = ("authorization", "Bearer other");
        let read = |fields: &[(&str, &str)]| read_kind_at("GET", fields, Some(ORIGIN), true);
        assert_eq!(read(&[bearer, ("x-api-key", "key")]), Ok("key"));
        assert_eq!(read(&[bearer, bearer, ("x-api-key", "key")]), Ok("key"));
        assert_eq!(read(&[bearer]), Err(Refusal::NoCredential));
        assert_eq!(read(&[cookie]), Err(Refusal::NoCredential));
    }

    #[test]
    fn session_cookie_on_unsafe_request_needs_same_origin() {
        let cookie = format!("a=b; __Host-keygate={}", Token::generate().unwrap().expose());
        let cookie = ("cookie", cookie.as_str());
        assert_eq!(read_kind("POST", &[cookie], Some(ORIGIN)), Err(Refusal::CrossSite));
        assert_eq!(
            read_kind("POST", &[cookie, ("sec-fetch-site", "cross-site")], Some(ORIGIN)),
            Err(Refusal::CrossSite)
        );
        assert_eq!(read_kind("POST", &[cookie, ("sec-fetch-site", "same-origin")], Some(ORIGIN)), Ok("session"));
        assert_eq!(read_kind("POST", &[cookie, ("origin", ORIGIN)], Some(ORIGIN)), Ok("session"));
        assert_eq!(read_kind("ADMIN", &[cookie, ("origin", ORIGIN)], Some(ORIGIN)), Err(Refusal::ReservedMethod));
    }
}
