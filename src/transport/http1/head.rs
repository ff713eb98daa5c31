//! The strict reading of an HTTP/1 request head (RFC 9112), on the bytes as they came.
//!
//! The HTTP library behind is lenient where a server behind the gateway may read otherwise, and keeps no trace of it. So
//! no head reaches the library that is not, byte for byte, what section 2.1 of the RFC says: lines end in CRLF, never in
//! a bare LF; nothing is folded; no space stands before a colon; no control byte in a value; one `Content-Length` of
//! digits, or `Transfer-Encoding: chunked` and nothing else, never both.

use crate::http_syntax::{self, MAX_METHOD, is_field_value, is_token, parse_content_length, trim_whitespace};
use crate::transport::serving::HeadError;

/// Empty lines before a request line that are forgiven (section 2.2): some old clients send one after a body.
const MAX_EMPTY: usize = 2;
/// What a request line has beside method and target.
const LINE_REST: usize = " ".len() + " HTTP/1.1\r\n".len();

/// The sizes that are allowed.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of a head.
    pub head: usize,
    /// Its fields.
    pub fields: usize,
    /// Bytes of the request target.
    pub target: usize,
}

/// How the body is delimited (section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none, or it has this many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A whole head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedHead {
    /// Its bytes, the empty line at its end included.
    pub length: usize,
    /// How its body is delimited.
    pub framing: BodyFraming,
}

/// A head being read. It is asked again whenever more has come, and goes on where it was.
#[derive(Debug, Default)]
pub struct HeadScanner {
    /// Where the line begins that has not ended yet.
    at: usize,
    /// Empty lines before the request line.
    empty: usize,
    line: Option<Minor>,
    fields: usize,
    length: Option<u64>,
    chunked: bool,
}

/// The minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Minor {
    Zero,
    One,
}

impl HeadScanner {
    /// Reads on; `bytes` begin where the head does. Nothing when the head has not ended yet.
    ///
    /// # Errors
    /// What is wrong with it, as soon as that is certain.
    pub fn scan(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Option<ScannedHead>, HeadError> {
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.at..]) {
            let end = self.at + found;
            if end >= limits.head {
                return Err(self.too_large(end - self.at, limits));
            }
            let line = bytes[self.at..end].strip_suffix(b"\r").ok_or(HeadError::Malformed)?;
            self.at = end + 1;
            match (self.line, line) {
                (None, []) if self.empty < MAX_EMPTY => self.empty += 1,
                (None, line) => self.line = Some(request_line(line, limits)?),
                (Some(_), []) => return Ok(Some(ScannedHead { length: self.at, framing: self.framing() })),
                (Some(minor), line) => self.field(line, minor, limits)?,
            }
        }
        let waiting = bytes.len() - self.at;
        let too_long = self.line.is_none() && waiting > limits.target + MAX_METHOD + LINE_REST;
        if too_long || bytes.len() >= limits.head { Err(self.too_large(waiting, limits)) } else { Ok(None) }
    }

    fn too_large(&self, line: usize, limits: &HeadLimits) -> HeadError {
        match self.line {
            None if line > limits.target => HeadError::TargetTooLong,
            _ => HeadError::HeadTooLarge,
        }
    }

    fn field(&mut self, line: &[u8], minor: Minor, limits: &HeadLimits) -> Result<(), HeadError> {
        self.fields += 1;
        if self.fields > limits.fields {
            return Err(HeadError::HeadTooLarge);
        }
        let colon = memchr::memchr(b':', line).ok_or(HeadError::Malformed)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !is_token(name) || !is_field_value(value) {
            return Err(HeadError::Malformed);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length(value)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding(value, minor)
        } else {
            Ok(())
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        let length = parse_content_length(trim_whitespace(value)).ok_or(HeadError::Malformed)?;
        // Even an equal second one is refused: no client of good faith sends it.
        if self.chunked || self.length.replace(length).is_some() { Err(HeadError::Malformed) } else { Ok(()) }
    }

    fn transfer_encoding(&mut self, value: &[u8], minor: Minor) -> Result<(), HeadError> {
        let only = !self.chunked && self.length.is_none() && minor == Minor::One;
        self.chunked = true;
        if only && trim_whitespace(value).eq_ignore_ascii_case(b"chunked") { Ok(()) } else { Err(HeadError::Malformed) }
    }

    fn framing(&self) -> BodyFraming {
        if self.chunked { BodyFraming::Chunked } else { BodyFraming::Length(self.length.unwrap_or(0)) }
    }
}

/// `method SP request-target SP HTTP-version` (section 3).
fn request_line(line: &[u8], limits: &HeadLimits) -> Result<Minor, HeadError> {
    let malformed = HeadError::Malformed;
    let (method, rest) = line.split_at(memchr::memchr(b' ', line).ok_or(malformed)?);
    let (target, version) = rest[1..].split_at(memchr::memchr(b' ', &rest[1..]).ok_or(malformed)?);
    if method.len() > MAX_METHOD || !is_token(method) {
        return Err(malformed);
    }
    if target.len() > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    let minor = match version {
        b" HTTP/1.1" => Minor::One,
        b" HTTP/1.0" => Minor::Zero,
        _ => return Err(malformed),
    };
    if is_request_target(method, target) { Ok(minor) } else { Err(malformed) }
}

