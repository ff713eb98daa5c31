//! Scanner of chunked bodies (RFC 9112, section 7.1): finds where a body ends, and refuses invalid framing.
//!
//! The HTTP library decodes the body. It is lenient where decoders disagree, so the scanner refuses that first: bare
//! LF, spaces around sizes, sizes that overflow, and extensions or trailers without bound.

use domain::http_syntax::is_field_value_byte;

/// Bytes of all extensions of a body together; hardly any client uses them.
const MAX_EXTENSIONS: usize = 4096;
/// Bytes of the trailers.
const MAX_TRAILERS: usize = 8192;

/// The framing is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvalidChunk;

/// Progress of the scan of a chunked body.
#[derive(Debug)]
pub(super) struct ChunkedScanner {
    state: State,
    /// Bytes of extensions so far.
    extensions: usize,
    /// Bytes of trailers so far.
    trailers: usize,
}

/// The place in the body that the next byte has.
///
/// ```text
/// Size ─▶ (Extension) ─▶ SizeEnd ─▶ Data ─▶ DataEnd ─▶ DataEndLine ─▶ Size
///                        SizeEnd of 0 ─▶ Trailer ─▶ TrailerLine ─▶ TrailerEnd ─▶ Trailer
///                                        Trailer ─▶ End ─▶ the body has ended
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a size, whose first `digits` digits make `size`.
    Size { size: u64, digits: u8 },
    /// After the `;`.
    Extension { size: u64 },
    /// After the CR that ends the line of a size.
    SizeEnd { size: u64 },
    /// In the data, of which this many bytes are left.
    Data(u64),
    /// After the data.
    DataEnd,
    /// After the CR that ends the data.
    DataEndLine,
    /// At the beginning of a trailer's line, or of the empty line that ends the body.
    Trailer,
    /// In a trailer's line.
    TrailerLine,
    /// After the CR that ends a trailer's line.
    TrailerEnd,
    /// After the CR of the empty line.
    End,
}

impl ChunkedScanner {
    pub(super) fn new() -> Self {
        Self { state: State::SIZE, extensions: 0, trailers: 0 }
    }

    /// Scans on. Returns how many of the bytes belong to the body, and whether it has ended with them.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<(usize, bool), InvalidChunk> {
        let mut scanned = 0;
        while scanned < bytes.len() {
            // Data is skipped at once; everything else is a few bytes for each chunk.
            if let State::Data(left) = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - scanned);
                scanned += here;
                let left = left - here as u64;
                self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                continue;
            }
            let ends = self.state == State::End;
            self.state = self.step(bytes[scanned])?;
            scanned += 1;
            if ends {
                return Ok((scanned, true));
            }
        }
        Ok((scanned, false))
    }

    /// The state after a byte that is not data.
    fn step(&mut self, byte: u8) -> Result<State, InvalidChunk> {
        match (self.state, byte) {
            (State::Size { size, digits }, _) => step_size(size, digits, byte),
            (State::Extension { size }, b'\r') => Ok(State::SizeEnd { size }),
            (State::Extension { size }, _) => {
                count_text(&mut self.extensions, MAX_EXTENSIONS, byte)?;
                Ok(State::Extension { size })
            }
            // The chunk of size 0 is the last one.
            (State::SizeEnd { size: 0 }, b'\n') => Ok(State::Trailer),
            (State::SizeEnd { size }, b'\n') => Ok(State::Data(size)),
            (State::DataEnd, b'\r') => Ok(State::DataEndLine),
            (State::DataEndLine, b'\n') => Ok(State::SIZE),
            (State::Trailer, b'\r') => Ok(State::End),
            (State::TrailerLine, b'\r') => Ok(State::TrailerEnd),
            // A folded line, which some decoders join to the one before.
            (State::Trailer, b' ' | b'\t') => Err(InvalidChunk),
            (State::Trailer | State::TrailerLine, _) => {
                count_text(&mut self.trailers, MAX_TRAILERS, byte)?;
                Ok(State::TrailerLine)
            }
            (State::TrailerEnd, b'\n') => Ok(State::Trailer),
            (State::End, b'\n') => Ok(State::SIZE),
            _ => Err(InvalidChunk),
        }
    }
}

impl State {
    const SIZE: Self = Self::Size { size: 0, digits: 0 };
}

fn step_size(size: u64, digits: u8, byte: u8) -> Result<State, InvalidChunk> {
    match (char::from(byte).to_digit(16), byte) {
        // Sixteen digits fill 64 bits.
        (Some(digit), _) if digits < 16 => Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }),
        (None, b';') if digits > 0 => Ok(State::Extension { size }),
        (None, b'\r') if digits > 0 => Ok(State::SizeEnd { size }),
        _ => Err(InvalidChunk),
    }
}

/// Counts a byte of a text whose length is bounded.
fn count_text(length: &mut usize, max: usize, byte: u8) -> Result<(), InvalidChunk> {
    *length += 1;
    if is_field_value_byte(byte) && *length <= max { Ok(()) } else { Err(InvalidChunk) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(body: &str) -> Result<(usize, bool), InvalidChunk> {
        let whole = ChunkedScanner::new().scan(body.as_bytes());
        let mut scanner = ChunkedScanner::new();
        let mut scanned = 0;
        let mut piecewise = Ok((0, false));
        for byte in body.as_bytes().chunks(1) {
            piecewise = scanner.scan(byte).map(|(one, ended)| {
                scanned += one;
                (scanned, ended)
            });
            if !matches!(piecewise, Ok((_, false))) {
                break;
            }
        }
        assert_eq!(whole, piecewise, "{body:?}");
        whole
    }

    #[test]
    fn end_of_body_is_found() {
        assert_eq!(scan("3\r\nabc\r\n0\r\n\r\nGET"), Ok((13, true)));
        assert_eq!(scan("0003;a=\"b\"\r\na\nc\r\n00\r\nx: 1\r\ny: 2\r\n\r\nrest"), Ok((35, true)));
        assert_eq!(scan("A\r\n0123456789\r\n"), Ok((15, false)));
        assert_eq!(scan(""), Ok((0, false)));
    }

    #[test]
    fn framing_that_decoders_disagree_on_is_refused() {
        for body in [
            "3\nabc\r\n",
            "3 \r\nabc\r\n",
            " 3\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "+3\r\nabc\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc\n",
            "\r\n",
            ";a\r\n",
            "3;\0\r\n",
            "3;a\n",
            "10000000000000003\r\nabc",
            "0\r\n x: 1\r\n\r\n",
            "0\r\nx: 1\n\r\n",
            "0\r\n\n",
            "0\n\r\n",
        ] {
            assert_eq!(scan(body), Err(InvalidChunk), "{body:?}");
        }
        assert_eq!(ChunkedScanner::new().scan(format!("3;{}", "a".repeat(5000)).as_bytes()), Err(InvalidChunk));
        assert_eq!(ChunkedScanner::new().scan(format!("0\r\nx: {}", "a".repeat(9000)).as_bytes()), Err(InvalidChunk));
    }
}
