//! Text of a management token: generation, parsing, and the public id in it.

use std::fmt;

use crate::base62::{CHECKSUM_LENGTH, SECRET_LENGTH, base62_text, checksum, random_base62};
use crate::secret::Secret;
use crate::session::TokenDigest;

use super::PREFIX;

/// Characters of a token id.
const ID_LENGTH: usize = 10;
/// Characters of a whole token.
const LENGTH: usize = PREFIX.len() + ID_LENGTH + 1 + SECRET_LENGTH + CHECKSUM_LENGTH;

/// The public id of a management token: ten base62 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId([u8; ID_LENGTH]);

/// A management token in plain text. It exists only from its generation until it is shown to its creator, once.
pub struct PlainToken {
    id: TokenId,
    text: Secret,
}

impl TokenId {
    /// Number of characters, and of bytes.
    pub const LENGTH: usize = ID_LENGTH;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base62 is ASCII")
    }
}

impl PlainToken {
    /// Generates a token, with 256 bits of the operating system's randomness.
    ///
    /// # Errors
    /// The operating system provides no randomness.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let id = TokenId(random_base62()?);
        let secret = random_base62::<SECRET_LENGTH>()?;
        let secret = std::str::from_utf8(&secret).expect("base62 is ASCII");
        let mut text = String::with_capacity(LENGTH);
        text.extend([PREFIX, id.as_str(), "_", secret]);
        let checksum = checksum(text.as_bytes());
        text.push_str(std::str::from_utf8(&checksum).expect("base62 is ASCII"));
        Ok(Self { id, text: Secret::new(text) })
    }

    /// The public id.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The digest that is stored of the token.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of(self.text.expose().as_bytes())
    }

    /// The plain text, to be shown once.
    pub fn expose(&self) -> &Secret {
        &self.text
    }
}

/// Parses the id from a presented token. Returns none when the text has another format or a wrong checksum.
pub fn parse(presented: &[u8]) -> Option<TokenId> {
    let body = presented.strip_prefix(PREFIX.as_bytes())?;
    if presented.len() != LENGTH || body[ID_LENGTH] != b'_' {
        return None;
    }
    let (covered, given) = presented.split_at(LENGTH - CHECKSUM_LENGTH);
    let (id, secret) = body.split_at(ID_LENGTH);
    let is_alphanumeric = id.iter().chain(&secret[1..]).all(u8::is_ascii_alphanumeric);
    (is_alphanumeric && checksum(covered) == given).then_some(id)?.try_into().ok().map(TokenId)
}

/// The digest of a token as 64 hexadecimal digits.
pub(super) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::key::KeyDigest;
    use crate::session::TokenDigest;

    pub(in super::super) fn serialize<S: Serializer>(digest: &TokenDigest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&KeyDigest::from_bytes(*digest.as_bytes()).to_hex())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TokenDigest, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let digest = KeyDigest::from_hex(&digits).map_err(de::Error::custom)?;
        Ok(TokenDigest::from_bytes(*digest.as_bytes()))
    }
}

impl fmt::Debug for PlainToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainToken({}, …)", self.id)
    }
}

base62_text!(TokenId, ID_LENGTH);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{self, KeyId, OrgTag, PlainKey};

    #[test]
    fn generated_token_is_parsed_and_every_changed_character_detected() {
        let token = PlainToken::generate().unwrap();
        let text = token.expose().expose();
        assert_eq!(text.len(), 64);
        assert_eq!(parse(text.as_bytes()), Some(token.id()));
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(parse(&changed), None, "position {at}");
        }
        assert_eq!(parse(&text.as_bytes()[..63]), None);
    }

    #[test]
    fn token_is_no_key_and_a_key_no_token() {
        let token = PlainToken::generate().unwrap();
        assert_eq!(key::parse(token.expose().expose().as_bytes()), None);
        let api_key = PlainKey::generate(KeyId::generate(OrgTag::generate().unwrap()).unwrap()).unwrap();
        assert_eq!(parse(api_key.expose().expose().as_bytes()), None);
    }

    #[test]
    fn debug_shows_the_id_alone() {
        let token = PlainToken::generate().unwrap();
        assert_eq!(format!("{token:?} {:?}", token.expose()), format!("PlainToken({}, …) Secret(…)", token.id()));
    }
}
