//! Text from requests, made safe to write and to show on a terminal: capped, and with control characters escaped.
//!
//! - The secret of a key or management token that a client put into the text is removed; `sk_live_<id>_…` or
//!   `kgm_<id>_…` stays.
//! - Plain text passes unchanged and is not copied.
//! - Bytes that are not UTF-8 and control characters (C0, DEL, C1) become `\x1b`, bidirectional controls and line
//!   separators `\u{202e}`, and a backslash is doubled, so that a client cannot forge an escape.
//! - Text longer than its cap is cut between characters, never inside an escape, and ends in `…`.

use std::borrow::Cow;
use std::fmt::Write as _;

use domain::key;

/// Bytes kept of a user agent: more than any browser's has, and records stay small.
pub(crate) const USER_AGENT_CAP: usize = 256;
/// Bytes kept of an action: a route's name, or a method and the beginning of a path.
pub(crate) const ACTION_CAP: usize = 256;
/// Bytes kept of an actor: two names of users of the machine, of 32 bytes each (useradd(8)), and their numbers.
pub(crate) const ACTOR_CAP: usize = 256;
/// Bytes kept of a method: the longest registered one (RFC 9110, IANA) has 17.
pub(crate) const METHOD_CAP: usize = 32;
/// Bytes kept of a path.
pub(crate) const PATH_CAP: usize = 1024;

/// A user agent as records have it: capped and escaped.
pub fn user_agent_text(agent: &str) -> Cow<'_, str> {
    escape_text(agent, USER_AGENT_CAP)
}

/// Escapes `text`, and cuts it to at most `cap` bytes and an ellipsis.
pub(crate) fn escape_capped(text: &[u8], cap: usize) -> Cow<'_, str> {
    match std::str::from_utf8(text) {
        Ok(text) => escape_text(text, cap),
        Err(_) => Cow::Owned(escape(&key::redact(text), cap)),
    }
}

/// The same of a text that is UTF-8.
pub(crate) fn escape_text(text: &str, cap: usize) -> Cow<'_, str> {
    let fits = text.len() <= cap;
    if fits && is_simple(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    match (key::redact(text.as_bytes()), Some(text).filter(|text| fits && is_plain(text))) {
        (Cow::Borrowed(_), Some(plain)) => Cow::Borrowed(plain),
        (redacted, _) => Cow::Owned(escape(&redacted, cap)),
    }
}

/// True for visible ASCII without the characters of escapes, of percent-encoding and of the prefixes of credentials:
/// nearly every text. Reads all bytes without a branch, many at a time.
fn is_simple(text: &[u8]) -> bool {
    let is_simple = |byte: &u8| (b' '..=b'~').contains(byte) & !matches!(byte, b'\\' | b'%' | b'_');
    text.iter().fold(true, |all, byte| all & is_simple(byte))
}

fn is_plain(text: &str) -> bool {
    // Most texts are ASCII and are decided by the byte test alone.
    let plain_ascii = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'\\';
    text.bytes().all(plain_ascii) || text.chars().all(|c| c != '\\' && !needs_escape(c))
}

/// Controls, and the format characters that reorder or break a line of text.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

fn escape(text: &[u8], cap: usize) -> String {
    let mut out = String::with_capacity(cap.min(text.len() * 4) + '…'.len_utf8());
    for chunk in text.utf8_chunks() {
        let fits = chunk.valid().chars().all(|c| push_whole(&mut out, cap, |piece| escape_char(piece, c)))
            && chunk.invalid().iter().all(|byte| push_whole(&mut out, cap, |piece| write!(piece, "\\x{byte:02x}")));
        if !fits {
            out.push('…');
            break;
        }
    }
    out
}

/// Appends a piece as a whole. Returns false, and appends nothing, when the text would exceed `cap` bytes.
fn push_whole(out: &mut String, cap: usize, piece: impl FnOnce(&mut String) -> std::fmt::Result) -> bool {
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
        c if !needs_escape(c) => out.write_char(c),
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
            assert!(matches!(escape_capped(plain.as_bytes(), 64), Cow::Borrowed(text) if text == plain), "{plain}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
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
            assert_eq!(escape_capped(raw, 64), shown, "{raw:?}");
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(escape_capped("ab日本".as_bytes(), 6), "ab日…");
        assert_eq!(escape_capped(b"abcd\x1b", 6), "abcd…");
        assert_eq!(escape_capped(&[b'x'; 256], 256), "x".repeat(256));
        assert_eq!(escape_capped(&[b'x'; 257], 256), "x".repeat(256) + "…");
    }

    proptest! {
        #[test]
        fn escaped_text_is_bounded_and_has_no_controls(
            raw in prop::collection::vec(any::<u8>(), 0..80),
            cap in 0_usize..64,
        ) {
            let shown = escape_capped(&raw, cap);
            prop_assert!(!shown.chars().any(needs_escape));
            prop_assert!(shown.len() <= cap + '…'.len_utf8());
        }

        #[test]
        fn simple_text_needs_no_escape_and_no_secret_passes(
            before in "[ -~]{0,12}",
            credential in "(sk_live_|%73k%5flive_|kgm_A|kgm%5fA)[a-z]{9}_",
            secret in prop::option::of("[a-z]{30}"),
            after in "[ -~]{0,12}",
        ) {
            let text = secret.as_ref().map_or(before.clone(), |secret| format!("{before}{credential}{secret}{after}"));
            let is_redacted = matches!(key::redact(text.as_bytes()), Cow::Owned(_));
            prop_assert!(!is_simple(text.as_bytes()) || is_plain(&text) && !is_redacted);
            prop_assert!(secret.is_none_or(|secret| !escape_capped(text.as_bytes(), 200).contains(&secret[..20])));
        }
    }
}
