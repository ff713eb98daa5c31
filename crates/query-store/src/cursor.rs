//! Cursors: the position at which a sequence of pages continues, sealed so that clients can neither read nor forge it.
//!
//! A cursor is a [sealed token](domain::secret::SealedToken) of `snapshot 8, position 8, expiry 8`, with the prefix
//! `format 1, key id 1`. Prefix, endpoint and organization are associated data, so a token opens only for the list and
//! the organization that it was made for.
//!
//! - A text that differs from a sealed token in one bit, in length or in its base64 form is [`CursorError::Invalid`];
//!   only authentic tokens can be [`CursorError::Expired`].
//! - The first key of a [`Keyring`] seals, and all of them open. To rotate keys, put a new one first and remove the old
//!   one after the cursor lifetime. Cursors of a removed key are invalid.

use std::fmt;

use crate::store::{Bookmark, Version};
use domain::clock::Micros;
use domain::identity::OrgId;
use domain::secret::{SealedToken, Secret, TokenKey};

/// Version of the content; a change of it gets the next number.
const FORMAT: u8 = 1;
/// Bytes of the prefix: format and key id.
const PREFIX: usize = 2;
/// Bytes of the content.
const PLAIN: usize = 24;
/// Characters of a token.
const TEXT: usize = SealedToken::<PREFIX>::text_len(PLAIN);
/// Purpose of the keys.
const PURPOSE: &str = "query-store cursor key 1";
/// Minimum length of a key's secret in characters: 32 of base64 or hexadecimal are 128 bits at least.
pub const MIN_SECRET: usize = 32;

/// List and organization for which a cursor is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The list.
    pub endpoint: Endpoint,
    /// The organization.
    pub org: OrgId,
}

/// Lists that have cursors. The number is part of every token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `GET /api/queries`.
    Queries = 1,
}

/// Content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Snapshot and position at which the sequence continues.
    pub bookmark: Bookmark,
    /// Time from which on it is refused.
    pub expires: Micros,
}

/// A token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The token was not sealed by this service for this list and organization, or its key was removed.
    #[error("the cursor is not one that this service made for this organization and list")]
    Invalid,
    /// The token is authentic but too old.
    #[error("the cursor has expired")]
    Expired,
}

/// The keys are not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// There is no key.
    #[error("at least one cursor key is needed")]
    Empty,
    /// Two keys have the same id.
    #[error("cursor key {0} is given twice")]
    Duplicate(u8),
    /// A secret is too short.
    #[error("the secret of cursor key {0} has fewer than {MIN_SECRET} characters")]
    Short(u8),
}

/// Keys that seal and open cursors.
pub struct Keyring {
    /// Not empty; the first one seals; ids are unique.
    keys: Vec<Key>,
}

struct Key {
    id: u8,
    key: TokenKey,
}

impl Keyring {
    /// Creates a keyring from ids and secrets; the first key seals.
    ///
    /// # Errors
    /// [`KeyringError`].
    pub fn new<'a>(secrets: impl IntoIterator<Item = (u8, &'a Secret)>) -> Result<Self, KeyringError> {
        let mut keys: Vec<Key> = Vec::new();
        for (id, secret) in secrets {
            if keys.iter().any(|key| key.id == id) {
                return Err(KeyringError::Duplicate(id));
            }
            if secret.expose().chars().count() < MIN_SECRET {
                return Err(KeyringError::Short(id));
            }
            keys.push(Key { id, key: TokenKey::derive(PURPOSE, secret.expose().as_bytes()) });
        }
        if keys.is_empty() { Err(KeyringError::Empty) } else { Ok(Self { keys }) }
    }

    /// Seals a cursor into a token.
    ///
    /// # Errors
    /// If the operating system has no random numbers.
    pub fn seal(&self, scope: Scope, cursor: Cursor) -> Result<String, getrandom::Error> {
        let key = self.keys.first().expect("a keyring is not empty");
        let prefix = [FORMAT, key.id];
        key.key.seal(prefix, &associated(prefix, scope), &cursor.to_bytes())
    }

    /// Opens a token.
    ///
    /// # Errors
    /// [`CursorError`].
    pub fn open(&self, scope: Scope, token: &str, now: Micros) -> Result<Cursor, CursorError> {
        let cursor = self.authenticate(scope, token).ok_or(CursorError::Invalid)?;
        if now >= cursor.expires { Err(CursorError::Expired) } else { Ok(cursor) }
    }

    /// Decrypts a token; `None` when any part of it is not as it was sealed.
    fn authenticate(&self, scope: Scope, token: &str) -> Option<Cursor> {
        // All tokens have one length, so a client cannot make the service decode a large text.
        let token = SealedToken::<PREFIX>::decode(token, TEXT)?;
        let key = self.keys.iter().find(|key| token.prefix == [FORMAT, key.id])?;
        Cursor::from_bytes(&key.key.open(&token, &associated(token.prefix, scope))?)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| key.id)).finish()
    }
}

