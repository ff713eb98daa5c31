//! Scan of the heads of a response, line by line, before the HTTP library reads them.
//!
//! The library is strict about names, values and status lines, and lenient where this scan is not: it accepts a bare
//! line feed as the end of a line, skips empty lines before a head, and skips any number of interim responses (1xx).
//! It could report those (`on_informational`), but only by a callback that is allocated with every request and cannot
//! end the exchange. A scan of the bytes is exact, costs one search for each line of a head and nothing for a body,
//! and allocates nothing. It notes the fields that are acted on, so that the head need not be searched for others.
//!
//! The sizes of response heads are defined here, for HTTP/1.1 and HTTP/2.

use domain::head_fields::FieldSet;
use domain::http_syntax;

/// Bytes of all heads of one response, interim ones included; on HTTP/2 of each head, as that protocol counts them.
pub(crate) const MAX_HEAD: usize = 32 * 1024;
/// Fields of a response's head: the limit that the HTTP library has on HTTP/1.1 already.
pub(crate) const MAX_FIELDS: usize = 100;
/// Interim responses before the final one. Servers send one or two.
pub(crate) const MAX_INTERIM: u8 = 16;
/// Offset of the status code in `HTTP/1.1 200`.
const FIRST_DIGIT: usize = 9;

/// Defect of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadScanError {
    #[error("a line of the response's head does not end in CR LF")]
    BareLineEnd,
    #[error("there is an empty line before the response")]
    EmptyLine,
    #[error("the response's head is too large")]
    TooLarge,
    #[error("there are too many interim responses")]
    TooManyInterim,
}

/// Progress through the heads of one response.
///
/// - Another head follows an interim head. Bytes after a final head, or after 101, are not scanned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadScan {
    /// Bytes of all heads so far.
    bytes: usize,
    interim: u8,
    /// Bytes of the current line so far, without its end.
    line: usize,
    /// True if the last byte was CR.
    after_cr: bool,
    /// True if the first line of the current head has ended.
    in_fields: bool,
    /// Digits of the status code.
    code: [u8; 3],
    /// Fields of the current head so far.
    fields: FieldSet,
    /// True if a line of the current head came in pieces, or is none of a field: `fields` may lack one.
    has_unread_line: bool,
}

