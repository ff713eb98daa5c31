//! Durations and sizes with units: parsing and display.

use std::fmt;
use std::time::Duration;

/// Error: the text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a duration; give a whole number and its unit: 250ms, 30s, 5m, 1h, 7d")]
pub struct InvalidDuration;

/// Error: the text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a size; give a whole number of bytes, or one with its unit: 64KiB, 1MiB, 1GiB")]
pub struct InvalidSize;

/// Milliseconds in each unit of time, longest first.
const TIME: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
/// Bytes in each unit of size, largest first.
const SIZE: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Displays a value with its unit: `1h30m`, `64KiB`.
#[derive(Clone, Copy, Debug)]
pub enum WithUnit {
    /// A duration, to the millisecond.
    Duration(Duration),
    /// A number of bytes.
    Size(u64),
}

/// Parses a duration: one or more whole numbers, each with its unit, such as `30s` or `1h30m`.
///
/// # Errors
/// [`InvalidDuration`] when the text is no duration, or one longer than 2^64 milliseconds.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() || text.is_empty() {
        let (number, unit, after) = split_number_and_unit(rest).ok_or(InvalidDuration)?;
        let (_, millis) = TIME.iter().find(|(name, _)| *name == unit).ok_or(InvalidDuration)?;
        total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or(InvalidDuration)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// Parses a number of bytes: a whole number, by itself or with a unit of 1024, such as `64KiB`.
///
/// # Errors
/// [`InvalidSize`] when the text is no size, or one of 2^64 bytes and more.
pub fn parse_size(text: &str) -> Result<u64, InvalidSize> {
    let (number, unit, "") = split_number_and_unit(text).ok_or(InvalidSize)? else { return Err(InvalidSize) };
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, bytes) = SIZE.iter().find(|(name, _)| *name == unit).ok_or(InvalidSize)?;
    number.checked_mul(*bytes).ok_or(InvalidSize)
}

/// Splits a text into the number at its beginning, the letters after it, and the rest.
fn split_number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, rest))
}

impl fmt::Display for WithUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Size(bytes) => {
                let (unit, factor) = SIZE.iter().find(|(_, n)| bytes > 0 && bytes % n == 0).unwrap_or(&SIZE[4]);
                write!(f, "{}{unit}", bytes / factor)
            }
            Self::Duration(duration) => {
                let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
                if rest == 0 {
                    return f.write_str("0s");
                }
                for (unit, millis) in TIME {
                    if rest >= millis {
                        write!(f, "{}{unit}", rest / millis)?;
                        rest %= millis;
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_units() {
        let cases = [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(WithUnit::Duration(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        for bad in ["", "30", "s", "1.5h", "-1s", "1 h", "1w", "30S", "99999999999999999999s", "999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn size_has_units() {
        let cases = [("512B", 512), ("64KiB", 65_536), ("1MiB", 1 << 20), ("1GiB", 1 << 30), ("2TiB", 2 << 40)];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(WithUnit::Size(bytes).to_string(), text);
        }
        assert_eq!(parse_size("1000"), Ok(1000));
        for bad in ["", "KiB", "1KB", "1k", "1.5MiB", "1 MiB", "64KiBx", "1MiB1", "99999999999TiB"] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }
}
