//! Strict scanner of HTTP/1 request heads (RFC 9112), on the bytes as they came: what keeps request smuggling out, such
//! as `Content-Length` with `Transfer-Encoding` (CL.TE).
//!
//! The HTTP library is lenient where a server behind the gateway may read differently, and keeps no trace of it. So no
//! head reaches the library that is not, byte for byte, valid by section 2.1 of the RFC: lines end in CRLF, never in a
//! bare LF; no line is folded; no space stands before a colon; no control byte is in a value; there is one
//! `Content-Length` of digits, or `Transfer-Encoding: chunked` and nothing else, never both.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use crate::transport::serving::HeadError;
use crate::transport::settings::Settings;
use domain::head_fields::{CredentialFields, FieldSet};
use domain::http_syntax::{self, MAX_METHOD, is_field_value, is_token, parse_content_length, trim_whitespace};

/// Empty lines before a request line that are accepted (section 2.2): some old clients send one after a body.
const MAX_EMPTY: usize = 2;
/// Bytes of a request line beside method and target.
const LINE_REST: usize = " ".len() + " HTTP/1.1\r\n".len();

/// Sizes that a head may have.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the head.
    pub head: usize,
    /// Number of fields.
    pub fields: usize,
    /// Bytes of the request target.
    pub target: usize,
}

impl HeadLimits {
    /// The sizes of these settings.
    pub fn of(settings: &Settings) -> Self {
        Self { head: settings.max_head, fields: settings.max_fields, target: settings.max_target }
    }
}

/// Framing of a request body (section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// `Content-Length`, in bytes; 0 for a request without a body.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A complete and valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedHead {
    /// Bytes of the head, the empty line at its end included.
    pub length: usize,
    /// Framing of the body.
    pub framing: BodyFraming,
    /// Fields that are acted on.
    pub fields: FieldSet,
}

/// Progress of the scan of a head. When more bytes have come, the scan goes on at the first line that was incomplete.
#[derive(Debug, Default)]
pub struct HeadScanner {
    /// Offset of the first incomplete line.
    at: usize,
    /// Empty lines before the request line.
    empty: usize,
    /// The version of the request line, once that has been read.
    version: Option<MinorVersion>,
    /// Number of fields.
    count: usize,
    fields: FieldSet,
    content_length: Option<u64>,
    is_chunked: bool,
}

/// The minor version of HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MinorVersion {
    Zero,
    One,
}

impl HeadScanner {
    /// Scans on; `bytes` begin where the head does, and `credentials` are the same for the whole head. `None` when the
    /// head is not complete yet.
    ///
    /// # Errors
    /// A [`HeadError`], as soon as it is certain, whatever comes after.
    pub fn scan(
        &mut self,
        bytes: &[u8],
        limits: &HeadLimits,
        credentials: &CredentialFields,
    ) -> Result<Option<ScannedHead>, HeadError> {
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.at..]) {
            let end = self.at + found;
            if end >= limits.head {
                return Err(self.too_large(end - self.at, limits));
            }
            let line = bytes[self.at..end].strip_suffix(b"\r").ok_or(HeadError::Malformed)?;
            self.at = end + 1;
            match (self.version, line) {
                (None, []) if self.empty < MAX_EMPTY => self.empty += 1,
                (None, line) => self.version = Some(scan_request_line(line, limits)?),
                (Some(_), []) => return Ok(Some(self.head())),
                (Some(version), line) => self.scan_field(line, version, limits, credentials)?,
            }
        }
        // An incomplete line is refused as soon as it is too long, and not only when its end has come.
        let incomplete = bytes.len() - self.at;
        let is_too_long = self.version.is_none() && incomplete > limits.target + MAX_METHOD + LINE_REST;
        if is_too_long || bytes.len() >= limits.head { Err(self.too_large(incomplete, limits)) } else { Ok(None) }
    }

    /// The error for a line of this length that exceeds a limit: if it is the request line, the target does.
    fn too_large(&self, line: usize, limits: &HeadLimits) -> HeadError {
        match self.version {
            None if line > limits.target => HeadError::TargetTooLong,
            _ => HeadError::HeadTooLarge,
        }
    }

    fn scan_field(
        &mut self,
        line: &[u8],
        version: MinorVersion,
        limits: &HeadLimits,
        credentials: &CredentialFields,
    ) -> Result<(), HeadError> {
        self.count += 1;
        if self.count > limits.fields {
            return Err(HeadError::HeadTooLarge);
        }
        // A folded line begins with a blank and has no token before its colon: it is refused here, too.
        let (length, is_plain) = http_syntax::scan_name(line).ok_or(HeadError::Malformed)?;
        let value = &line[length + 1..];
        if !is_field_value(value) {
            return Err(HeadError::Malformed);
        }
        let field = FieldSet::of_scanned_name(&line[..length], is_plain, credentials);
        self.fields = self.fields.with_field(field);
        match field {
            FieldSet::CONTENT_LENGTH => self.scan_content_length(value),
            FieldSet::TRANSFER_ENCODING => self.scan_transfer_encoding(value, version),
            _ => Ok(()),
        }
    }

    fn scan_content_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        let length = parse_content_length(trim_whitespace(value)).ok_or(HeadError::Malformed)?;
        // Even an equal second length is refused: no client of good faith sends it.
        let is_second = self.content_length.replace(length).is_some();
        if self.is_chunked || is_second { Err(HeadError::Malformed) } else { Ok(()) }
    }

    fn scan_transfer_encoding(&mut self, value: &[u8], version: MinorVersion) -> Result<(), HeadError> {
        // HTTP/1.0 has no transfer encodings: a server of that version would read on to the end of the connection.
        let is_only = !self.is_chunked && self.content_length.is_none() && version == MinorVersion::One;
        self.is_chunked = true;
        let is_plain = trim_whitespace(value).eq_ignore_ascii_case(b"chunked");
        if is_only && is_plain { Ok(()) } else { Err(HeadError::Malformed) }
    }

    /// The head that has been scanned to its end.
    fn head(&self) -> ScannedHead {
        let framing =
            if self.is_chunked { BodyFraming::Chunked } else { BodyFraming::Length(self.content_length.unwrap_or(0)) };
        ScannedHead { length: self.at, framing, fields: self.fields }
    }
}

