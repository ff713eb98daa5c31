//! The strict reading of a chunked body (RFC 9112, section 7.1), to know where it ends and that its framing is sound.
//!
//! The HTTP library decodes it; this only follows along, and refuses what decoders disagree on: bare LF, spaces around
//! sizes, sizes that overflow, and extensions or trailers without bound.

use crate::http_syntax::is_field_value_byte;

/// Bytes of all extensions of a body together; nobody uses them.
const MAX_EXTENSIONS: usize = 4096;
/// Bytes of the trailers.
const MAX_TRAILERS: usize = 8192;

/// The framing is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// Where in a chunked body the bytes are.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
    extensions: usize,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Reading a size, of which this is known after so many digits.
    Size { size: u64, digits: u8 },
    /// After the `;`.
    Extension { size: u64 },
    /// After the CR that ends the line of a size.
    SizeEnd { size: u64 },
    /// Within the data, of which this many bytes are left.
    Data(u64),
    /// After the data.
    DataEnd,
    /// After the CR that ends the data.
    DataEndLine,
    /// At the beginning of a trailer's line, or of the empty line that ends the body.
    Trailer,
    /// Within a trailer's line.
    TrailerLine,
    /// After the CR that ends a trailer's line.
    TrailerEnd,
    /// After the CR of the empty line.
    End,
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { at: At::SIZE, extensions: 0, trailers: 0 }
    }

    /// Follows `bytes`, and says how many of them belong to the body, and whether it has ended with them.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<(usize, bool), Broken> {
        let mut taken = 0;
        while taken < bytes.len() {
            if let At::Data(left) = self.at {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - taken);
                taken += here;
                let left = left - here as u64;
                self.at = if left == 0 { At::DataEnd } else { At::Data(left) };
                continue;
            }
            let ended = self.at == At::End;
            self.at = self.step(bytes[taken])?;
            taken += 1;
            if ended {
                return Ok((taken, true));
            }
        }
        Ok((taken, false))
    }

    fn step(&mut self, byte: u8) -> Result<At, Broken> {
        match (self.at, byte) {
            (At::Size { size, digits }, _) => size_step(size, digits, byte),
            (At::Extension { size }, b'\r') => Ok(At::SizeEnd { size }),
            (At::Extension { size }, _) => bounded(&mut self.extensions, MAX_EXTENSIONS, byte, At::Extension { size }),
            (At::SizeEnd { size: 0 }, b'\n') => Ok(At::Trailer),
            (At::SizeEnd { size }, b'\n') => Ok(At::Data(size)),
            (At::DataEnd, b'\r') => Ok(At::DataEndLine),
            (At::DataEndLine, b'\n') => Ok(At::SIZE),
            (At::Trailer, b'\r') => Ok(At::End),
            (At::TrailerLine, b'\r') => Ok(At::TrailerEnd),
            (At::Trailer, b' ' | b'\t') => Err(Broken),
            (At::Trailer | At::TrailerLine, _) => bounded(&mut self.trailers, MAX_TRAILERS, byte, At::TrailerLine),
            (At::TrailerEnd, b'\n') => Ok(At::Trailer),
            (At::End, b'\n') => Ok(At::SIZE),
            _ => Err(Broken),
        }
    }
}

impl At {
    const SIZE: Self = Self::Size { size: 0, digits: 0 };
}

fn size_step(size: u64, digits: u8, byte: u8) -> Result<At, Broken> {
    match (char::from(byte).to_digit(16), byte) {
        // Sixteen digits fill 64 bits.
        (Some(digit), _) if digits < 16 => Ok(At::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }),
        (None, b';') if digits > 0 => Ok(At::Extension { size }),
        (None, b'\r') if digits > 0 => Ok(At::SizeEnd { size }),
        _ => Err(Broken),
    }
}

/// One more byte of a text whose length is bounded.
fn bounded(length: &mut usize, most: usize, byte: u8, next: At) -> Result<At, Broken> {
    *length += 1;
    if is_field_value_byte(byte) && *length <= most { Ok(next) } else { Err(Broken) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(body: &str) -> Result<(usize, bool), Broken> {
        let whole = Chunks::new().follow(body.as_bytes());
        let mut chunks = Chunks::new();
        let mut taken = 0;
        let mut piecewise = Ok((0, false));
        for byte in body.as_bytes().chunks(1) {
            piecewise = chunks.follow(byte).map(|(one, ended)| {
                taken += one;
                (taken, ended)
            });
            if !matches!(piecewise, Ok((_, false))) {
                break;
            }
        }
        assert_eq!(whole, piecewise, "{body:?}");
        whole
    }

    #[test]
    fn knows_where_a_body_ends() {
        assert_eq!(follow("3\r\nabc\r\n0\r\n\r\nGET"), Ok((13, true)));
        assert_eq!(follow("0003;a=\"b\"\r\na\nc\r\n00\r\nx: 1\r\ny: 2\r\n\r\nrest"), Ok((35, true)));
        assert_eq!(follow("A\r\n0123456789\r\n"), Ok((15, false)));
        assert_eq!(follow(""), Ok((0, false)));
    }

    #[test]
    fn refuses_what_decoders_disagree_on() {
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
            assert_eq!(follow(body), Err(Broken), "{body:?}");
        }
        assert_eq!(Chunks::new().follow(format!("3;{}", "a".repeat(5000)).as_bytes()), Err(Broken));
        assert_eq!(Chunks::new().follow(format!("0\r\nx: {}", "a".repeat(9000)).as_bytes()), Err(Broken));
    }
}
