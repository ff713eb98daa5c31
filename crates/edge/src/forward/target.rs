//! Target of a request on its way to the upstream: the received one, byte for byte, in origin form (RFC
//! 9112, section 3.2.1).
//!
//! With `strip_prefix` it is the tail of the received one, behind the segments of the prefix in any spelling. Nothing
//! of the tail is decoded, resolved or merged, so that the upstream sees the segments that the route was found by,
//! without the first ones:
//!
//! | received, with the prefix `/reports` | sent |
//! |---|---|
//! | `/reports/2026/q%20?a=%2F` | `/2026/q%20?a=%2F` |
//! | `/reports/`, `/reports` | `/` |
//! | `/reports?a` | `/?a` |

use http::Uri;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;

/// Rewrites a target. The path begins with the prefix, and the prefix ends with a segment: the route was found by it.
pub(super) fn rewrite(uri: Uri, strip_prefix: Option<&str>) -> Uri {
    match strip_prefix {
        None => origin_form(uri),
        Some(prefix) => Uri::from(strip(uri.path_and_query().map_or("/", PathAndQuery::as_str), prefix)),
    }
}

/// An empty path is `/` in origin form.
fn origin_form(uri: Uri) -> Uri {
    // Nearly all targets on HTTP/1 are in this form.
    if uri.authority().is_none() && uri.scheme().is_none() {
        return uri;
    }
    let target = uri.path_and_query().filter(|target| target.as_str() != "/");
    target.map_or_else(|| Uri::from_static("/"), |target| Uri::from(target.clone()))
}

fn strip(target: &str, prefix: &str) -> PathAndQuery {
    // A target that the route does not match must not be sent as another one: the panic is answered with 500.
    let tail = tail_of(target, prefix).expect("the path begins with the prefix of its route");
    let tail = match tail.bytes().next() {
        Some(b'/') => PathAndQuery::try_from(tail),
        None | Some(b'?') => PathAndQuery::try_from(format!("/{tail}")),
        Some(_) => panic!("the prefix of a route ends with a segment"),
    };
    tail.expect("the tail of a target is a target")
}

/// The target without this prefix, whose escapes the target may spell otherwise: routes compare paths decoded.
fn tail_of<'a>(target: &'a str, prefix: &str) -> Option<&'a str> {
    target.strip_prefix(prefix).or_else(|| {
        let path = target.split('?').next()?;
        let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        let (spelled, tail) = target.split_at(ends.nth(prefix.matches('/').count())?);
        percent_decode_str(spelled).eq(percent_decode_str(prefix)).then_some(tail)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stripped(uri: &str) -> String {
        rewrite(uri.parse().unwrap(), Some("/reports")).to_string()
    }

    #[test]
    fn prefix_is_removed_and_the_rest_stays() {
        for (received, sent) in [
            ("/reports/2026", "/2026"),
            ("/reports/", "/"),
            ("/reports", "/"),
            ("/reports?a=/reports/b", "/?a=/reports/b"),
            ("/reports/?a", "/?a"),
            ("/reports/reports/x", "/reports/x"),
            ("/reports/a%20b%25%C3%A4/?q=%2F..//", "/a%20b%25%C3%A4/?q=%2F..//"),
            ("http://example.com/reports/a?b", "/a?b"),
        ] {
            assert_eq!(stripped(received), sent, "{received}");
        }
    }

    #[test]
    fn target_without_a_prefix_stays_as_it_is() {
        for (received, sent) in [("/a?b", "/a?b"), ("*", "*"), ("http://h", "/"), ("http://h/a%2Fb", "/a%2Fb")] {
            assert_eq!(rewrite(received.parse().unwrap(), None).to_string(), sent, "{received}");
        }
    }

    #[test]
    fn prefix_is_removed_in_every_spelling_of_its_escapes() {
        for received in ["/v:1/%C3%A9/a%3Ab?c", "/v%3A1/%C3%A9/a%3Ab?c", "/v%3a1/%c3%A9/a%3Ab?c"] {
            assert_eq!(rewrite(received.parse().unwrap(), Some("/v:1/%c3%a9")).to_string(), "/a%3Ab?c", "{received}");
            let encoded = rewrite(received.parse().unwrap(), Some("/v%3A1")).to_string();
            assert!(encoded.ends_with("9/a%3Ab?c") && encoded.starts_with("/%"), "{received}: {encoded}");
        }
        assert_eq!(rewrite("/v%3a1?/b".parse().unwrap(), Some("/v:1")).to_string(), "/?/b");
    }

    #[test]
    #[should_panic = "the path begins with the prefix"]
    fn other_prefix_is_never_removed() {
        rewrite("/v%3B1/a".parse().unwrap(), Some("/v:1"));
    }

    #[test]
    #[should_panic = "the prefix of a route ends with a segment"]
    fn prefix_within_a_segment_is_never_removed() {
        stripped("/reportsandmore");
    }

    proptest! {
        #[test]
        fn stripped_target_is_the_tail_of_the_received_one(
            rest in "(/[a-z%.=-]{0,5}){0,4}",
            query in "([?][a-z/.%?=]{0,8})?",
        ) {
            let received = format!("/reports{rest}{query}");
            let sent = stripped(&received);
            prop_assert!(sent.starts_with('/'));
            let tail = received.strip_prefix("/reports").unwrap();
            let added = sent.len() - tail.len();
            prop_assert_eq!(added, usize::from(rest.is_empty()), "only a missing slash is added");
            prop_assert_eq!(&sent[added..], tail);
        }
    }
}
