//! Validation of request heads, before the credential is read.

use std::ops::Deref;

use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Uri, Version};

use domain::head_fields::{CredentialFields, FieldSet};
use domain::http_syntax::{self, InvalidTargetByte, MAX_METHOD};

/// Head that the gateway and any server behind it read alike. Only such a head can be forwarded.
///
/// - The method is neither CONNECT nor TRACE, nor longer than any that exists. The target is a path of visible ASCII,
///   or `*` with OPTIONS; its scheme, if it has one, is `http` or `https`.
/// - There is exactly one valid host; with HTTP/1.0 there may be none.
/// - There is at most one `Content-Length`, of digits.
/// - `Expect` has no value but `100-continue`.
///
/// Boxed: it is handed on several times before it is rewritten.
#[derive(Debug)]
pub struct ValidatedHead {
    head: Box<Parts>,
    /// Fields of the head that are acted on.
    fields: FieldSet,
}

/// Reason why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHead {
    /// It could be read in more than one way, or its method is not for gateways.
    #[error("the head could be read in more than one way")]
    Malformed,
    /// Its target has a byte that it may not have.
    #[error(transparent)]
    Target(#[from] InvalidTargetByte),
    /// Its `Expect` has another value than `100-continue` (RFC 9110, section 10.1.1).
    #[error("an expectation cannot be met")]
    Expectation,
}

impl ValidatedHead {
    /// Validates a head, in which `credentials` may carry a key, except for its size.
    ///
    /// # Errors
    /// [`InvalidHead`]: the head must not be forwarded.
    pub fn validate(head: Parts, credentials: &CredentialFields) -> Result<Self, InvalidHead> {
        let fields = FieldSet::of_request(&head.headers, credentials);
        if head.method.as_str().len() > MAX_METHOD || !has_one_length(&head.headers) {
            return Err(InvalidHead::Malformed);
        }
        check_target_bytes(&head)?;
        Self::from_scanned(head, fields)
    }

    /// Validates what is left to validate in a head whose bytes were scanned strictly, and found to have these fields.
    ///
    /// # Errors
    /// [`InvalidHead`]: the head must not be forwarded.
    pub fn from_scanned(head: Parts, fields: FieldSet) -> Result<Self, InvalidHead> {
        let is_valid = !matches!(head.method, Method::CONNECT | Method::TRACE)
            && has_valid_target_form(&head)
            && has_one_host(&head, fields);
        if !is_valid {
            return Err(InvalidHead::Malformed);
        }
        if fields.contains(FieldSet::EXPECT) && !has_known_expectation(&head.headers) {
            return Err(InvalidHead::Expectation);
        }
        Ok(Self { head: Box::new(head), fields })
    }

    /// Fields of the head that are acted on.
    pub fn fields(&self) -> FieldSet {
        self.fields
    }

    /// Takes the head.
    pub fn into_parts(self) -> Parts {
        *self.head
    }
}

impl Deref for ValidatedHead {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.head
    }
}

fn has_known_expectation(headers: &HeaderMap) -> bool {
    headers.get_all(EXPECT).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// On HTTP/2 the library accepts bytes above ASCII in paths, which servers decode in different ways, and characters
/// that no target has on HTTP/1.
fn check_target_bytes(head: &Parts) -> Result<(), InvalidHead> {
    let target = target(head).ok_or(InvalidHead::Malformed)?;
    Ok(http_syntax::check_target(target.as_bytes())?)
}

fn has_valid_target_form(head: &Parts) -> bool {
    has_known_scheme(&head.uri)
        && target(head)
            .is_some_and(|target| target.starts_with('/') || (target == "*" && head.method == Method::OPTIONS))
}

/// A resource of another scheme is none that an HTTP server has. The origin form has no scheme.
fn has_known_scheme(uri: &Uri) -> bool {
    uri.scheme().is_none_or(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme))
}

fn target(head: &Parts) -> Option<&str> {
    head.uri.path_and_query().map(PathAndQuery::as_str)
}

