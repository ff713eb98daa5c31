//! Paths of requests and of routes, as they are compared: by segments, with their percent-encoding decoded.
//!
//! - Servers hand the decoded path to the application, as WSGI, Rack and servlets do. So spellings of one decoded path
//!   are one path here, in whatever case the digits of an escape are. What is forwarded is the received spelling.
//! - A path that servers could read as other segments has no form to compare, and matches no route.
//! - Bytes that are no UTF-8 compare as U+FFFD, as Python reads them. No listed path has that character.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Stands for the rest of a path, at the end of a pattern.
const REST: &str = "/**";

/// Segment of a route's path, as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Any segment that is not empty.
    Parameter,
    /// This segment, decoded.
    Literal(Cow<'a, str>),
}

/// The segments of a route's path without a `/**` at its end, and whether it has that.
pub fn pattern_segments(path: &str) -> (impl Iterator<Item = Segment<'_>>, bool) {
    let (path, is_open_ended) = path.strip_suffix(REST).map_or((path, false), |path| (path, true));
    (path.split('/').skip(1).map(Segment::of), is_open_ended)
}

impl<'a> Segment<'a> {
    /// The segment of a route's path that is written so.
    pub(super) fn of(text: &'a str) -> Self {
        let is_parameter = text.starts_with('{') && text.ends_with('}');
        if is_parameter { Self::Parameter } else { Self::Literal(percent_decode_str(text).decode_utf8_lossy()) }
    }
}

/// The path of a request as it is compared; none where the upstream could take another resource than the one that the
/// permission was checked for: with empty or dot segments, parameters (`;…`), which some servers cut off, or a
/// backslash; and with an escape of a slash, of a control character (the `$` of regular expressions matches before a
/// line feed), or of a character that needs none (RFC 3986, section 2.3).
pub(super) fn comparable(path: &str) -> Option<Cow<'_, str>> {
    let bytes = path.as_bytes();
    let (mut segment, mut has_escape) = (0, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' | b';' => return None,
            b'%' if escape_error(&bytes[at + 1..]).is_some() => return None,
            b'%' => has_escape = true,
            b'/' if bytes[..at].ends_with(b"/") || is_dot_segment(&bytes[segment..at]) => return None,
            b'/' => segment = at + 1,
            _ => {}
        }
    }
    if is_dot_segment(&bytes[segment..]) {
        return None;
    }
    Some(if has_escape { percent_decode_str(path).decode_utf8_lossy() } else { Cow::Borrowed(path) })
}

/// The reason why no request matches a literal segment of a listed path with these escapes; none when some do.
pub fn literal_error(segment: &str) -> Option<&'static str> {
    if segment.contains(';') {
        return Some("has a `;`, and no path with one matches a route; remove it");
    }
    let escapes = segment.match_indices('%').map(|(at, _)| &segment.as_bytes()[at + 1..]);
    escapes.into_iter().find_map(escape_error).or_else(|| {
        let is_text = percent_decode_str(segment).decode_utf8().is_ok_and(|text| !text.contains('\u{fffd}'));
        (!is_text).then_some("has escapes that are no UTF-8, which servers read differently; encode it as UTF-8")
    })
}

fn is_dot_segment(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// The reason why no path with an escape matches a route; none when some do. `rest` is what follows its `%`.
fn escape_error(rest: &[u8]) -> Option<&'static str> {
    let digit = |at: usize| rest.get(at).and_then(|digit| char::from(*digit).to_digit(16));
    let (Some(high), Some(low)) = (digit(0), digit(1)) else {
        return Some("has a `%` without two hexadecimal digits after it; write %25 for the character");
    };
    match u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte") {
        b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
            Some("has an escape of a letter, a digit or one of - . _ ~, which needs none; write the character")
        }
        b'/' | b'\\' | b';' | ..=0x1f | 0x7f => {
            Some("has an escape of `/`, `\\`, `;` or a control character, and no path with one matches a route")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rules one by one: the model of the single pass over the path.
    fn is_plain_by_the_rules(path: &str) -> bool {
        !path.contains("//")
            && !path.contains(['\\', ';'])
            && !path.split('/').any(|segment| matches!(segment, "." | ".."))
            && !path.match_indices('%').any(|(at, _)| escape_error(&path.as_bytes()[at + 1..]).is_some())
    }

    #[test]
    fn escapes_of_other_characters_than_those_that_need_one_match_no_route() {
        for byte in 0..=255_u8 {
            let is_refused = byte.is_ascii_alphanumeric() || byte.is_ascii_control() || b"-._~/\\;".contains(&byte);
            for path in [format!("/a%{byte:02x}"), format!("/a%{byte:02X}")] {
                assert_eq!(comparable(&path).is_none(), is_refused, "{path}");
            }
        }
        assert!(["/%", "/%a", "/%zz", "/%2"].iter().all(|path| comparable(path).is_none()));
    }

    #[test]
    fn listed_literal_is_one_that_requests_match() {
        for literal in ["things:purge", "r%C3%A9sum%c3%a9", "%40admin", "a%20b", "%7Bid%7D", "100%25"] {
            assert_eq!(literal_error(literal), None, "{literal}");
        }
        for (literal, reason) in [
            ("a%", "without two hexadecimal digits"),
            ("a%zz", "without two hexadecimal digits"),
            ("%61", "needs none"),
            ("a%2Db", "needs none"),
            ("a%2fb", "no path with one matches"),
            ("a%0A", "no path with one matches"),
            ("a;b", "has a `;`"),
            ("%C3", "no UTF-8"),
            ("%EF%BF%BD", "no UTF-8"),
        ] {
            assert!(literal_error(literal).is_some_and(|error| error.contains(reason)), "{literal}");
        }
    }

    proptest! {
        #[test]
        fn comparable_paths_are_those_of_the_rules(path in r"([/.]{0,3}|[a\\;%/]|%[0-9a-g]{0,2}){0,8}") {
            prop_assert_eq!(comparable(&path).is_some(), is_plain_by_the_rules(&path), "{}", path);
        }
    }
}
