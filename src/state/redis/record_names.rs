//! The names of the records, and where a Cluster places them.
//!
//! | record | name | type |
//! |---|---|---|
//! | organization, with its slots and their holders | `P:{tag}:org` | hash |
//! | its users and keys, in the order of their creation | `P:{tag}:users`, `P:{tag}:keys` | lists of ids |
//! | its email addresses | `P:{tag}:emails` | hash to user ids |
//! | user | `P:{tag}:user:ID` | hash |
//! | a user's keys | `P:{tag}:user:ID:keys` | set of ids |
//! | key, with its bucket | `P:{tag}:key:ID` | hash |
//! | uses that were decided without Redis and paid since | `P:{tag}:debts` | hash that expires |
//! | all organizations, in the order of their creation | `P:{orgs}:list` | list of ids |
//! | their tags, their names | `P:{orgs}:tags`, `P:{orgs}:names` | hashes |
//! | which key has, or had, a digest | `P:digest:HEX` | hash: the key's id, and when it was claimed |
//! | the gateways that live | `P:{gateways}` | hash |
//! | web session | `P:session:HEX` | hash that expires |
//! | the digests of sessions, by their ids | `P:{sessions}:digests` | hash |
//! | when sessions end | `P:{sessions}:ends` | sorted set of ids |
//! | ticket | `P:ticket:HEX` | hash that expires |
//!
//! `P` is the configured prefix. A key's id begins with the organization's tag, so everything that one decision or one
//! change reads and writes is in one slot, found before anything is looked up; organizations spread over all slots.

use crate::identity::UserId;
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::session::TokenDigest;

/// The slots of a Cluster.
const SLOTS: u16 = 16384;

/// The names of the records of one deployment.
#[derive(Clone, Debug)]
pub(super) struct RecordNames {
    prefix: Box<str>,
}

/// The slot that a Cluster places a hash tag in: CRC-16/XMODEM modulo 16384 (Redis Cluster specification).
pub(super) fn hash_slot(hash_tag: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(hash_tag.as_bytes()) % SLOTS
}

impl RecordNames {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    pub(super) fn org(&self, tag: OrgTag) -> String {
        self.of(tag, "org")
    }

    pub(super) fn users(&self, tag: OrgTag) -> String {
        self.of(tag, "users")
    }

    pub(super) fn keys(&self, tag: OrgTag) -> String {
        self.of(tag, "keys")
    }

    pub(super) fn emails(&self, tag: OrgTag) -> String {
        self.of(tag, "emails")
    }

    pub(super) fn debts(&self, tag: OrgTag) -> String {
        self.of(tag, "debts")
    }

    pub(super) fn user(&self, tag: OrgTag, user: UserId) -> String {
        self.of(tag, &format!("user:{user}"))
    }

    pub(super) fn keys_of(&self, tag: OrgTag, user: UserId) -> String {
        self.of(tag, &format!("user:{user}:keys"))
    }

    pub(super) fn key(&self, key: KeyId) -> String {
        self.of(key.tag(), &format!("key:{}", key.as_str()))
    }

    pub(super) fn digest(&self, digest: &KeyDigest) -> String {
        format!("{}:digest:{}", self.prefix, hex(digest.as_bytes()))
    }

    pub(super) fn orgs(&self) -> String {
        format!("{}:{{orgs}}:list", self.prefix)
    }

    pub(super) fn tags(&self) -> String {
        format!("{}:{{orgs}}:tags", self.prefix)
    }

    pub(super) fn names(&self) -> String {
        format!("{}:{{orgs}}:names", self.prefix)
    }

    pub(super) fn gateways(&self) -> String {
        format!("{}:{{gateways}}", self.prefix)
    }

    pub(super) fn session(&self, digest: &TokenDigest) -> String {
        format!("{}:session:{}", self.prefix, hex(digest.as_bytes()))
    }

    pub(super) fn sessions(&self) -> String {
        format!("{}:{{sessions}}:digests", self.prefix)
    }

    pub(super) fn session_ends(&self) -> String {
        format!("{}:{{sessions}}:ends", self.prefix)
    }

    pub(super) fn ticket(&self, digest: &TokenDigest) -> String {
        format!("{}:ticket:{}", self.prefix, hex(digest.as_bytes()))
    }

    /// Written by whoever connects, to see whether writing works; it expires.
    pub(super) fn probe(&self) -> String {
        format!("{}:probe", self.prefix)
    }

    fn of(&self, tag: OrgTag, rest: &str) -> String {
        format!("{}:{{{}}}:{rest}", self.prefix, tag.as_str())
    }
}

/// The slot of the records of all organizations.
pub(super) fn orgs_slot() -> u16 {
    hash_slot("orgs")
}

/// The slot of the gateways.
pub(super) fn gateways_slot() -> u16 {
    hash_slot("gateways")
}

/// The slot of the index of sessions.
pub(super) fn sessions_slot() -> u16 {
    hash_slot("sessions")
}

/// The digest of a token from 64 hexadecimal digits.
pub(super) fn token_digest(hex: &str) -> Option<TokenDigest> {
    KeyDigest::from_hex(hex).ok().map(|digest| TokenDigest::from_bytes(*digest.as_bytes()))
}

/// A digest as 64 hexadecimal digits.
pub(super) fn hex(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::with_capacity(64), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_as_a_cluster_computes_them() {
        // `CLUSTER KEYSLOT 123456789` and the example of the specification.
        assert_eq!(hash_slot("123456789"), 0x31C3);
        assert_eq!(hash_slot("foo"), 12182);
    }

    #[test]
    fn all_of_an_organization_has_its_tag() {
        let record_names = RecordNames::new("p");
        let tag = OrgTag::generate().unwrap();
        let key = KeyId::generate(tag).unwrap();
        assert_eq!(record_names.org(tag), format!("p:{{{}}}:org", tag.as_str()));
        assert!(record_names.key(key).starts_with(&format!("p:{{{}}}:key:{}", tag.as_str(), tag.as_str())));
    }
}
