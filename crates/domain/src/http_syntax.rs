//! Byte sets and sizes of HTTP heads, shared by all that read or write one: `transport` on the bytes of requests,
//! `forward` on parsed heads, `upstream` on the bytes of responses.
//!
//! Each set is defined here once, so that no two readers of the same head can disagree on it.

use std::borrow::Cow;
use std::fmt;

/// The largest `Content-Length`. The HTTP library counts in 64 bits, and means bodies without a length by the
/// two highest numbers.
pub const MAX_CONTENT_LENGTH: u64 = u64::MAX - 2;

/// Bytes of a method at most. No registered method is longer than 17 bytes (`UPDATEREDIRECTREF`); servers behind the
/// gateway have limits of their own.
pub const MAX_METHOD: usize = 24;

/// `tchar` (RFC 9110, section 5.6.2): the bytes of methods and field names.
const TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");
/// The bytes of a request target: those that RFC 3986 allows, and the braces, brackets and bars that clients also send.
/// Never a fragment, a quote, an angle bracket, a control byte or a byte above ASCII.
const TARGET: [bool; 256] = alphanumeric_and(b"!$%&'()*+,-./:;=?@[\\]^_{|}~");
/// The byte that a query may have beside them: browsers send it as it is (URL Standard, query percent-encode set).
const BACKTICK: u8 = b'`';
/// The bytes of plain field names: letters, digits and `-`.
const PLAIN: [bool; 256] = alphanumeric_and(b"-");
/// Classes of the bytes of field names: bits that all bytes of a name have in common.
const NAME: [u8; 256] = name_classes();
/// Class of the bytes of a token.
const IN_TOKEN: u8 = 1;
/// Class of the bytes of a plain name.
const IN_PLAIN: u8 = 2;

/// The bytes of host names: letters, digits, `-`, `.` and, though no domain has it, `_`.
const HOST_NAME: [bool; 256] = alphanumeric_and(b"-._");
/// Digits of a port at most.
const MAX_PORT_DIGITS: usize = 5;

/// True if the bytes are a token (RFC 9110, section 5.6.2): a method or a field name.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all_in(&TOKEN, bytes)
}

/// Reads the name with which a field's line begins: a token, and a colon behind it. Returns its length, and whether it
/// is plain; `None` when there is no such name.
pub fn scan_name(line: &[u8]) -> Option<(usize, bool)> {
    let length = line.iter().position(|byte| *byte == b':').filter(|length| *length > 0)?;
    let all = |classes: u8, byte: &u8| classes & NAME[usize::from(*byte)];
    let classes = line[..length].iter().fold(IN_TOKEN | IN_PLAIN, all);
    (classes & IN_TOKEN != 0).then_some((length, classes & IN_PLAIN != 0))
}

/// Byte that a request target may not have as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {} of the target is {}: percent-encode it as %{byte:02X}", at + 1, ByteName(*byte))]
pub struct InvalidTargetByte {
    /// The byte.
    pub byte: u8,
    /// Its place in the target; 0 is the first one.
    pub at: usize,
}

/// Writes a byte as people read it.
struct ByteName(u8);

impl fmt::Display for ByteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b' ' => f.write_str("a space"),
            byte if byte.is_ascii_graphic() => write!(f, "`{}`", char::from(byte)),
            byte => write!(f, "0x{byte:02X}"),
        }
    }
}

/// Checks that a request target consists of bytes that every server reads in the same way.
///
/// # Errors
/// [`InvalidTargetByte`]: the first that does not.
pub fn check_target(bytes: &[u8]) -> Result<(), InvalidTargetByte> {
    if all_in(&TARGET, bytes) { Ok(()) } else { check_rare_target(bytes) }
}

#[cold]
fn check_rare_target(bytes: &[u8]) -> Result<(), InvalidTargetByte> {
    let query = bytes.iter().position(|byte| *byte == b'?').unwrap_or(bytes.len());
    let is_valid = |at: usize, byte: u8| TARGET[usize::from(byte)] || byte == BACKTICK && at > query;
    let invalid = bytes.iter().enumerate().find(|(at, byte)| !is_valid(*at, **byte));
    invalid.map_or(Ok(()), |(at, byte)| Err(InvalidTargetByte { byte: *byte, at }))
}

/// True if a field name consists of letters, digits and `-` alone. Some servers fold other characters: `X_User_Id` and
/// `X-User-Id` both become `HTTP_X_USER_ID`.
pub fn is_plain_name(name: &[u8]) -> bool {
    all_in(&PLAIN, name)
}

/// A field name as servers that fold other characters than letters and digits read it: with `-` in their place.
pub fn folded_name(name: &str) -> Cow<'_, str> {
    if is_plain_name(name.as_bytes()) {
        return name.into();
    }
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect::<String>().into()
}

/// True if the bytes are a host name or IPv4 address as nearly all `Host` fields have it, with or without a port. Other
/// hosts, such as addresses in brackets, may be valid all the same.
pub fn is_host_name(bytes: &[u8]) -> bool {
    let name = bytes.iter().position(|byte| *byte == b':').map_or(bytes, |colon| &bytes[..colon]);
    let is_port = |port: &[u8]| (1..=MAX_PORT_DIGITS).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    let has_port = || bytes.get(name.len() + 1..).is_some_and(is_port);
    !name.is_empty() && all_in(&HOST_NAME, name) && (name.len() == bytes.len() || has_port())
}