/// Returns whether there is exactly one valid host (RFC 9112, section 3.2): in the target where that has one, else in
/// the field. On HTTP/2 both must agree (RFC 9113, section 8.3.1).
fn has_one_host(head: &Parts, fields: FieldSet) -> bool {
    let field = if fields.contains(FieldSet::HOST) { head.headers.get(HOST) } else { None };
    if fields.contains(FieldSet::SECOND_HOST) || !field.is_none_or(is_host) {
        return false;
    }
    match (head.version, head.uri.authority()) {
        (Version::HTTP_11, _) => field.is_some(),
        (Version::HTTP_2, Some(authority)) => {
            !authority.as_str().contains('@')
                && !authority.host().is_empty()
                && field.is_none_or(|field| field.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
        }
        (Version::HTTP_2, None) => field.is_some(),
        _ => true,
    }
}

/// A host name, with or without a port, is checked by its bytes alone; addresses in brackets and the like by the parser
/// of the HTTP library.
fn is_host(value: &HeaderValue) -> bool {
    http_syntax::is_host_name(value.as_bytes()) || is_authority(value)
}

fn is_authority(value: &HeaderValue) -> bool {
    let authority = Authority::try_from(value.as_bytes());
    authority.is_ok_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
}

/// Returns whether there is at most one length, of digits. HTTP/1 heads were checked as bytes; on HTTP/2 the library
/// compares the length with the frames, but accepts several fields.
fn has_one_length(headers: &HeaderMap) -> bool {
    let mut fields = headers.get_all(CONTENT_LENGTH).into_iter();
    let first = fields.next().map(HeaderValue::as_bytes);
    first.is_none_or(|length| !length.is_empty() && length.iter().all(u8::is_ascii_digit)) && fields.next().is_none()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn validate(request: http::request::Builder) -> Result<(), InvalidHead> {
        ValidatedHead::validate(request.body(()).unwrap().into_parts().0, &CredentialFields::NONE).map(drop)
    }

    #[test]
    fn head_that_can_be_misread_is_refused() {
        let get = |uri: &str| Request::get(uri).header("host", "h");
        assert_eq!(validate(get("/a?b")), Ok(()));
        assert_eq!(validate(get("/\u{e4}")), Err(InvalidTargetByte { byte: 0xc3, at: 1 }.into()));
        assert_eq!(validate(get("/a\"b")), Err(InvalidTargetByte { byte: b'"', at: 2 }.into()));
        assert_eq!(validate(get("/?a`b")), Ok(()));
        assert_eq!(validate(get("*")), Err(InvalidHead::Malformed));
        assert_eq!(validate(get("*").method("OPTIONS")), Ok(()));
        assert_eq!(validate(get("h:80").method("CONNECT")), Err(InvalidHead::Malformed));
        assert_eq!(validate(get("/").method("TRACE")), Err(InvalidHead::Malformed));
        assert_eq!(validate(get("HTTPS://h/")), Ok(()));
        assert_eq!(validate(get("ftp://h/")), Err(InvalidHead::Malformed));
        assert_eq!(validate(get("/").method("O".repeat(25).as_str())), Err(InvalidHead::Malformed));
        assert_eq!(validate(get("/").header("expect", "100-Continue")), Ok(()));
        assert_eq!(validate(get("/").header("expect", "a miracle")), Err(InvalidHead::Expectation));
        assert_eq!(
            validate(get("/").header("content-length", "1").header("content-length", "1")),
            Err(InvalidHead::Malformed)
        );
        assert_eq!(validate(get("/").header("content-length", "+1")), Err(InvalidHead::Malformed));
    }

    #[test]
    fn host_must_be_exactly_one() {
        let http2 = |uri: &str| Request::get(uri).version(Version::HTTP_2);
        assert_eq!(validate(http2("http://h:80/")), Ok(()));
        assert_eq!(validate(http2("http://h:80/").header("host", "H:80")), Ok(()));
        assert_eq!(validate(http2("http://h:80/").header("host", "other")), Err(InvalidHead::Malformed));
        assert_eq!(validate(http2("http://u@h/")), Err(InvalidHead::Malformed));
        assert_eq!(validate(http2("/")), Err(InvalidHead::Malformed));
        assert_eq!(validate(http2("/").header("host", "h")), Ok(()));
        assert_eq!(validate(Request::get("/")), Err(InvalidHead::Malformed));
        assert_eq!(validate(Request::get("/").version(Version::HTTP_10)), Ok(()));
        for host in ["", "a b", "u@h", "a\"", "a/b"] {
            assert_eq!(validate(Request::get("/").header("host", host)), Err(InvalidHead::Malformed), "{host:?}");
        }
    }

    #[test]
    fn scanned_head_is_judged_by_what_the_scan_has_found() {
        let head = |host: &str| Request::get("/").header("host", host).body(()).unwrap().into_parts().0;
        let twice = FieldSet::HOST.with(FieldSet::SECOND_HOST);
        assert!(ValidatedHead::from_scanned(head("h"), FieldSet::HOST).is_ok());
        assert!(ValidatedHead::from_scanned(head("h"), twice).is_err());
        assert!(ValidatedHead::from_scanned(head("h"), FieldSet::NONE).is_err());
        assert!(ValidatedHead::from_scanned(head("u@h"), FieldSet::HOST).is_err());
    }

    proptest! {
        #[test]
        fn host_name_is_one_for_the_library_too(host in "[a-z0-9.:-]{0,12}|[ -~]{0,6}(:[0-9]{0,6})?") {
            let value = HeaderValue::try_from(&host).unwrap();
            prop_assert!(!http_syntax::is_host_name(host.as_bytes()) || is_authority(&value));
        }
    }
}
