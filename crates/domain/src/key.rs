//! API keys: format, generation, parsing and hashing.
//!
//! ```text
//! sk_live_ KKKKKKKKK _ SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS CCCCCC
//! prefix   key id      secret, 43 base62 characters (256 bits)     CRC-32, base62
//! ```
//!
//! The key id is public: logs, tables and the CLI show it. Its first three characters are the organization's tag. The
//! checksum covers everything before it, so that a mistyped key is refused before the state is asked. A key is
//! identified by the SHA-256 of the whole presented text, and only that is stored. The plain key ([`PlainKey`]) and its
//! hash ([`KeyDigest`]) are different types, and `Debug` shows neither.

use std::fmt;
use std::hash::{Hash, Hasher};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest as _, Sha256};

use crate::base62::{CHECKSUM_LENGTH, SECRET_LENGTH, base62_text, checksum, random_base62};
use crate::secret::{Secret, digests_match};

pub mod policy;
mod presented;
mod redact;

pub use presented::{MAX_PRESENTED, has_key_characters, is_mistyped};
pub use redact::redact;

/// Prefix of every key.
pub const PREFIX: &str = "sk_live_";
/// Characters of a key id.
pub const KEY_ID_LENGTH: usize = 9;
/// Characters of the organization's tag, with which the key id begins.
pub const TAG_LENGTH: usize = 3;
/// Characters of a whole key.
pub const KEY_LENGTH: usize = PREFIX.len() + KEY_ID_LENGTH + 1 + SECRET_LENGTH + CHECKSUM_LENGTH;

/// An organization's tag: the first characters of the ids of all its keys. On Redis Cluster it is the hash tag that
/// keeps the records of the organization in one hash slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrgTag([u8; TAG_LENGTH]);

/// The public id of a key: nine base62 characters, the organization's tag first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId([u8; KEY_ID_LENGTH]);

/// Error: the text is not a well-formed id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} letters and digits")]
pub struct InvalidId {
    expected: usize,
}

/// Error: the text is not a SHA-256 in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 hexadecimal digits")]
pub struct InvalidDigest;

/// The SHA-256 of a presented key.
///
/// - Comparison takes constant time.
/// - Hashing uses the first eight bytes: SHA-256 is uniform already.
#[derive(Clone, Copy)]
pub struct KeyDigest([u8; 32]);

/// A key in plain text. It exists only from its generation until it is shown to its owner, once.
pub struct PlainKey {
    id: KeyId,
    text: Secret,
}

impl OrgTag {
    /// Generates a random tag. The caller must ensure that it is unused.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        random_base62::<TAG_LENGTH>().map(Self)
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base62 is ASCII")
    }
}

impl KeyId {
    /// Generates a random id under an organization's tag. The caller must ensure that it is unused.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate(tag: OrgTag) -> Result<Self, getrandom::Error> {
        let mut id = random_base62::<KEY_ID_LENGTH>()?;
        id[..TAG_LENGTH].copy_from_slice(&tag.0);
        Ok(Self(id))
    }

    /// Number of characters, and of bytes.
    pub const LENGTH: usize = KEY_ID_LENGTH;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base62 is ASCII")
    }

    /// Its characters as bytes.
    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// The organization's tag.
    pub fn tag(&self) -> OrgTag {
        OrgTag([self.0[0], self.0[1], self.0[2]])
    }
}

impl InvalidId {
    pub(crate) fn of_length(expected: usize) -> Self {
        Self { expected }
    }
}