/// True if the bytes are a field value (RFC 9110, section 5.5): visible characters, space, tab, and bytes above ASCII,
/// which are opaque.
pub fn is_field_value(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |valid, byte| valid & is_field_value_byte(*byte))
}

/// True if a field value may contain the byte.
pub fn is_field_value_byte(byte: u8) -> bool {
    ((byte >= b' ') | (byte == b'\t')) & (byte != 0x7f)
}

/// The value of a field without the spaces and tabs around it (RFC 9110, section 5.6.3).
pub fn trim_whitespace(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// The number that a `Content-Length` holds (RFC 9110, section 8.6): digits alone, no sign, no list, and no more than
/// [`MAX_CONTENT_LENGTH`]. `None` for anything else.
pub fn parse_content_length(value: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let number = value.iter().try_fold(0_u64, |number, byte| number.checked_mul(10)?.checked_add(digit(byte)?));
    number.filter(|number| !value.is_empty() && *number <= MAX_CONTENT_LENGTH)
}

/// Without an early exit: the loop has no branch, and nearly all input is valid.
fn all_in(set: &[bool; 256], bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |valid, byte| valid & set[usize::from(*byte)])
}

const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        set[byte] = byte < 128 && (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut i = 0;
    while i < others.len() {
        set[others[i] as usize] = true;
        i += 1;
    }
    set
}

const fn name_classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if TOKEN[byte] {
            classes[byte] = if PLAIN[byte] { IN_TOKEN | IN_PLAIN } else { IN_TOKEN };
        }
        byte += 1;
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanned_name_is_a_token_before_a_colon() {
        for byte in 0..=255_u8 {
            let scanned = scan_name(&[b'a', byte, b':', b' ']);
            let expected = match (is_token(&[byte]), byte) {
                (true, _) => Some((2, is_plain_name(&[byte]))),
                (false, b':') => Some((1, true)),
                (false, _) => None,
            };
            assert_eq!(scanned, expected, "{byte:#x}");
        }
        for line in ["", ":", ": x", "name", "na me: x", " name: x"] {
            assert_eq!(scan_name(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn target_bytes_are_visible_ascii_but_for_five() {
        for byte in 0..=255_u8 {
            let in_path = byte.is_ascii_graphic() && !b"#\"<>`".contains(&byte);
            assert_eq!(check_target(&[b'/', byte]).is_ok(), in_path, "{byte:#x}");
            let in_query = in_path || byte == b'`';
            let expected = if in_query { Ok(()) } else { Err(InvalidTargetByte { byte, at: 3 }) };
            assert_eq!(check_target(&[b'/', b'?', b'`', byte, b'a']), expected, "{byte:#x}");
        }
        let text = |target: &str| check_target(target.as_bytes()).unwrap_err().to_string();
        assert_eq!(text("/a?b=\"c\""), "byte 6 of the target is `\"`: percent-encode it as %22");
        assert_eq!(text("/a b"), "byte 3 of the target is a space: percent-encode it as %20");
        assert_eq!(text("/\u{e4}"), "byte 2 of the target is 0xC3: percent-encode it as %C3");
    }

    #[test]
    fn token_and_plain_name_agree_with_the_http_library() {
        for byte in 0..=255_u8 {
            let name = http::HeaderName::from_bytes(&[byte]);
            assert_eq!(is_token(&[byte]), name.is_ok(), "{byte:#x}");
            assert!(is_token(&[byte]) || !is_plain_name(&[byte]), "{byte:#x}");
        }
        assert!(!is_token(b""));
    }

    #[test]
    fn field_value_bytes_agree_with_the_http_library() {
        for byte in 0..=255_u8 {
            assert_eq!(is_field_value(&[byte]), http::HeaderValue::from_bytes(&[byte]).is_ok(), "{byte:#x}");
        }
    }

    #[test]
    fn host_name_has_a_name_and_may_have_a_port() {
        for host in ["h", "127.0.0.1:8080", "a-b.example.com", "a_b:1"] {
            assert!(is_host_name(host.as_bytes()), "{host:?}");
        }
        for host in ["", ":80", "h:", "h:123456", "h:8a", "h:1:2", "u@h", "a b", "[::1]", "h/", "\u{e4}"] {
            assert!(!is_host_name(host.as_bytes()), "{host:?}");
        }
    }

    #[test]
    fn content_length_is_digits_alone() {
        assert_eq!(parse_content_length(b"0012"), Some(12));
        assert_eq!(parse_content_length(b"18446744073709551613"), Some(MAX_CONTENT_LENGTH));
        for value in ["", "+1", "-1", "1,1", "1 ", "0x1", "18446744073709551614", "18446744073709551616"] {
            assert_eq!(parse_content_length(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(trim_whitespace(b" \t1 2\t "), b"1 2");
        assert_eq!(trim_whitespace(b" \t"), b"");
    }
}