/// Reads bytes that are one whole head, with the fields that are acted on. A request that does not come over a
/// connection is written as such bytes, so that there is one reader of heads.
///
/// # Errors
/// [`HeadError`]: as for a head of a connection; also when it does not end where the bytes do.
pub fn read(bytes: Bytes, limits: &HeadLimits, credentials: &CredentialFields) -> Result<(Parts, FieldSet), HeadError> {
    let scanned = HeadScanner::default().scan(&bytes, limits, credentials)?;
    let scanned = scanned.filter(|head| head.length == bytes.len()).ok_or(HeadError::Malformed)?;
    let head = parse_scanned(&bytes).ok_or(HeadError::Malformed)?;
    Ok((head, scanned.fields))
}

/// Parses a head that was scanned. Values share its bytes.
fn parse_scanned(bytes: &Bytes) -> Option<Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
    let mut words = lines.find(|line| !line.is_empty())?.split(|byte| *byte == b' ');
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = Method::from_bytes(words.next()?).ok()?;
    head.uri = Uri::from_maybe_shared(bytes.slice_ref(words.next()?)).ok()?;
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_at(memchr::memchr(b':', line)?);
        let value = bytes.slice_ref(trim_whitespace(&value[1..]));
        head.headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_maybe_shared(value).ok()?);
    }
    Some(head)
}

/// Scans `method SP request-target SP HTTP-version` (section 3). A space too many is one of the target.
fn scan_request_line(line: &[u8], limits: &HeadLimits) -> Result<MinorVersion, HeadError> {
    let malformed = HeadError::Malformed;
    let (method, rest) = line.split_at(memchr::memchr(b' ', line).ok_or(malformed)?);
    let (target, version) = rest[1..].split_at(memchr::memrchr(b' ', &rest[1..]).ok_or(malformed)?);
    if method.len() > MAX_METHOD || !is_token(method) {
        return Err(malformed);
    }
    if target.len() > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    let version = match version {
        b" HTTP/1.1" => MinorVersion::One,
        b" HTTP/1.0" => MinorVersion::Zero,
        _ => return Err(malformed),
    };
    check_request_target(method, target)?;
    Ok(version)
}

