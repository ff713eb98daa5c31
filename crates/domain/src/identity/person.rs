//! Persons: whom sessions, requests and reads are bounded by.
//!
//! - A person is the subject (`sub`) of an issuer (OpenID Connect Core 1.0, section 2), in all organizations and
//!   sessions. Email addresses are displayed and name entries of the directory; no bound goes by them, because each
//!   provider claims them by itself.
//! - A person who signs in with a link is the user whom the link names.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use super::UserId;
use crate::management_token::TokenId;

/// A person, as a SHA-256: of bounded size, whatever a provider takes for a subject. Its text is hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PersonId([u8; 32]);

/// The identity provider whose claims last named an organization for a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Voucher {
    /// Name of the provider in the configuration.
    pub provider: String,
    /// The person at this provider.
    pub person: PersonId,
}

/// Error: a text is not 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a person is 64 hexadecimal digits")]
pub struct InvalidPerson;

impl PersonId {
    /// The person with this `sub` at this issuer.
    pub fn from_subject(issuer: &str, subject: &str) -> Self {
        // An issuer is a URL, which has no NUL.
        Self::hash(&[b"subject", issuer.as_bytes(), subject.as_bytes()])
    }

    /// The person whom a sign-in link names.
    pub fn from_user(user: UserId) -> Self {
        Self::hash(&[b"user", user.as_bytes()])
    }

    /// The program that has a management token, where people and programs take turns.
    pub fn from_token(token: TokenId) -> Self {
        Self::hash(&[b"token", token.as_str().as_bytes()])
    }

    fn hash(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
            hash.update([0]);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for PersonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for PersonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PersonId {
    type Err = InvalidPerson;

    fn from_str(text: &str) -> Result<Self, InvalidPerson> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| InvalidPerson)?;
        bytes.try_into().map(Self).map_err(|_| InvalidPerson)
    }
}

impl Serialize for PersonId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PersonId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn person_is_the_subject_of_one_issuer() {
        let ada = PersonId::from_subject("https://a.example", "ada");
        assert_eq!(ada, PersonId::from_subject("https://a.example", "ada"));
        let user = UserId::generate();
        let others = [
            PersonId::from_subject("https://b.example", "ada"),
            PersonId::from_subject("https://a.example", "bob"),
            PersonId::from_subject("https://a.example/", "ada"),
            PersonId::from_user(user),
            PersonId::from_user(UserId::generate()),
        ];
        assert!(others.iter().all(|other| *other != ada));
        assert_eq!(PersonId::from_user(user), others[3]);
        assert_eq!(ada.to_string().parse(), Ok(ada));
        assert_eq!(serde_json::from_str::<PersonId>(&serde_json::to_string(&ada).unwrap()).unwrap(), ada);
        for bad in ["", "ab", &"g".repeat(64), &ada.to_string().to_uppercase()] {
            assert_eq!(bad.parse::<PersonId>(), Err(InvalidPerson), "{bad}");
        }
    }
}
