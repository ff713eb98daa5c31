//! Paths of requests and of routes, as they are compared: by segments, with their percent-encoding decoded.
//!
//! - Servers hand the decoded path to the application, as WSGI, Rack and servlets do. So spellings of one decoded path
//!   are one path here, in whatever case the digits of an escape are. What is forwarded is the received spelling.
//! - A path that servers could read as other segments has no form to compare, and matches no route ([`Ambiguity`]);
//!   but for encoded slashes and empty segments where routes pass them ([`LenientPath`]).
//! - Bytes that are no UTF-8 compare as U+FFFD, as Python reads them. No listed path has that character.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Stands for the rest of a path, at the end of a pattern.
const REST: &str = "/**";
/// Stands for an encoded slash that passes, as a character of its segment: no path has this one.
const ENCODED_SLASH: &str = "\0";

/// Reason why servers may read a path as another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguity {
    /// `%2F`.
    #[error("an encoded slash, which some servers read as a separator")]
    EncodedSlash,
    /// `//`.
    #[error("an empty segment, which some servers leave out")]
    EmptySegment,
    /// `.` or `..`.
    #[error("a dot segment, which some servers resolve")]
    DotSegment,
    /// `;`, also encoded.
    #[error("a `;`, from which on some servers cut a segment off")]
    Parameter,
    /// `\\`, also encoded.
    #[error("a backslash, which some servers read as a slash")]
    Backslash,
    /// An encoded control character: the `$` of regular expressions matches before a line feed.
    #[error("an encoded control character, which some servers drop or end the path at")]
    ControlCharacter,
    /// `%61` for `a` (RFC 3986, section 2.3).
    #[error("an encoded letter, digit or one of - . _ ~, which servers compare in different ways: send it as it is")]
    NeedlessEscape,
    /// `%` without two hexadecimal digits.
    #[error("a `%` without two hexadecimal digits behind it: send %25 for the character")]
    InvalidEscape,
}

/// A path with encoded slashes or empty segments, which routes may pass.
#[derive(Debug)]
pub(super) struct LenientPath {
    /// As it is compared: an encoded slash is a character of its segment, and empty segments are left out.
    pub(super) text: String,
    pub(super) has_encoded_slash: bool,
    pub(super) has_empty_segment: bool,
    /// As servers read it that keep empty segments, that take an encoded slash for a separator, or both.
    pub(super) readings: [String; 3],
}

impl LenientPath {
    pub(super) fn of(path: &str) -> Result<Self, Ambiguity> {
        let marked = mark_encoded_slashes(path);
        let separated = marked.replace(ENCODED_SLASH, "/");
        let merged = comparable(&merge_slashes(&separated))?.into_owned();
        Ok(Self {
            text: comparable(&merge_slashes(&marked))?.into_owned(),
            has_encoded_slash: marked.contains(ENCODED_SLASH),
            has_empty_segment: separated.contains("//"),
            readings: [decoded(&marked), decoded(&separated), merged],
        })
    }
}

fn mark_encoded_slashes(text: &str) -> String {
    text.replace("%2F", ENCODED_SLASH).replace("%2f", ENCODED_SLASH)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for letter in path.chars() {
        if letter != '/' || !merged.ends_with('/') {
            merged.push(letter);
        }
    }
    merged
}

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
        if is_parameter {
            Self::Parameter
        } else if text.contains("%2F") || text.contains("%2f") {
            Self::Literal(decoded(&mark_encoded_slashes(text)).into())
        } else {
            Self::Literal(percent_decode_str(text).decode_utf8_lossy())
        }
    }
}

/// The path of a request as it is compared.
///
/// # Errors
/// [`Ambiguity`]: the upstream could take another resource than the one that the permission was checked for.
pub fn comparable(path: &str) -> Result<Cow<'_, str>, Ambiguity> {
    let bytes = path.as_bytes();
    let (mut segment, mut has_escape) = (0, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\\' => return Err(Ambiguity::Backslash),
            b';' => return Err(Ambiguity::Parameter),
            b'%' => {
                check_escape(&bytes[at + 1..])?;
                has_escape = true;
            }
            b'/' if bytes[..at].ends_with(b"/") => return Err(Ambiguity::EmptySegment),
            b'/' if is_dot_segment(&bytes[segment..at]) => return Err(Ambiguity::DotSegment),
            b'/' => segment = at + 1,
            _ => {}
        }
    }
    if is_dot_segment(&bytes[segment..]) {
        return Err(Ambiguity::DotSegment);
    }
    Ok(if has_escape { percent_decode_str(path).decode_utf8_lossy() } else { Cow::Borrowed(path) })
}