/// Validates a target. The origin form, which nearly all requests have, is checked by its bytes alone; the rarer
/// forms (section 3.2) also by the parser that reads them later.
fn check_request_target(method: &[u8], target: &[u8]) -> Result<(), HeadError> {
    let is_valid = match target {
        [b'/', ..] => true,
        b"*" => method == b"OPTIONS",
        _ => http::Uri::try_from(target).is_ok(),
    };
    if !is_valid {
        return Err(HeadError::Malformed);
    }
    http_syntax::check_target(target).map_err(HeadError::Target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::http_syntax::InvalidTargetByte;

    const LIMITS: HeadLimits = HeadLimits { head: 1024, fields: 4, target: 100 };

    fn scan(head: &str) -> Result<Option<BodyFraming>, HeadError> {
        let whole = HeadScanner::default().scan(head.as_bytes(), &LIMITS, &CredentialFields::NONE);
        // Byte by byte, the result is the same.
        let mut scanner = HeadScanner::default();
        let piecewise = (1..=head.len())
            .map(|length| scanner.scan(&head.as_bytes()[..length], &LIMITS, &CredentialFields::NONE))
            .find(|result| !matches!(result, Ok(None)))
            .unwrap_or(Ok(None));
        assert_eq!(whole, piecewise, "{head:?}");
        whole.map(|head| head.map(|head| head.framing))
    }

    fn with(fields: &str) -> Result<Option<BodyFraming>, HeadError> {
        scan(&format!("POST /a HTTP/1.1\r\n{fields}\r\n"))
    }

    #[test]
    fn body_framing_is_found() {
        assert_eq!(with("Host: h\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(with("content-LENGTH: \t12 \r\n"), Ok(Some(BodyFraming::Length(12))));
        assert_eq!(with("Transfer-Encoding: Chunked\r\n"), Ok(Some(BodyFraming::Chunked)));
        assert_eq!(scan("\r\n\r\nGET / HTTP/1.0\r\n\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(scan("GET http://h:80/a?b HTTP/1.1\r\n\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(scan("OPTIONS * HTTP/1.1\r\n\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(scan("GET / HTTP/1.1\r\nHost: h\r\n"), Ok(None));
        assert_eq!(with("X: \u{e4}\u{80}\r\nY:\r\n"), Ok(Some(BodyFraming::Length(0))));
    }

    #[test]
    fn fields_that_are_acted_on_are_found() {
        let found = |fields: &str| {
            let head = format!("GET / HTTP/1.1\r\n{fields}\r\n");
            let credentials = CredentialFields::new(vec!["X-API-Key".parse().unwrap()]);
            HeadScanner::default().scan(head.as_bytes(), &LIMITS, &credentials).unwrap().unwrap().fields
        };
        assert_eq!(found("Accept: x\r\nX-Trace: Host:\r\n"), FieldSet::NONE);
        assert_eq!(found("HOST: a\r\nhost: b\r\n"), FieldSet::HOST.with(FieldSet::SECOND_HOST));
        assert_eq!(found("x_user_id: a\r\nX-User-Id: a\r\n"), FieldSet::ODD_NAME.with(FieldSet::UNTRUSTED));
        assert_eq!(found("Cookie:\r\nConnection:x\r\n"), FieldSet::COOKIE.with(FieldSet::CONNECTION));
        assert_eq!(found("X-API-KEY: a\r\nX-API-Keys: b\r\n"), FieldSet::CREDENTIAL);
        assert_eq!(found("x.api_key:\r\n"), FieldSet::CREDENTIAL.with(FieldSet::ODD_NAME));
    }

    #[test]
    fn framing_that_two_servers_could_read_differently_is_refused() {
        let refused: [&str; 35] = include!("refused_fields.in");
        for fields in refused {
            assert_eq!(with(fields), Err(HeadError::Malformed), "{fields:?}");
        }
    }

    #[test]
    fn invalid_request_lines_are_refused() {
        let refused: [&str; 19] = include!("refused_lines.in");
        for line in refused {
            let scanned = scan(&format!("{line}Host: h\r\n\r\n"));
            assert!(matches!(scanned, Err(HeadError::Malformed | HeadError::Target(_))), "{line:?}");
        }
    }

    #[test]
    fn refused_byte_of_a_target_is_named() {
        let refused = |target: &str| scan(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        for (target, byte, at) in [("/a?b=\"c\"", b'"', 5), ("/a b", b' ', 2), ("/a#b", b'#', 2), ("/`", b'`', 1)] {
            assert_eq!(refused(target), Err(HeadError::Target(InvalidTargetByte { byte, at })), "{target}");
        }
        assert_eq!(refused("/a?b=`c`"), Ok(Some(BodyFraming::Length(0))));
    }

    #[test]
    fn sizes_are_limited() {
        let long = "x".repeat(101);
        assert_eq!(scan(&format!("GET /{long} HTTP/1.1\r\n\r\n")), Err(HeadError::TargetTooLong));
        assert_eq!(scan(&"x".repeat(200)), Err(HeadError::TargetTooLong));
        assert_eq!(with(&"X: 1\r\n".repeat(5)), Err(HeadError::HeadTooLarge));
        assert_eq!(with(&format!("X: {}\r\n", "x".repeat(1100))), Err(HeadError::HeadTooLarge));
        assert_eq!(with(&format!("X: {}", "x".repeat(1100))), Err(HeadError::HeadTooLarge));
    }

    #[test]
    fn whole_head_is_read_as_it_was_scanned() {
        let read = |head: &'static str| read(Bytes::from_static(head.as_bytes()), &LIMITS, &CredentialFields::NONE);
        let (head, fields) = read("M-SEARCH /a?b HTTP/1.1\r\nHost: h\r\nA:\r\na: \tb c \r\n\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.uri.to_string()), ("M-SEARCH", "/a?b".to_owned()));
        assert_eq!((head.headers["host"].as_bytes(), fields), (&b"h"[..], FieldSet::HOST));
        assert_eq!(head.headers.get_all("a").iter().collect::<Vec<_>>(), ["", "b c"]);
        for other in ["GET / HTTP/1.1\r\n\r\nX", "GET / HTTP/1.1\r\n", "GET / HTTP/3.0\r\n\r\n", ""] {
            assert_eq!(read(other).err(), Some(HeadError::Malformed), "{other:?}");
        }
    }

    #[test]
    fn accepted_targets_are_parsed_by_the_library() {
        // No byte is accepted in a path or query that the library's parser would refuse.
        for byte in 0..=255_u8 {
            for target in [vec![b'/', byte], vec![b'/', b'?', byte]] {
                if check_request_target(b"GET", &target).is_ok() {
                    assert!(http::Uri::try_from(target).is_ok(), "{byte:#x}");
                }
            }
        }
    }
}