impl Cursor {
    fn to_bytes(self) -> [u8; PLAIN] {
        let fields =
            [self.bookmark.snapshot.0.to_be_bytes(), self.bookmark.after.0.to_be_bytes(), self.expires.0.to_be_bytes()];
        let mut bytes = [0; PLAIN];
        bytes.copy_from_slice(fields.as_flattened());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (fields, []) = bytes.as_chunks::<8>() else { return None };
        let [snapshot, after, expires] = *fields else { return None };
        let bookmark =
            Bookmark { snapshot: Version(i64::from_be_bytes(snapshot)), after: Version(i64::from_be_bytes(after)) };
        Some(Self { bookmark, expires: Micros(u64::from_be_bytes(expires)) })
    }
}

/// The associated data of a token. Its length is fixed, so no two scopes have the same.
fn associated(prefix: [u8; PREFIX], scope: Scope) -> Vec<u8> {
    [&prefix[..], &[scope.endpoint as u8], scope.org.to_string().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const NOW: Micros = Micros(1_000_000);

    fn keyring(ids: &[u8]) -> Keyring {
        let secrets: Vec<(u8, Secret)> =
            ids.iter().map(|id| (*id, Secret::new(format!("{id:032} random enough for a test")))).collect();
        Keyring::new(secrets.iter().map(|(id, secret)| (*id, secret))).unwrap()
    }

    fn scope() -> Scope {
        Scope { endpoint: Endpoint::Queries, org: "org_0123456789abcdef0123456789abcdef".parse().unwrap() }
    }

    fn cursor() -> Cursor {
        Cursor { bookmark: Bookmark { snapshot: Version(500), after: Version(41) }, expires: Micros(NOW.0 + 1) }
    }

    #[test]
    fn sealed_cursor_opens_until_it_expires() {
        let keyring = keyring(&[1]);
        let token = keyring.seal(scope(), cursor()).unwrap();
        assert_eq!(token.len(), TEXT);
        assert_eq!(keyring.open(scope(), &token, NOW), Ok(cursor()));
        assert_eq!(keyring.open(scope(), &token, cursor().expires), Err(CursorError::Expired));
        assert_ne!(keyring.seal(scope(), cursor()).unwrap(), token, "nonces are fresh");
    }

    #[test]
    fn token_with_a_flipped_bit_is_invalid() {
        let keyring = keyring(&[1, 0, 3]);
        let token = keyring.seal(scope(), cursor()).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let text = URL_SAFE_NO_PAD.encode(flipped);
            assert_eq!(keyring.open(scope(), &text, NOW), Err(CursorError::Invalid), "bit {bit}");
        }
    }

    #[test]
    fn text_that_is_no_token_is_invalid() {
        let keyring = keyring(&[1]);
        let token = keyring.seal(scope(), cursor()).unwrap();
        let invalid = |text: &str| assert_eq!(keyring.open(scope(), text, NOW), Err(CursorError::Invalid), "{text:?}");
        for at in 0..token.len() {
            invalid(&token[..at]);
            for other in ["-", "+", "=", "%", "é"] {
                invalid(&format!("{}{other}{}", &token[..at], &token[at..]));
            }
        }
        for end in ["=", "==", "A", "AA", "AAAA", "\n", " "] {
            invalid(&format!("{token}{end}"));
        }
        invalid(&URL_SAFE_NO_PAD.encode([URL_SAFE_NO_PAD.decode(&token).unwrap(), vec![0]].concat()));
    }

    #[test]
    fn token_is_bound_to_its_organization() {
        let keyring = keyring(&[1]);
        let token = keyring.seal(scope(), cursor()).unwrap();
        let other = Scope { org: OrgId::generate(), ..scope() };
        assert_eq!(keyring.open(other, &token, NOW), Err(CursorError::Invalid));
    }

    #[test]
    fn keys_can_be_rotated() {
        let old = keyring(&[1]).seal(scope(), cursor()).unwrap();
        let both = keyring(&[2, 1]);
        assert_eq!(both.open(scope(), &old, NOW), Ok(cursor()));
        let new = both.seal(scope(), cursor()).unwrap();
        let rotated = keyring(&[2]);
        assert_eq!(rotated.open(scope(), &new, NOW), Ok(cursor()));
        assert_eq!(rotated.open(scope(), &old, NOW), Err(CursorError::Invalid));
    }

    #[test]
    fn unusable_keys_are_refused() {
        let good = Secret::new("x".repeat(MIN_SECRET));
        let short = Secret::new("x".repeat(MIN_SECRET - 1));
        assert_eq!(Keyring::new([]).unwrap_err(), KeyringError::Empty);
        assert_eq!(Keyring::new([(1, &good), (1, &good)]).unwrap_err(), KeyringError::Duplicate(1));
        assert_eq!(Keyring::new([(1, &good), (2, &short)]).unwrap_err(), KeyringError::Short(2));
    }
}