/// The reason why no request matches a literal segment of a listed path with these escapes; none when some do. An
/// encoded slash matches where the route `passes_slash`.
pub fn literal_error(segment: &str, passes_slash: bool) -> Option<&'static str> {
    if segment.contains(';') {
        return Some("has a `;`, and no path with one matches a route; remove it");
    }
    let escapes = segment.match_indices('%').map(|(at, _)| &segment.as_bytes()[at + 1..]);
    let error = |rest: &[u8]| match check_escape(rest).err()? {
        Ambiguity::EncodedSlash if passes_slash => None,
        Ambiguity::EncodedSlash => Some("has an encoded slash, which needs `encoded_slash: pass`"),
        Ambiguity::InvalidEscape => {
            Some("has a `%` without two hexadecimal digits after it; write %25 for the character")
        }
        Ambiguity::NeedlessEscape => {
            Some("has an escape of a letter, a digit or one of - . _ ~, which needs none; write the character")
        }
        _ => Some("has an escape of `\\`, `;` or a control character, and no path with one matches a route"),
    };
    escapes.into_iter().find_map(error).or_else(|| {
        let is_text = percent_decode_str(segment).decode_utf8().is_ok_and(|text| !text.contains('\u{fffd}'));
        (!is_text).then_some("has escapes that are no UTF-8, which servers read differently; encode it as UTF-8")
    })
}

fn is_dot_segment(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// Checks an escape. `rest` is what follows its `%`.
fn check_escape(rest: &[u8]) -> Result<(), Ambiguity> {
    let digit = |at: usize| rest.get(at).and_then(|digit| char::from(*digit).to_digit(16));
    let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(Ambiguity::InvalidEscape) };
    match u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte") {
        b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => Err(Ambiguity::NeedlessEscape),
        b'/' => Err(Ambiguity::EncodedSlash),
        b'\\' => Err(Ambiguity::Backslash),
        b';' => Err(Ambiguity::Parameter),
        ..=0x1f | 0x7f => Err(Ambiguity::ControlCharacter),
        _ => Ok(()),
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
            && !path.match_indices('%').any(|(at, _)| check_escape(&path.as_bytes()[at + 1..]).is_err())
    }

    #[test]
    fn escapes_of_other_characters_than_those_that_need_one_match_no_route() {
        for byte in 0..=255_u8 {
            let is_refused = byte.is_ascii_alphanumeric() || byte.is_ascii_control() || b"-._~/\\;".contains(&byte);
            for path in [format!("/a%{byte:02x}"), format!("/a%{byte:02X}")] {
                assert_eq!(comparable(&path).is_err(), is_refused, "{path}");
            }
        }
        assert!(["/%", "/%a", "/%zz", "/%2"].iter().all(|path| comparable(path).is_err()));
    }

    #[test]
    fn listed_literal_is_one_that_requests_match() {
        for literal in ["things:purge", "r%C3%A9sum%c3%a9", "%40admin", "a%20b", "%7Bid%7D", "100%25"] {
            assert_eq!(literal_error(literal, false), None, "{literal}");
        }
        for (literal, reason) in [
            ("a%", "without two hexadecimal digits"),
            ("a%zz", "without two hexadecimal digits"),
            ("%61", "needs none"),
            ("a%2Db", "needs none"),
            ("a%2fb", "needs `encoded_slash: pass`"),
            ("a%0A", "no path with one matches"),
            ("a;b", "has a `;`"),
            ("%C3", "no UTF-8"),
            ("%EF%BF%BD", "no UTF-8"),
        ] {
            assert!(literal_error(literal, false).is_some_and(|error| error.contains(reason)), "{literal}");
        }
        assert_eq!(literal_error("a%2fb", true), None);
    }

    proptest! {
        #[test]
        fn comparable_paths_are_those_of_the_rules(path in r"([/.]{0,3}|[a\\;%/]|%[0-9a-g]{0,2}){0,8}") {
            prop_assert_eq!(comparable(&path).is_ok(), is_plain_by_the_rules(&path), "{}", path);
        }
    }
}
