//! Ids in compact lines: 128 bits as 22 characters of base64url without padding (RFC 4648, section 5).
//!
//! Each id has exactly one text: the bits beyond the 128th must be zero.

use uuid::{Uuid, Variant};

use domain::clock::Micros;

/// Characters of an id.
pub(crate) const LENGTH: usize = 22;
/// The digits of base64url, in the order of their value.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The value of each digit; [`NO_DIGIT`] for all other bytes.
const VALUES: [u8; 256] = values();
const NO_DIGIT: u8 = 0xff;

/// Encodes an id: eight digits at a time, without looking any of them up.
pub(crate) fn encode(id: u128) -> [u8; LENGTH] {
    let first = digit_values((id >> 80) as u64);
    let second = digit_values((id >> 32) as u64);
    // The last digit has two bits of the id, and four zeros; what is behind it is cut off.
    let third = digit_values((id << 16) as u64);
    let mut text = [0; 24];
    for (out, values) in text.chunks_exact_mut(8).zip([first, second, third]) {
        out.copy_from_slice(&values);
    }
    for byte in &mut text {
        *byte = digit(*byte);
    }
    *text.first_chunk().expect("22 of 24")
}

/// The values of the eight digits of the low 48 bits: they are parted in two, each part in two, and these in two.
fn digit_values(bits: u64) -> [u8; 8] {
    let halves = bits & 0xff_ffff | (bits << 8) & 0xff_ffff_0000_0000;
    let quarters = halves & 0xfff_0000_0fff | (halves << 4) & 0x0fff_0000_0fff_0000;
    let eighths = quarters & 0x003f_003f_003f_003f | (quarters << 2) & 0x3f00_3f00_3f00_3f00;
    eighths.to_be_bytes()
}

/// The digit of a value: in arithmetic that the compiler does for many at a time, which it cannot do by [`DIGITS`].
fn digit(value: u8) -> u8 {
    let from = |first: u8, step: u8| if value >= first { step } else { 0 };
    let letters = value + b'A' + from(26, b'a' - (b'Z' + 1));
    let numbers = letters.wrapping_add(from(52, b'0'.wrapping_sub(b'z' + 1)));
    numbers.wrapping_add(from(62, b'-'.wrapping_sub(b'9' + 1))).wrapping_add(from(63, b'_' - (b'-' + 1)))
}

/// Decodes an id; `None` when the text is not that of one.
pub(crate) fn decode(text: &[u8]) -> Option<u128> {
    let text: &[u8; LENGTH] = text.try_into().ok()?;
    let mut seen = 0;
    let mut bits = |digits: &[u8]| {
        digits.iter().fold(0_u64, |bits, byte| {
            let value = VALUES[usize::from(*byte)];
            seen |= value;
            // A byte that is no digit spoils the number, which is not used then.
            bits << 6 | u64::from(value)
        })
    };
    // In halves that fit a register: shifting 128 bits for each digit costs twice as much.
    let first = bits(&text[..10]);
    let second = bits(&text[10..20]);
    let third = bits(&text[20..LENGTH - 1]);
    let id = u128::from(first) << 66 | u128::from(second) << 6 | u128::from(third);
    let last = VALUES[usize::from(text[LENGTH - 1])];
    // Digits are less than 64; the last one has zeros where the id has no bits.
    ((seen | last) < 64 && last & 0x0f == 0).then_some(id << 2 | u128::from(last >> 4))
}

/// The time in the id of a request; `None` when it is none of version 7 (RFC 9562, section 5.7).
pub(crate) fn time_of(id: Uuid) -> Option<Micros> {
    // Those of versions 1 and 6 have a time as well, and are no ids of requests.
    let is_of_request = id.get_version_num() == 7 && id.get_variant() == Variant::RFC4122;
    let (seconds, nanoseconds) = id.get_timestamp().filter(|_| is_of_request)?.to_unix();
    Some(Micros(seconds.saturating_mul(1_000_000).saturating_add(u64::from(nanoseconds) / 1000)))
}

const fn values() -> [u8; 256] {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_that_is_no_id_is_rejected() {
        for text in
            ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAB", "AAAA=AAAAAAAAAAAAAAAAA"]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn time_is_read_from_ids_of_version_7_only() {
        let time = |id: &str| time_of(id.parse().unwrap());
        // The examples of RFC 9562, appendix A: all of 2022-02-22, 19:22:22 UTC.
        let examples = [
            "C232AB00-9414-11EC-B3C8-9F6BDECED846",
            "919108f7-52d1-4320-9bac-f847db4148a8",
            "1EC9414C-232A-6B00-B3C8-9F6BDECED846",
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
        ];
        assert_eq!(examples.map(time), [None, None, None, Some(Micros(1_645_557_742_000_000))]);
        // The variant of another standard.
        assert_eq!(time("017F22E2-79B0-7CC3-D8C4-DC0C0C07398F"), None);
    }

    proptest! {
        #[test]
        fn ids_are_base64url_and_come_back(id: u128) {
            let text = encode(id);
            prop_assert_eq!(std::str::from_utf8(&text).unwrap(), BASE64_URL_SAFE_NO_PAD.encode(id.to_be_bytes()));
            prop_assert_eq!(decode(&text), Some(id));
        }

        #[test]
        fn every_text_that_is_read_is_the_one_that_is_written(text: [u8; LENGTH], digits: [u8; LENGTH]) {
            let of_digits = digits.map(|digit| DIGITS[usize::from(digit) % 64]);
            for text in [text, of_digits] {
                prop_assert!(decode(&text).is_none_or(|id| encode(id) == text));
            }
        }
    }
}
