//! The received head: what is refused by it alone, before anybody is asked who sent it.

use std::ops::Deref;

use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Version};

/// No method of any registry is longer (the longest is `UPDATEREDIRECTREF`, of 17); servers have bounds of their own.
const MAX_METHOD: usize = 24;

/// A head that a server behind the gateway reads as the gateway does. Only such a head can be forwarded.
///
/// - The method is neither CONNECT nor TRACE, nor longer than any that exists. The target is a path, of visible ASCII alone; or `*`, with OPTIONS.
/// - There is exactly one host, and it is one; HTTP/1.0 may do without.
/// - There is at most one length, of digits.
/// - Nothing but `100-continue` is expected.
#[derive(Debug)]
pub struct ValidatedHead(Parts);

/// Why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHead {
    /// It could be read in more than one way, or asks for what no gateway does.
    #[error("the head could be read in more than one way")]
    Malformed,
    /// It expects what nobody here fulfils (RFC 9110, section 10.1.1).
    #[error("an expectation cannot be met")]
    Expectation,
}

impl ValidatedHead {
    /// Checks a head. The sizes are the caller's affair.
    ///
    /// # Errors
    /// The [`InvalidHead`].
    pub fn validate(head: Parts) -> Result<Self, InvalidHead> {
        match flaw(&head) {
            Some(flaw) => Err(flaw),
            None => Ok(Self(head)),
        }
    }

    /// The head itself.
    pub fn into_parts(self) -> Parts {
        self.0
    }
}

impl Deref for ValidatedHead {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

fn flaw(head: &Parts) -> Option<InvalidHead> {
    let sound = !matches!(head.method, Method::CONNECT | Method::TRACE)
        && head.method.as_str().len() <= MAX_METHOD
        && is_target(head)
        && has_one_host(head)
        && has_one_length(&head.headers);
    if !sound {
        return Some(InvalidHead::Malformed);
    }
    let met = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if head.headers.get_all(EXPECT).iter().all(met) { None } else { Some(InvalidHead::Expectation) }
}

/// The HTTP library lets bytes above ASCII pass in HTTP/2 paths, which servers decode as they please, and some characters
/// that no target has on HTTP/1.
fn is_target(head: &Parts) -> bool {
    let Some(target) = head.uri.path_and_query().map(|target| target.as_str()) else { return false };
    let visible = target.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\"<>`".contains(&byte));
    visible && (target.starts_with('/') || (target == "*" && head.method == Method::OPTIONS))
}

/// Exactly one valid host (RFC 9112, section 3.2): of the target where that has one, else of the field. On HTTP/2 both
/// must agree (RFC 9113, section 8.3.1).
fn has_one_host(head: &Parts) -> bool {
    let mut fields = head.headers.get_all(HOST).into_iter();
    let field = fields.next();
    if fields.next().is_some() || !field.is_none_or(is_host) {
        return false;
    }
    match (head.version, head.uri.authority()) {
        (Version::HTTP_11, _) => field.is_some(),
        (Version::HTTP_2, Some(authority)) => {
            let same = |field: &HeaderValue| field.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
            !authority.as_str().contains('@') && !authority.host().is_empty() && field.is_none_or(same)
        }
        (Version::HTTP_2, None) => field.is_some(),
        _ => true,
    }
}

fn is_host(value: &HeaderValue) -> bool {
    let authority = Authority::try_from(value.as_bytes());
    authority.is_ok_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
}

/// On HTTP/1 the bytes were checked; on HTTP/2 a length says what the frames say, or is wrong.
fn has_one_length(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONTENT_LENGTH).into_iter();
    let digits = |value: &HeaderValue| !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    fields.next().is_none_or(digits) && fields.next().is_none()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(request: http::request::Builder) -> Result<(), InvalidHead> {
        ValidatedHead::validate(request.body(()).unwrap().into_parts().0).map(drop)
    }

    #[test]
    fn what_no_gateway_does_is_refused() {
        let get = |uri: &str| Request::get(uri).header("host", "h");
        assert_eq!(check(get("/a?b")), Ok(()));
        assert_eq!(check(get("/\u{e4}")), Err(InvalidHead::Malformed));
        assert_eq!(check(get("/?a`b")), Err(InvalidHead::Malformed));
        assert_eq!(check(get("*")), Err(InvalidHead::Malformed));
        assert_eq!(check(get("*").method("OPTIONS")), Ok(()));
        assert_eq!(check(get("h:80").method("CONNECT")), Err(InvalidHead::Malformed));
        assert_eq!(check(get("/").method("TRACE")), Err(InvalidHead::Malformed));
        assert_eq!(check(get("/").method("O".repeat(25).as_str())), Err(InvalidHead::Malformed));
        assert_eq!(check(get("/").header("expect", "100-Continue")), Ok(()));
        assert_eq!(check(get("/").header("expect", "a miracle")), Err(InvalidHead::Expectation));
        assert_eq!(
            check(get("/").header("content-length", "1").header("content-length", "1")),
            Err(InvalidHead::Malformed)
        );
        assert_eq!(check(get("/").header("content-length", "+1")), Err(InvalidHead::Malformed));
    }

    #[test]
    fn there_is_exactly_one_host() {
        let http2 = |uri: &str| Request::get(uri).version(Version::HTTP_2);
        assert_eq!(check(http2("http://h:80/")), Ok(()));
        assert_eq!(check(http2("http://h:80/").header("host", "H:80")), Ok(()));
        assert_eq!(check(http2("http://h:80/").header("host", "other")), Err(InvalidHead::Malformed));
        assert_eq!(check(http2("http://u@h/")), Err(InvalidHead::Malformed));
        assert_eq!(check(http2("/")), Err(InvalidHead::Malformed));
        assert_eq!(check(http2("/").header("host", "h")), Ok(()));
        assert_eq!(check(Request::get("/")), Err(InvalidHead::Malformed));
        assert_eq!(check(Request::get("/").version(Version::HTTP_10)), Ok(()));
        for host in ["", "a b", "u@h", "a\"", "a/b"] {
            assert_eq!(check(Request::get("/").header("host", host)), Err(InvalidHead::Malformed), "{host:?}");
        }
    }
}
