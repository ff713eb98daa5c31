//! Scan of the heads of a response, byte by byte, before the HTTP library reads them.
//!
//! The library is strict about names, values and status lines, and lenient where this scan is not: it accepts a bare line
//! feed as the end of a line, skips empty lines before a head, and skips any number of interim responses (1xx). It could
//! report those (`on_informational`), but only by a callback that is allocated with every request and cannot end the
//! exchange. A scan of the bytes is exact, costs about a nanosecond for each byte of a head and nothing for a body, and
//! allocates nothing.
//!
//! The sizes of response heads are defined here, for HTTP/1.1 and HTTP/2.

/// Bytes of all heads of one response, interim ones included; on HTTP/2 of each head, as that protocol counts them.
pub(super) const MAX_HEAD: usize = 32 * 1024;
/// Fields of a response's head: the limit that the HTTP library has on HTTP/1.1 already.
pub(super) const MAX_FIELDS: usize = 100;
/// Interim responses before the final one. Servers send one or two.
const MAX_INTERIM: u8 = 16;
/// Offset of the status code in `HTTP/1.1 200`.
const FIRST_DIGIT: usize = 9;

/// Defect of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeadScanError {
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
pub(super) struct HeadScan {
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
}

impl HeadScan {
    /// Scans the next bytes. Returns true when the last head has ended.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<bool, HeadScanError> {
        for byte in bytes {
            self.bytes += 1;
            if self.bytes > MAX_HEAD {
                return Err(HeadScanError::TooLarge);
            }
            match (self.after_cr, *byte) {
                (true, b'\n') => {
                    self.after_cr = false;
                    if self.end_line()? {
                        return Ok(true);
                    }
                }
                (true, _) | (false, b'\n') => return Err(HeadScanError::BareLineEnd),
                (false, b'\r') => self.after_cr = true,
                (false, byte) => self.advance_line(byte),
            }
        }
        Ok(false)
    }

    fn advance_line(&mut self, byte: u8) {
        if !self.in_fields
            && let Some(digit) = self.line.checked_sub(FIRST_DIGIT).and_then(|at| self.code.get_mut(at))
        {
            *digit = byte;
        }
        self.line += 1;
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