impl HeadScan {
    /// Scans the next bytes. Returns true when the last head has ended.
    pub(crate) fn advance(&mut self, mut bytes: &[u8]) -> Result<bool, HeadScanError> {
        while !bytes.is_empty() {
            if self.after_cr {
                self.count(1)?;
                if bytes[0] != b'\n' {
                    return Err(HeadScanError::BareLineEnd);
                }
                bytes = &bytes[1..];
                self.after_cr = false;
                if self.end_line()? {
                    return Ok(true);
                }
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', bytes);
            let line = &bytes[..end.unwrap_or(bytes.len())];
            self.count(line.len() + usize::from(end.is_some()))?;
            self.advance_line(line, end.is_some());
            let Some(end) = end else { break };
            if bytes[end] == b'\n' {
                return Err(HeadScanError::BareLineEnd);
            }
            self.after_cr = true;
            bytes = &bytes[end + 1..];
        }
        Ok(false)
    }

    /// Fields of the last head that are acted on; none when some of them may have been missed.
    pub(crate) fn fields(&self) -> Option<FieldSet> {
        (!self.has_unread_line).then_some(self.fields)
    }

    fn count(&mut self, bytes: usize) -> Result<(), HeadScanError> {
        self.bytes += bytes;
        if self.bytes > MAX_HEAD { Err(HeadScanError::TooLarge) } else { Ok(()) }
    }

    /// Takes a piece of a line, without its end. `is_last`: the end follows.
    fn advance_line(&mut self, piece: &[u8], is_last: bool) {
        if !self.in_fields {
            self.advance_code(piece);
        } else if self.line == 0 && is_last {
            self.note_field(piece);
        } else {
            self.has_unread_line = true;
        }
        self.line += piece.len();
    }

    /// Copies the digits of the status code that are in a piece of the first line.
    fn advance_code(&mut self, piece: &[u8]) {
        for (index, digit) in self.code.iter_mut().enumerate() {
            let at = (FIRST_DIGIT + index).checked_sub(self.line);
            if let Some(byte) = at.and_then(|at| piece.get(at)) {
                *digit = *byte;
            }
        }
    }

    fn note_field(&mut self, line: &[u8]) {
        match http_syntax::scan_name(line) {
            Some((length, true)) => self.fields = self.fields.with_field(FieldSet::of_response_name(&line[..length])),
            Some((_, false)) => self.fields = self.fields.with_field(FieldSet::ODD_NAME),
            // The empty line at the end, or one that the library will refuse.
            None => self.has_unread_line |= !line.is_empty(),
        }
    }

    /// Returns true at the end of the last head.
    fn end_line(&mut self) -> Result<bool, HeadScanError> {
        let empty = std::mem::take(&mut self.line) == 0;
        match (empty, self.in_fields) {
            (true, false) => Err(HeadScanError::EmptyLine),
            (false, _) => {
                self.in_fields = true;
                Ok(false)
            }
            // 101 ends the exchange of heads: bytes of another protocol follow.
            (true, true) if self.code[0] != b'1' || self.code == *b"101" => Ok(true),
            (true, true) if self.interim == MAX_INTERIM => Err(HeadScanError::TooManyInterim),
            (true, true) => {
                *self = Self { bytes: self.bytes, interim: self.interim + 1, ..Self::default() };
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Result<bool, HeadScanError> {
        let whole = HeadScan::default().advance(text.as_bytes());
        let mut scan = HeadScan::default();
        let mut piecewise = Ok(false);
        for byte in text.bytes() {
            if piecewise == Ok(false) {
                piecewise = scan.advance(&[byte]);
            }
        }
        assert_eq!(whole, piecewise, "{text:?}");
        whole
    }

    #[test]
    fn head_ends_with_its_empty_line() {
        assert_eq!(scan("HTTP/1.1 200 OK\r\na: b\r\n\r\nbody\n\r\n"), Ok(true));
        assert_eq!(scan("HTTP/1.1 200\r\n\r\n"), Ok(true));
        assert_eq!(scan("HTTP/1.1 200 OK\r\na: b\r\n"), Ok(false));
        assert_eq!(scan("HTTP/1.1 101 Switching Protocols\r\n\r\n\n"), Ok(true));
    }

    #[test]
    fn fields_are_those_of_the_final_head() {
        let fields = |pieces: &[&str]| {
            let mut scan = HeadScan::default();
            let ended = pieces.iter().try_fold(false, |_, piece| scan.advance(piece.as_bytes()));
            assert_eq!(ended, Ok(true));
            scan.fields()
        };
        let interim = "HTTP/1.1 103 Early Hints\r\nSet-Cookie: a\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nx_y: 1\r\n\r\n";
        let both = FieldSet::CONTENT_LENGTH.with(FieldSet::ODD_NAME);
        assert_eq!(fields(&[interim, last]), Some(both));
        assert_eq!(fields(&[&(interim.to_owned() + last)]), Some(both));
        for middle in 0..last.len() {
            let known = fields(&[&last[..middle], &last[middle..]]);
            assert!(known.is_none_or(|known| known == both), "{middle}");
        }
        assert_eq!(fields(&["HTTP/1.1 200 OK\r\n", "a: b\r\n\r\n"]), Some(FieldSet::NONE));
        assert_eq!(fields(&["HTTP/1.1 200 OK\r\nset-co", "okie: b\r\n\r\n"]), None);
        assert_eq!(fields(&["HTTP/1.1 200 OK\r\nset-cookie : b\r\n\r\n"]), None);
    }

    #[test]
    fn lines_end_in_cr_lf_only() {
        for text in ["HTTP/1.1 200 OK\n\n", "HTTP/1.1 200 OK\r\na: b\n\r\n", "HTTP/1.1 200 OK\r\na: b\rc: d\r\n\r\n"] {
            assert_eq!(scan(text), Err(HeadScanError::BareLineEnd), "{text:?}");
        }
        assert_eq!(scan("\r\nHTTP/1.1 200 OK\r\n\r\n"), Err(HeadScanError::EmptyLine));
    }

    #[test]
    fn interim_responses_are_counted() {
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        assert_eq!(scan(&format!("{}HTTP/1.1 200 OK\r\n\r\n", interim.repeat(16))), Ok(true));
        assert_eq!(scan(&interim.repeat(17)), Err(HeadScanError::TooManyInterim));
    }

    #[test]
    fn heads_are_bounded_together() {
        let field = |length| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(length));
        let rest = field(0).len();
        assert_eq!(scan(&field(MAX_HEAD - rest)), Ok(true));
        assert_eq!(scan(&field(MAX_HEAD - rest + 1)), Err(HeadScanError::TooLarge));
    }
}
