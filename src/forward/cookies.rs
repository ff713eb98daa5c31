//! Cookies: HTTP/2 clients may send theirs in crumbs (RFC 9113, section 8.2.3), which HTTP/1 servers do not expect.

use bytes::BytesMut;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// Joins several `Cookie` fields into one, in order.
pub(super) fn join(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).into_iter();
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else { return };
    let mut joined = BytesMut::from(first.as_bytes());
    for crumb in std::iter::once(second).chain(crumbs) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb.as_bytes());
    }
    let joined = HeaderValue::from_maybe_shared(joined.freeze()).expect("values joined by text are a value");
    headers.insert(COOKIE, joined);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crumbs_become_one_cookie() {
        let mut headers = HeaderMap::new();
        join(&mut headers);
        assert!(headers.is_empty());
        for (crumb, whole) in [("a=1", "a=1"), ("b=2", "a=1; b=2"), ("c=\u{e4}", "a=1; b=2; c=\u{e4}")] {
            headers.append(COOKIE, HeaderValue::from_bytes(crumb.as_bytes()).unwrap());
            join(&mut headers);
            assert_eq!(headers.get_all(COOKIE).iter().count(), 1);
            assert_eq!(headers[COOKIE].as_bytes(), whole.as_bytes());
        }
    }
}
