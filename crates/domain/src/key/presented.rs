//! Texts that a request can present as a key: which are looked up, and which are refused unread.
//!
//! - Keys of other systems have any format: `my-key` is one.
//! - A text of keygate's own prefix and length is a key of its own, whose checksum must be right.

use super::{KEY_LENGTH, PREFIX, parse};

/// Bytes of a presented key at most: keys of other systems are shorter, and a longer text is not hashed.
pub const MAX_PRESENTED: usize = 512;

/// Returns whether a text that is not empty has the characters and the length of a key: visible ASCII, up to
/// [`MAX_PRESENTED`]. A field of a request carries others in no way on which clients and servers agree.
pub fn has_key_characters(presented: &[u8]) -> bool {
    // All bytes are looked at, which the processor does for many at a time.
    presented.len() <= MAX_PRESENTED && presented.iter().fold(true, |all, byte| all & byte.is_ascii_graphic())
}

/// Returns whether a text has the prefix and the length of keygate's own keys, and a wrong checksum or another
/// character: it was mistyped, and is in no state.
pub fn is_mistyped(presented: &[u8]) -> bool {
    presented.len() == KEY_LENGTH && presented.starts_with(PREFIX.as_bytes()) && parse(presented).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyId, OrgTag, PlainKey};

    #[test]
    fn key_of_another_system_is_visible_ascii_of_any_format() {
        for text in ["my-key", "a", "iwb6Djkk4HhUlOCmLilDIKh6nZrn90ts", "a,b;c=\"d\"", &"x".repeat(512)] {
            assert!(has_key_characters(text.as_bytes()) && !is_mistyped(text.as_bytes()), "{text}");
        }
        for text in ["a b", "a\tb", "key\n", "k\u{e4}y", "\u{7f}", &"x".repeat(513)] {
            assert!(!has_key_characters(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn own_key_with_a_wrong_checksum_is_mistyped() {
        let key = PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap();
        let text = key.expose().expose();
        assert!(!is_mistyped(text.as_bytes()));
        let last = if text.ends_with('x') { "y" } else { "x" };
        assert!(is_mistyped(format!("{}{last}", &text[..KEY_LENGTH - 1]).as_bytes()));
        assert!(!is_mistyped(&text.as_bytes()[..KEY_LENGTH - 1]), "another length is another format");
    }
}