/// Origin form is checked by itself; the rarer forms (section 3.2) are left to the one who reads them.
fn is_request_target(method: &[u8], target: &[u8]) -> bool {
    match target {
        [b'/', ..] => http_syntax::is_target(target),
        b"*" => method == b"OPTIONS",
        _ => http_syntax::is_target(target) && http::Uri::try_from(target).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head: 1024, fields: 4, target: 100 };

    fn read(head: &str) -> Result<Option<BodyFraming>, HeadError> {
        let whole = HeadScanner::default().scan(head.as_bytes(), &LIMITS);
        // Byte by byte, it reads the same.
        let mut scanner = HeadScanner::default();
        let piecewise = (1..=head.len())
            .map(|length| scanner.scan(&head.as_bytes()[..length], &LIMITS))
            .find(|read| !matches!(read, Ok(None)))
            .unwrap_or(Ok(None));
        assert_eq!(whole, piecewise, "{head:?}");
        whole.map(|head| head.map(|head| head.framing))
    }

    fn with(fields: &str) -> Result<Option<BodyFraming>, HeadError> {
        read(&format!("POST /a HTTP/1.1\r\n{fields}\r\n"))
    }

    #[test]
    fn knows_how_a_body_is_framed() {
        assert_eq!(with("Host: h\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(with("content-LENGTH: \t12 \r\n"), Ok(Some(BodyFraming::Length(12))));
        assert_eq!(with("Transfer-Encoding: Chunked\r\n"), Ok(Some(BodyFraming::Chunked)));
        assert_eq!(read("\r\n\r\nGET / HTTP/1.0\r\n\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(read("GET http://h:80/a?b HTTP/1.1\r\n\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(read("OPTIONS * HTTP/1.1\r\n\r\n"), Ok(Some(BodyFraming::Length(0))));
        assert_eq!(read("GET / HTTP/1.1\r\nHost: h\r\n"), Ok(None));
        assert_eq!(with("X: \u{e4}\u{80}\r\nY:\r\n"), Ok(Some(BodyFraming::Length(0))));
    }

    #[test]
    fn refuses_every_framing_that_two_servers_could_read_differently() {
        for fields in [
            "Transfer-Encoding: ,chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked,\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: \"chunked\"\r\n",
            "Transfer-Encoding: chunked;q=1\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
            "Transfer-Encoding:\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: -3\r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length: 3 3\r\n",
            "Content-Length:\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length : 3\r\n",
            " Content-Length: 3\r\n",
            "X: 1\r\n Content-Length: 3\r\n",
            "X: 1\r\n\tfolded\r\n",
            "X: 1\nContent-Length: 3\r\n",
            "X: 1\rContent-Length: 3\r\n",
            "X: \0\r\n",
            "X: \u{7f}\r\n",
            "X\r\n",
            ": 1\r\n",
            "X Y: 1\r\n",
            "X\u{e4}: 1\r\n",
        ] {
            assert_eq!(with(fields), Err(HeadError::Malformed), "{fields:?}");
        }
        let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(read(old), Err(HeadError::Malformed));
    }

    #[test]
    fn refuses_request_lines_that_are_none() {
        for line in [
            "GET /\r\n",
            "GET  / HTTP/1.1\r\n",
            "GET / HTTP/1.1 \r\n",
            "GET / HTTP/1.2\r\n",
            "GET / HTTP/2.0\r\n",
            "GET / http/1.1\r\n",
            "GET\t/ HTTP/1.1\r\n",
            " GET / HTTP/1.1\r\n",
            "G(T / HTTP/1.1\r\n",
            "GET /a#b HTTP/1.1\r\n",
            "GET /a\"b HTTP/1.1\r\n",
            "GET /\u{e4} HTTP/1.1\r\n",
            "GET /a\u{1}b HTTP/1.1\r\n",
            "GET * HTTP/1.1\r\n",
            "GET / HTTP/1.1\n",
            "\n",
            "\r\n\r\n\r\n",
            "AAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n",
        ] {
            assert_eq!(read(&format!("{line}Host: h\r\n\r\n")), Err(HeadError::Malformed), "{line:?}");
        }
    }

    #[test]
    fn bounds_what_it_reads() {
        let long = "x".repeat(101);
        assert_eq!(read(&format!("GET /{long} HTTP/1.1\r\n\r\n")), Err(HeadError::TargetTooLong));
        assert_eq!(HeadScanner::default().scan("x".repeat(200).as_bytes(), &LIMITS), Err(HeadError::TargetTooLong));
        assert_eq!(with(&"X: 1\r\n".repeat(5)), Err(HeadError::HeadTooLarge));
        assert_eq!(with(&format!("X: {}\r\n", "x".repeat(1100))), Err(HeadError::HeadTooLarge));
        assert_eq!(with(&format!("X: {}", "x".repeat(1100))), Err(HeadError::HeadTooLarge));
    }

    #[test]
    fn what_it_lets_pass_the_library_can_read() {
        // The tables of targets: no byte passes here at which the library would give up, in path or query.
        for byte in 0..=255_u8 {
            for target in [vec![b'/', byte], vec![b'/', b'?', byte]] {
                if is_request_target(b"GET", &target) {
                    assert!(http::Uri::try_from(target).is_ok(), "{byte:#x}");
                }
            }
        }
    }
}
