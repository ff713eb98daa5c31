//! Cookies: the gateway's own are not forwarded, and the several `Cookie` fields that HTTP/2 clients may send (RFC
//! 9113, section 8.2.3) become one, because HTTP/1 servers expect one.

use bytes::{BufMut as _, BytesMut};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use domain::session;

/// Removes the gateway's own cookies and joins several `Cookie` fields into one, in order. Fields that need
/// neither stay as they are.
pub(super) fn clean_request(headers: &mut HeaderMap) {
    let fields = headers.get_all(COOKIE).into_iter();
    let (count, ours) = fields.fold((0, false), |(count, ours), field| {
        (count + 1, ours || session::cookie_pairs(field.as_bytes()).any(session::is_gateway_cookie))
    });
    match (count, ours) {
        (0 | 1, false) => {}
        (_, false) => join(headers, |_| true),
        (_, true) => join(headers, |pair| !pair.is_empty() && !session::is_gateway_cookie(pair)),
    }
}

/// Removes fields that would set the gateway's own cookies: the upstream must not decide who is signed in.
pub(super) fn clean_response(headers: &mut HeaderMap) {
    let is_ours = |field: &HeaderValue| session::is_gateway_cookie(field.as_bytes().trim_ascii_start());
    if !headers.get_all(SET_COOKIE).into_iter().any(is_ours) {
        return;
    }
    let others = headers.get_all(SET_COOKIE).into_iter().filter(|field| !is_ours(field)).cloned();
    let others: Vec<HeaderValue> = others.collect();
    headers.remove(SET_COOKIE);
    headers.extend(others.into_iter().map(|field| (SET_COOKIE, field)));
}

/// Joins all pairs to keep into one field, or into none when there are none.
fn join(headers: &mut HeaderMap, keep: impl Fn(&[u8]) -> bool) {
    let mut joined = BytesMut::new();
    let fields = headers.get_all(COOKIE).into_iter();
    for pair in fields.flat_map(|field| session::cookie_pairs(field.as_bytes())).filter(|pair| keep(pair)) {
        if !joined.is_empty() {
            joined.put_slice(b"; ");
        }
        joined.put_slice(pair);
    }
    if joined.is_empty() {
        headers.remove(COOKIE);
        return;
    }
    let joined = HeaderValue::from_maybe_shared(joined.freeze()).expect("values joined by text are a value");
    headers.insert(COOKIE, joined);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_fields_become_one() {
        let mut headers = HeaderMap::new();
        clean_request(&mut headers);
        assert!(headers.is_empty());
        for (cookie, joined) in [("a=1", "a=1"), ("b=2", "a=1; b=2"), ("c=\u{e4}", "a=1; b=2; c=\u{e4}")] {
            headers.append(COOKIE, HeaderValue::from_bytes(cookie.as_bytes()).unwrap());
            clean_request(&mut headers);
            assert_eq!(headers.get_all(COOKIE).iter().count(), 1);
            assert_eq!(headers[COOKIE].as_bytes(), joined.as_bytes());
        }
    }

    #[test]
    fn upstream_cannot_set_the_gateway_cookies() {
        let mut headers = HeaderMap::new();
        for field in ["a=1", "__Host-keygate=x; Secure; Path=/", " __host-keygate-sign-in=", "b=__Host-keygate=2"] {
            headers.append(SET_COOKIE, HeaderValue::from_bytes(field.as_bytes()).unwrap());
        }
        clean_response(&mut headers);
        let left: Vec<&[u8]> = headers.get_all(SET_COOKIE).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(left, [&b"a=1"[..], b"b=__Host-keygate=2"]);
    }

    #[test]
    fn gateway_cookies_are_not_forwarded() {
        let cleaned = |fields: &[&str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(COOKIE, field.parse().unwrap());
            }
            clean_request(&mut headers);
            headers.get_all(COOKIE).iter().map(|field| field.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(cleaned(&["__Host-keygate=x"]), [""; 0]);
        assert_eq!(cleaned(&["a=1; __Host-keygate=x; b=2"]), ["a=1; b=2"]);
        assert_eq!(cleaned(&["a=1;__host-Keygate-sign-in=x", " __Host-keygate=y", "b=2"]), ["a=1; b=2"]);
        assert_eq!(cleaned(&["a=1;  b = 2 ;"]), ["a=1;  b = 2 ;"]);
    }
}
