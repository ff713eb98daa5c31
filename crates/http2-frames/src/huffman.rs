//! Huffman code of HPACK (RFC 7541, appendix B), as far as a `#` is looked for in it.

/// Number of codes of each length in bits, from [`SHORTEST`] on. The codes of one length are consecutive numbers, and
/// the next longer ones go on behind them.
const CODES: [u32; 24] = [10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29];
/// Bits of the shortest code, and of the longest.
const SHORTEST: u32 = 5;
const LONGEST: u32 = 30;
/// For each length, the first 32 bits that are a longer code.
const ENDS: [u32; CODES.len()] = ends();
/// Code of `#`, of 12 bits. That of `>` follows it: it differs in the last bit.
const HASH: u32 = 0xffa;
const HASH_LENGTH: u32 = 12;

/// Search for `#` in a string that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct HashSearch {
    /// Bits of the string, the last ones lowest.
    bits: u64,
    /// Number of them that belong to a symbol that is not complete.
    pending: u32,
}

impl HashSearch {
    /// Makes every `#` of a piece a `>`, in place.
    pub(super) fn replace(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.bits = self.bits << 8 | u64::from(*byte);
            self.pending += 8;
            while let Some((length, code)) = self.symbol() {
                self.pending -= length;
                // A symbol ends in the byte with which it is complete.
                if length == HASH_LENGTH && code == HASH {
                    *byte ^= 1 << self.pending;
                }
            }
        }
    }

    /// Length and code of the next symbol; none until it is complete.
    fn symbol(&self) -> Option<(u32, u32)> {
        if self.pending == 0 {
            return None;
        }
        let aligned = (self.bits << (u64::BITS - self.pending) >> u32::BITS) as u32;
        let length = (SHORTEST..).zip(&ENDS).find(|(_, end)| aligned < **end).map_or(LONGEST, |(length, _)| length);
        (length <= self.pending).then_some((length, aligned >> (u32::BITS - length)))
    }
}

const fn ends() -> [u32; CODES.len()] {
    let mut ends = CODES;
    let mut next = 0;
    let mut i = 0;
    while i < CODES.len() {
        next = next * 2 + CODES[i];
        ends[i] = next << (u32::BITS - SHORTEST - i as u32);
        i += 1;
    }
    ends
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The symbols of ASCII that have the codes of each length, in the order of the codes.
    const SYMBOLS: [(u32, &str); 10] = [
        (5, "012aceiost"),
        (6, " %-./3456789=A_bdfghlmnpru"),
        (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
        (8, "&*,;XZ"),
        (10, "!\"()?"),
        (11, "'+|"),
        (12, "#>"),
        (13, "\0$@[]~"),
        (14, "^}"),
        (15, "<`{"),
    ];

    fn code(symbol: char) -> (u32, u32) {
        let mut next = 0;
        let mut before = 0;
        for (length, symbols) in SYMBOLS {
            next <<= length - before;
            before = length;
            if let Some(at) = symbols.find(symbol) {
                return (length, next + u32::try_from(at).unwrap());
            }
            next += u32::try_from(symbols.len()).unwrap();
        }
        // The backslash, the first of 19 bits.
        assert_eq!(symbol, '\\');
        (19, next << 4)
    }

    pub(crate) fn encode(text: &str) -> Vec<u8> {
        let bits: String =
            text.chars().map(code).map(|(length, code)| format!("{code:0width$b}", width = length as usize)).collect();
        let padding = "1".repeat(bits.len().next_multiple_of(8) - bits.len());
        let bits = bits + &padding;
        (0..bits.len() / 8).map(|byte| u8::from_str_radix(&bits[byte * 8..byte * 8 + 8], 2).unwrap()).collect()
    }

    #[test]
    fn codes_are_those_of_the_standard() {
        // Appendix C.4 and C.6 of RFC 7541.
        for (text, coded) in [
            ("www.example.com", &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..]),
            ("no-cache", b"\xa8\xeb\x10\x64\x9c\xbf"),
            ("custom-value", b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf"),
            ("302", b"\x64\x02"),
            ("https://www.example.com", b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3"),
        ] {
            assert_eq!(encode(text), coded, "{text}");
        }
        assert_eq!((code('#'), code('>'), code('\\')), ((12, 0xffa), (12, 0xffb), (19, 0x7fff0)));
        assert_eq!(ENDS[ENDS.len() - 1], 0xffff_fff0);
    }

    proptest! {
        #[test]
        fn every_hash_is_replaced_and_nothing_else(text in "[ -~\\\\#]{0,40}", size in 1_usize..9) {
            let mut bytes = encode(&text);
            let mut search = HashSearch::default();
            bytes.chunks_mut(size).for_each(|piece| search.replace(piece));
            prop_assert_eq!(bytes, encode(&text.replace('#', ">")));
        }
    }
}
