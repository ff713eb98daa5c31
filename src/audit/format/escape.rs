//! Text from strangers, made safe to write and to show: capped, and with everything escaped that a terminal obeys.
//!
//! - The secret of a key that a stranger put there is taken out: of the key, `sk_live_<id>_…` stays.
//! - What is plain passes unchanged and is not copied.
//! - Bytes that are not UTF-8 and control characters (C0, DEL, C1) become `\x1b`, the bidirectional controls and the
//!   line separators `\u{202e}`, and a backslash is doubled, so that an escape cannot be forged.
//! - What is longer than its cap is cut between characters, never inside an escape, and ends in `…`.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::key;

/// Bytes kept of a user agent: longer than any browser's, and the records stay small.
pub(crate) const USER_AGENT_CAP: usize = 256;
/// Bytes kept of an action: a route's name, or a method and the beginning of a path.
pub(crate) const ACTION_CAP: usize = 256;
/// Bytes kept of a method: the longest registered one (RFC 9110, IANA) has 17.
pub(crate) const METHOD_CAP: usize = 32;
/// Bytes kept of a path.
pub(crate) const PATH_CAP: usize = 1024;

/// `text` as it may be written and shown, at most `cap` bytes and an ellipsis.
pub(crate) fn visible(text: &[u8], cap: usize) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(plain) if text.len() <= cap && is_plain(plain) && !may_hold_key(plain) => Cow::Borrowed(plain),
        _ => Cow::Owned(escaped(&key::redacted(text), cap)),
    }
}

/// Whether it is worth a look for keys: in plain sight, or behind percent-encoding.
fn may_hold_key(text: &str) -> bool {
    text.contains(key::PREFIX) || text.contains('%')
}

fn is_plain(text: &str) -> bool {
    let plain_ascii = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'\\';
    text.bytes().all(plain_ascii) || text.chars().all(|c| c != '\\' && !must_hide(c))
}

/// Controls, and the format characters that reorder or break a line of text.
fn must_hide(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

fn escaped(text: &[u8], cap: usize) -> String {
    let mut out = String::with_capacity(cap.min(text.len() * 4) + '…'.len_utf8());
    for chunk in text.utf8_chunks() {
        let fits = chunk.valid().chars().all(|c| push(&mut out, cap, |piece| escape_char(piece, c)))
            && chunk.invalid().iter().all(|byte| push(&mut out, cap, |piece| write!(piece, "\\x{byte:02x}")));
        if !fits {
            out.push('…');
            break;
        }
    }
    out
}

/// Appends a piece whole; when it does not fit, takes it back and says so.
fn push(out: &mut String, cap: usize, piece: impl FnOnce(&mut String) -> std::fmt::Result) -> bool {
    let before = out.len();
    let fits = piece(out).is_ok() && out.len() <= cap;
    if !fits {
        out.truncate(before);
    }
    fits
}

fn escape_char(out: &mut String, c: char) -> std::fmt::Result {
    match c {
        '\\' => out.write_str("\\\\"),
        c if !must_hide(c) => out.write_char(c),
        c if u32::from(c) <= 0xff => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "\\u{{{:x}}}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_is_not_copied() {
        for plain in ["", "curl/8.5.0", "Mozilla/5.0 (été; 日本)"] {
            assert!(matches!(visible(plain.as_bytes(), 64), Cow::Borrowed(text) if text == plain), "{plain}");
        }
    }

    #[test]
    fn what_a_terminal_obeys_becomes_visible() {
        let cases: [(&[u8], &str); 8] = [
            (b"\x1b[2J", "\\x1b[2J"),
            (b"a\r\nb\0", "a\\x0d\\x0ab\\x00"),
            (b"\x7f", "\\x7f"),
            ("\u{9b}31m".as_bytes(), "\\x9b31m"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("\u{202e}gpj.exe".as_bytes(), "\\u{202e}gpj.exe"),
            ("\u{2066}x\u{2069}".as_bytes(), "\\u{2066}x\\u{2069}"),
            (b"\\x1b", "\\\\x1b"),
        ];
        for (raw, shown) in cases {
            assert_eq!(visible(raw, 64), shown, "{raw:?}");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(visible("ab日本".as_bytes(), 6), "ab日…");
        assert_eq!(visible(b"abcd\x1b", 6), "abcd…");
        assert_eq!(visible(&[b'x'; 256], 256), "x".repeat(256));
        assert_eq!(visible(&[b'x'; 257], 256), "x".repeat(256) + "…");
    }

    proptest! {
        #[test]
        fn nothing_dangerous_and_nothing_long_passes(raw in prop::collection::vec(any::<u8>(), 0..80), cap in 0_usize..64) {
            let shown = visible(&raw, cap);
            prop_assert!(!shown.chars().any(must_hide));
            prop_assert!(shown.len() <= cap + '…'.len_utf8());
        }
    }
}
