//! Cookies: our own are for nobody behind us, and HTTP/2 clients may send theirs in crumbs (RFC 9113, section 8.2.3), which
//! HTTP/1 servers do not expect.

use bytes::{BufMut as _, BytesMut};
use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};

use crate::session;

/// Removes our own cookies and joins several `Cookie` fields into one, in order. What needs neither stays as it is.
pub(super) fn clean(headers: &mut HeaderMap) {
    let fields = headers.get_all(COOKIE).into_iter();
    let (count, ours) = fields.fold((0, false), |(count, ours), field| {
        (count + 1, ours || session::pairs(field.as_bytes()).any(session::is_ours))
    });
    match (count, ours) {
        (0 | 1, false) => {}
        (_, false) => join(headers, |_| true),
        (_, true) => join(headers, |pair| !pair.is_empty() && !session::is_ours(pair)),
    }
}

/// Removes fields that would set our own cookies: the service behind has no say in who is signed in.
pub(super) fn keep_ours(headers: &mut HeaderMap) {
    let is_ours = |field: &HeaderValue| session::is_ours(field.as_bytes().trim_ascii_start());
    if !headers.get_all(SET_COOKIE).into_iter().any(is_ours) {
        return;
    }
    let others = headers.get_all(SET_COOKIE).into_iter().filter(|field| !is_ours(field)).cloned();
    let others: Vec<HeaderValue> = others.collect();
    headers.remove(SET_COOKIE);
    headers.extend(others.into_iter().map(|field| (SET_COOKIE, field)));
}

/// Makes one field of all the pairs to keep; none when there are none.
fn join(headers: &mut HeaderMap, keep: impl Fn(&[u8]) -> bool) {
    let mut joined = BytesMut::new();
    let fields = headers.get_all(COOKIE).into_iter();
    for pair in fields.flat_map(|field| session::pairs(field.as_bytes())).filter(|pair| keep(pair)) {
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
    fn crumbs_become_one_cookie() {
        let mut headers = HeaderMap::new();
        clean(&mut headers);
        assert!(headers.is_empty());
        for (crumb, whole) in [("a=1", "a=1"), ("b=2", "a=1; b=2"), ("c=\u{e4}", "a=1; b=2; c=\u{e4}")] {
            headers.append(COOKIE, HeaderValue::from_bytes(crumb.as_bytes()).unwrap());
            clean(&mut headers);
            assert_eq!(headers.get_all(COOKIE).iter().count(), 1);
            assert_eq!(headers[COOKIE].as_bytes(), whole.as_bytes());
        }
    }

    #[test]
    fn nobody_behind_us_sets_ours() {
        let mut headers = HeaderMap::new();
        for field in ["a=1", "__Host-keygate=x; Secure; Path=/", " __host-keygate-sign-in=", "b=__Host-keygate=2"] {
            headers.append(SET_COOKIE, HeaderValue::from_bytes(field.as_bytes()).unwrap());
        }
        keep_ours(&mut headers);
        let left: Vec<&[u8]> = headers.get_all(SET_COOKIE).iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(left, [&b"a=1"[..], b"b=__Host-keygate=2"]);
    }

    #[test]
    fn our_own_go_no_further() {
        let cleaned = |fields: &[&str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(COOKIE, field.parse().unwrap());
            }
            clean(&mut headers);
            headers.get_all(COOKIE).iter().map(|field| field.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(cleaned(&["__Host-keygate=x"]), [""; 0]);
        assert_eq!(cleaned(&["a=1; __Host-keygate=x; b=2"]), ["a=1; b=2"]);
        assert_eq!(cleaned(&["a=1;__host-Keygate-sign-in=x", " __Host-keygate=y", "b=2"]), ["a=1; b=2"]);
        assert_eq!(cleaned(&["a=1;  b = 2 ;"]), ["a=1;  b = 2 ;"]);
    }
}