impl KeyDigest {
    /// Hashes a presented key, whole.
    pub fn of(presented: &[u8]) -> Self {
        Self(Sha256::digest(presented).into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest in 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Makes a digest from its 32 bytes, as it is stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Parses a digest from 64 hexadecimal digits, as `keygate key import --sha256` takes it.
    ///
    /// # Errors
    /// [`InvalidDigest`] when it is not 64 hexadecimal digits.
    pub fn from_hex(hex: &str) -> Result<Self, InvalidDigest> {
        let bytes = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).map_err(|_| InvalidDigest)?;
        bytes.try_into().map(Self).map_err(|_| InvalidDigest)
    }
}

impl PlainKey {
    /// Generates a key under a key id, with 256 bits of the operating system's randomness.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate(id: KeyId) -> Result<Self, getrandom::Error> {
        let secret = random_base62::<SECRET_LENGTH>()?;
        let secret = std::str::from_utf8(&secret).expect("base62 is ASCII");
        let mut text = String::with_capacity(KEY_LENGTH);
        text.push_str(PREFIX);
        text.push_str(id.as_str());
        text.push('_');
        text.push_str(secret);
        let checksum = checksum(text.as_bytes());
        text.push_str(std::str::from_utf8(&checksum).expect("base62 is ASCII"));
        Ok(Self { id, text: Secret::new(text) })
    }

    /// The public id.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The digest that is stored of the key.
    pub fn digest(&self) -> KeyDigest {
        KeyDigest::of(self.text.expose().as_bytes())
    }

    /// The plain text, to be shown once.
    pub fn expose(&self) -> &Secret {
        &self.text
    }
}

/// Parses the key id from a presented key. Returns none when the text has another format or a wrong checksum: it is
/// then an imported key, or no key at all.
pub fn parse(presented: &[u8]) -> Option<KeyId> {
    let body = presented.strip_prefix(PREFIX.as_bytes())?;
    if presented.len() != KEY_LENGTH || body[KEY_ID_LENGTH] != b'_' {
        return None;
    }
    let (covered, given) = presented.split_at(KEY_LENGTH - CHECKSUM_LENGTH);
    // Looks at all bytes, which the processor does for many at a time.
    let is_alphanumeric = |part: &[u8]| part.iter().fold(true, |all, byte| all & byte.is_ascii_alphanumeric());
    let (id, rest) = body.split_at(KEY_ID_LENGTH);
    let is_whole = is_alphanumeric(id) && is_alphanumeric(&rest[1..]) && checksum(covered) == given;
    is_whole.then_some(id)?.try_into().ok().map(KeyId)
}

impl PartialEq for KeyDigest {
    fn eq(&self, other: &Self) -> bool {
        digests_match(&self.0, &other.0)
    }
}

impl Eq for KeyDigest {}

impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let first: [u8; 8] = self.0[..8].try_into().expect("eight of thirty-two bytes");
        state.write_u64(u64::from_ne_bytes(first));
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

impl fmt::Debug for PlainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainKey({}, …)", self.id)
    }
}

base62_text!(OrgTag, TAG_LENGTH);
base62_text!(KeyId, KEY_ID_LENGTH);

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PlainKey {
        PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn generated_key_is_parsed() {
        let key = key();
        let text = key.expose().expose();
        assert_eq!(text.len(), KEY_LENGTH);
        assert!(text.starts_with("sk_live_"));
        assert_eq!(parse(text.as_bytes()), Some(key.id()));
        assert_eq!(&text[8..11], key.id().tag().as_str());
    }

    #[test]
    fn checksum_detects_every_changed_character() {
        let key = key();
        let text = key.expose().expose().as_bytes();
        for at in 0..text.len() {
            let mut changed = text.to_vec();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(parse(&changed), None, "position {at}");
        }
        assert_eq!(parse(&text[..text.len() - 1]), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn debug_shows_neither_key_nor_digest() {
        let key = key();
        let shown = format!("{key:?} {:?} {:?}", key.digest(), key.expose());
        assert!(!shown.contains(&key.expose().expose()[18..]));
        assert_eq!(shown, format!("PlainKey({}, …) KeyDigest(…) Secret(…)", key.id()));
    }

    #[test]
    fn digest_is_parsed_from_hex() {
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyDigest::from_hex(hex).unwrap(), KeyDigest::of(b"abc"));
        assert!(KeyDigest::from_hex(&hex[1..]).is_err());
        assert!(KeyDigest::from_hex(&hex.replace('b', "g")).is_err());
    }
}
