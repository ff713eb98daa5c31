//! Entity tags (ETag) of organizations, users and keys: strong validators (RFC 9110, section 8.8.3).
//!
//! - A tag is a digest of the record without its counters: it changes with every change of the record, and with no use
//!   of a key. A change back to the values of before brings the tag of before back.
//! - Both variants of the state give the same tag to equal records, also after a restart, and after an export and
//!   import that keeps all values. Another version of keygate may give other tags: `If-Match` fails then, and the
//!   caller reads the record again.
//! - Actors of keys, and the permissions that a key has from its user, are no part of the key's record.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{Key, Org, User};
use domain::quota::Quota;

/// Bytes of a tag: the beginning of a SHA-256.
const LENGTH: usize = 16;

/// Entity tag of a record. As text it is base64url, without the quotation marks of the header field.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ETag([u8; LENGTH]);

/// Error: the text is not the entity tag of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the entity tag of a record")]
pub struct InvalidETag;

impl ETag {
    /// The tag of no record: no digest is all zeros.
    pub const OF_NO_RECORD: Self = Self([0; 16]);

    /// The tag of an answer that shows a record with what is derived from others: the status of a key, for one.
    pub fn of_answer(answer: &impl Serialize) -> Self {
        Self::of("answer", answer)
    }

    /// The tag of a record of this kind.
    fn of(kind: &str, record: &impl Serialize) -> Self {
        let record = serde_json::to_vec(record).expect("a record is texts, numbers, and lists and maps of them");
        let digest: [u8; 32] =
            Sha256::new().chain_update(kind).chain_update([0]).chain_update(record).finalize().into();
        Self(std::array::from_fn(|index| digest[index]))
    }
}

impl Org {
    /// Its entity tag, which changes with every change of the organization.
    pub fn etag(&self) -> ETag {
        ETag::of("org", self)
    }
}

impl User {
    /// Its entity tag, which changes with every change of the user.
    pub fn etag(&self) -> ETag {
        ETag::of("user", self)
    }
}

impl Key {
    /// Its entity tag, which changes with every change of the key, and with no use of it.
    pub fn etag(&self) -> ETag {
        // The state file does not tell whether an own quota is strict: that follows the configured one.
        let quota = self.quota.map(|quota| Quota { strict: false, ..quota });
        ETag::of("key", &Self { quota, last_used: None, uses: 0, ..self.clone() })
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ETag({self})")
    }
}

impl FromStr for ETag {
    type Err = InvalidETag;

    fn from_str(text: &str) -> Result<Self, InvalidETag> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidETag)?;
        bytes.try_into().map(Self).map_err(|_| InvalidETag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_tag_is_read_back_and_another_text_refused() {
        let tag = ETag::of("org", &1);
        let text = tag.to_string();
        assert_eq!(text.len(), 22);
        assert_eq!(text.parse(), Ok(tag));
        for other in ["", "*", &text[1..], &format!("\"{text}\""), &format!("{text}AA")] {
            assert_eq!(other.parse::<ETag>(), Err(InvalidETag), "{other}");
        }
    }

    #[test]
    fn records_of_two_kinds_never_share_a_tag() {
        assert_ne!(ETag::of("org", &1), ETag::of("user", &1));
    }
}
