//! Numbers of packed lines: seven bits in each byte, the small ones in one.

/// Small differences in either direction become small numbers.
pub(crate) fn zigzag(difference: u64) -> u64 {
    difference << 1 ^ (difference.cast_signed() >> 63).cast_unsigned()
}

pub(crate) fn unzigzag(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

/// Appends a number, seven bits in each byte.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Digits of a number at most; one with more is a text. So a difference is never the largest number.
const MAX_DIGITS: usize = 18;

/// Parses the number in a field, and returns what is behind it, from its tab on. `None` when the digits are not those
/// that the number would be written with.
#[inline]
pub(super) fn parse_field(text: &[u8]) -> Option<(u64, &[u8])> {
    let chunk = text.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    let length = other_bytes(chunk).trailing_zeros() as usize / 8;
    let (number, length) = match length {
        // Shorter than a chunk, and not empty: as if there were zeros before it, it has eight digits.
        1..=7 => (eight_digits(chunk << (64 - 8 * length)), length),
        _ => parse_digits(text),
    };
    let (digits, rest) = text.split_at_checked(length)?;
    let is_plain = length <= MAX_DIGITS && (*digits.first()? != b'0' || length == 1);
    (is_plain && rest.first() == Some(&b'\t')).then_some((number, rest))
}

/// The number that the digits at the beginning of a text are, modulo 2^64, and how many there are.
fn parse_digits(text: &[u8]) -> (u64, usize) {
    let length = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let digits = text[..length].iter().map(|digit| u64::from(digit - b'0'));
    (digits.fold(0, |number: u64, digit| number.wrapping_mul(10).wrapping_add(digit)), length)
}

/// Some of the bits of each byte that is no digit, up to the first of them; 0 when all are digits.
fn other_bytes(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // A digit has 3 in its upper half, and stays below 0x40 when 6 is added.
    ((bytes ^ (0x30 * EACH)) | (bytes.wrapping_add(6 * EACH) ^ (0x30 * EACH))) & (0xf0 * EACH)
}

/// The number of eight digits, the first one in the lowest byte; bytes without a digit count as zeros.
fn eight_digits(bytes: u64) -> u64 {
    let digits = bytes & 0x0f0f_0f0f_0f0f_0f0f;
    // Neighbours are joined: to numbers of two digits, of four, and of eight.
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff
}

/// Unread rest of a stream.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}
