//! JSON that is safe to write and to show: every line is printable ASCII.
//!
//! - Text is written character by character: printable ASCII as it is, `"` and `\` escaped, and everything else as
//!   `\uXXXX`. So no text can end a string or a line, or reach a terminal as a control sequence.
//! - Bytes that are not UTF-8 become U+FFFD.

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Digits of hexadecimal numbers.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Writer of one JSON object with plain members.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Writes a member whose value is text of this crate, without a character to escape.
    pub(super) fn constant(&mut self, name: &str, value: &str) {
        self.member(name);
        self.quoted(|out| out.extend_from_slice(value.as_bytes()));
    }

    /// Writes a member whose value is text, cut to `cap` bytes.
    pub(super) fn text(&mut self, name: &str, value: &[u8], cap: usize) {
        self.member(name);
        self.quoted(|out| push_text(out, value, cap));
    }

    /// Writes a member whose value `Display` writes in plain ASCII, such as an id or an address.
    pub(super) fn display(&mut self, name: &str, value: impl std::fmt::Display) {
        use std::io::Write as _;
        self.member(name);
        self.quoted(|out| write!(out, "{value}").expect("a Vec takes every write"));
    }

    /// Writes a member whose value is a UUID.
    pub(super) fn uuid(&mut self, name: &str, value: Uuid) {
        let mut text = [0; Hyphenated::LENGTH];
        let text = value.hyphenated().encode_lower(&mut text);
        self.member(name);
        self.quoted(|out| out.extend_from_slice(text.as_bytes()));
    }

    /// Writes a member whose value is a number.
    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.member(name);
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Writes a member whose value is a list of one constant.
    pub(super) fn list_of(&mut self, name: &str, value: &str) {
        self.member(name);
        self.out.push(b'[');
        self.quoted(|out| out.extend_from_slice(value.as_bytes()));
        self.out.push(b']');
    }

    /// Ends the object.
    pub(super) fn end(self) {
        self.out.push(b'}');
    }

    fn member(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.quoted(|out| out.extend_from_slice(name.as_bytes()));
        self.out.push(b':');
    }

    fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(b'"');
        write(self.out);
        self.out.push(b'"');
    }
}

/// Writes at most `cap` bytes of a text as the inside of a JSON string, and an ellipsis where it was cut.
fn push_text(out: &mut Vec<u8>, text: &[u8], cap: usize) {
    // Nearly every text: no byte needs an escape.
    if text.len() <= cap && text.iter().all(|byte| is_plain(*byte)) {
        return out.extend_from_slice(text);
    }
    let mut taken = 0;
    for chunk in text.utf8_chunks() {
        let characters = chunk.valid().chars().map(|c| (c, c.len_utf8()));
        let invalid = (!chunk.invalid().is_empty()).then_some((char::REPLACEMENT_CHARACTER, chunk.invalid().len()));
        for (character, length) in characters.chain(invalid) {
            taken += length;
            if taken > cap {
                return push_char(out, '…');
            }
            push_char(out, character);
        }
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

fn push_char(out: &mut Vec<u8>, character: char) {
    match u8::try_from(character) {
        Ok(byte) if is_plain(byte) => out.push(byte),
        Ok(byte @ (b'"' | b'\\')) => out.extend_from_slice(&[b'\\', byte]),
        // Beyond U+FFFF a character is two of these, a surrogate pair (RFC 8259, section 7).
        _ => character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| push_unit(out, *unit)),
    }
}

fn push_unit(out: &mut Vec<u8>, unit: u16) {
    out.extend_from_slice(b"\\u");
    out.extend([12, 8, 4, 0].map(|shift| HEX[usize::from(unit >> shift & 0xf)]));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &[u8], cap: usize) -> Vec<u8> {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object.text("text", text, cap);
        object.end();
        line
    }

    fn read(line: &[u8]) -> String {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        value["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn control_bytes_quotes_and_other_scripts_are_escaped() {
        let cases: [(&[u8], &str); 7] = [
            (b"curl/8.5.0", "curl/8.5.0"),
            (b"a\"b\\c", r#"a\"b\\c"#),
            (b"a\r\nb\0", r"a\u000d\u000ab\u0000"),
            (b"\x1b[2J\x7f", r"\u001b[2J\u007f"),
            ("é\u{202e}".as_bytes(), r"\u00e9\u202e"),
            ("😀".as_bytes(), r"\ud83d\ude00"),
            (b"a\xffb", r"a\ufffdb"),
        ];
        for (text, shown) in cases {
            let line = String::from_utf8(written(text, 64)).unwrap();
            assert_eq!(line, format!("{{\"text\":\"{shown}\"}}"), "{text:?}");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(read(&written("ab日本".as_bytes(), 6)), "ab日…");
        assert_eq!(read(&written(b"abcdef", 6)), "abcdef");
        assert_eq!(read(&written(b"abcdefg", 6)), "abcdef…");
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_line_of_printable_ascii(text in prop::collection::vec(any::<u8>(), 0..80)) {
            let line = written(&text, 1000);
            prop_assert!(line.iter().all(|byte| (b' '..=b'~').contains(byte)));
            prop_assert_eq!(read(&line), String::from_utf8_lossy(&text));
        }

        #[test]
        fn any_text_comes_back_as_it_was(text in any::<String>()) {
            prop_assert_eq!(read(&written(text.as_bytes(), usize::MAX)), text);
        }

        #[test]
        fn cut_text_is_bounded(text in prop::collection::vec(any::<u8>(), 0..80), cap in 0_usize..64) {
            prop_assert!(written(&text, cap).len() <= 6 * (cap + 1) + r#"("text":"")"#.len());
        }
    }
}
