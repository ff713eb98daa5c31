//! Trailers of a response: fields that come after the head was sent, and so must not change its meaning.

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, EXPIRES, HOST, LOCATION,
    RETRY_AFTER, SET_COOKIE, TRAILER, VARY, WARNING, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{field_names, hop_by_hop};

/// Fields that a recipient must not find in trailers, where it may merge them into a head that was read and acted upon
/// (RFC 9110, section 6.5.1): framing, routing, authentication, and how the response is to be handled.
const HEAD_ONLY: [HeaderName; 15] = [
    AGE,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    DATE,
    EXPIRES,
    HOST,
    LOCATION,
    RETRY_AFTER,
    SET_COOKIE,
    VARY,
    WARNING,
    WWW_AUTHENTICATE,
];
/// Prefix of the fields by which the gateway reports rate limits.
const RATE_LIMIT: &str = "ratelimit";

/// Removes from trailers the fields that belong into a head, those for one connection only, and those that only the
/// gateway sets. Returns how many names some server could misread.
pub fn rewrite_trailers(trailers: &mut HeaderMap) -> u64 {
    hop_by_hop::remove(trailers);
    let dropped = field_names::remove_reserved(trailers);
    let head_only: Vec<HeaderName> = trailers.keys().filter(|name| is_head_only(name)).cloned().collect();
    for name in head_only {
        trailers.remove(name);
    }
    dropped as u64
}

/// Value of the `Trailer` field on HTTP/1: the trailers that the upstream announced and that may come.
pub(super) fn announced(headers: &HeaderMap) -> Option<HeaderValue> {
    let values = headers.get_all(TRAILER).into_iter();
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut allowed = HeaderMap::new();
    for name in names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()) {
        allowed.insert(name, HeaderValue::from_static(""));
    }
    rewrite_trailers(&mut allowed);
    let names: Vec<&str> = allowed.keys().map(HeaderName::as_str).collect();
    (!names.is_empty()).then(|| HeaderValue::try_from(names.join(", ")).expect("field names are visible ASCII"))
}

fn is_head_only(name: &HeaderName) -> bool {
    HEAD_ONLY.contains(name) || name.as_str().starts_with(RATE_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_keep_only_what_may_come_late() {
        let mut map = HeaderMap::new();
        for name in [
            "grpc-status",
            "content-length",
            "transfer-encoding",
            "connection",
            "x-user-id",
            "x_org_id",
            "x.y",
            "set-cookie",
            "x-request-id",
            "ratelimit-policy",
            "trailer",
            "te",
            "x-sum",
            "authorization",
            "x-forwarded-for",
            "host",
        ] {
            map.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        assert_eq!(rewrite_trailers(&mut map), 2);
        let mut left: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["grpc-status", "x-sum"]);
    }

    #[test]
    fn announced_trailers_are_those_that_may_come() {
        let mut headers = HeaderMap::new();
        headers.insert(TRAILER, HeaderValue::from_static("X-Sum, content-length,, x y"));
        headers.append(TRAILER, HeaderValue::from_static("x-user-id"));
        assert_eq!(announced(&headers), Some(HeaderValue::from_static("x-sum")));
        assert_eq!(announced(&HeaderMap::new()), None);
    }
}
