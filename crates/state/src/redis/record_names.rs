//! Names of the records in Redis, and their hash slots on a Cluster.
//!
//! | record | name | type |
//! |---|---|---|
//! | organization, with its slots and their leases | `P:{tag}:org` | hash |
//! | its users, in the order of their creation | `P:{tag}:users` | list of ids |
//! | its listed keys that are revoked, by the time of their revocation | `P:{tag}:revoked` | sorted set of ids |
//! | its email addresses | `P:{tag}:emails` | hash to user ids |
//! | user, with the bucket of the keys that the user creates | `P:{tag}:user:ID` | hash |
//! | a user's keys that are not revoked | `P:{tag}:user:ID:keys` | set of ids |
//! | keys of an organization or a user by creation time, for lists | `P:{tag}:keys:listed`, `P:{tag}:user:ID:keys:listed` | sorted sets of ids |
//! | key, with its bucket | `P:{tag}:key:ID` | hash |
//! | slots of a key that has a limit of its own, and their leases | `P:{tag}:key:ID:slots` | hash that expires |
//! | who created, rotated and revoked the keys of an organization | `P:{tag}:keys:actors` | hash: the time and the actor by key and event |
//! | federation rules of an organization | `P:{tag}:federation` | hash: JSON by name |
//! | bucket of a rule, tokens that were exchanged by it | `P:{tag}:federation:NAME`, `P:{tag}:federation:NAME:HEX` | hashes that expire |
//! | listed keys of rules, by the time at which they leave the lists | `P:{tag}:federation-keys` | sorted set of ids |
//! | reported uses that had been admitted offline | `P:{tag}:debts` | hash that expires |
//! | all organizations, in the order of their creation | `P:{orgs}:list` | list of ids |
//! | their tags, their names, the looks of their names | `P:{orgs}:tags`, `P:{orgs}:names`, `P:{orgs}:looks` | hashes |
//! | secret of the cursors of lists | `P:{orgs}:cursor_secret` | 32 bytes |
//! | users with an email address | `P:email:HEX` | set of "organization user" |
//! | version of the looks that all organizations have | `P:{orgs}:looks-indexed` | text |
//! | version of this layout | `P:{orgs}:format` | hash |
//! | owner of a key digest, present or past | `P:digest:HEX` | hash: the key's id, and the time of the claim |
//! | live gateways | `P:{gateways}` | hash |
//! | whether gateways are missing there | `P:{gateways}:registry` | hash |
//! | signs of life of a server, by the first number whose hash slot it has | `P:{alive:NUMBER}` | hash that expires |
//! | web session | `P:session:HEX` | hash that expires |
//! | digests of sessions by session id | `P:{sessions}:digests` | hash |
//! | ends of sessions | `P:{sessions}:ends` | sorted set of ids |
//! | sessions of a person, of an organization, by their ends | `P:{sessions}:person:HEX`, `P:{sessions}:org:ID` | sorted sets of ids that expire |
//! | management tokens by id, and the times at which they expire | `P:{tokens}:records`, `P:{tokens}:ends` | hash, sorted set |
//! | management tokens of an organization, by the times at which they expire | `P:{tokens}:ends:ORG` | sorted set |
//! | last uses of management tokens by id, and the times at which the tokens expire | `P:{tokens}:uses`, `P:{tokens}:uses:ends` | hash, sorted set |
//! | places in which a management token has changed something, and its grant in each | `P:{tokens}:places:ID`, `P:{orgs}:token:ID`, `P:{tokens}:token:ID`, `P:{tag}:token:ID` | set, hashes; they expire |
//! | ticket | `P:ticket:HEX` | hash that expires |
//! | request with an idempotency key, that creates an organization, or any other | `P:{orgs}:idempotency:HEX`, `P:{tag}:idempotency:HEX` | hashes that expire |
//! | live idempotency records of a management token, by their ends | `P:{TOKEN}:idempotency` | sorted set that expires |
//! | revocation log: entries by number, and the last number; identity of the state, with its last change | `P:{revocations}` | hash |
//! | identity of the state that gateways miss here | `P:{revocations}:missed` | text that expires |
//!
//! `P` is the configured prefix. A key's id begins with the organization's tag. So everything that one decision or one
//! change reads and writes is in one hash slot, which is known before anything is looked up; organizations spread over
//! all hash slots.

use data_encoding::HEXLOWER;

use crate::IdempotencyPlace;
use domain::identity::{OrgId, PersonId, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::TokenId;
use domain::session::TokenDigest;

/// Names of the records of one deployment.
#[derive(Clone, Debug)]
pub struct RecordNames {
    prefix: Box<str>,
}

impl RecordNames {
    /// Names with this prefix.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// An organization.
    pub fn org(&self, tag: OrgTag) -> String {
        self.of_org(tag, "org")
    }

    pub(crate) fn users(&self, tag: OrgTag) -> String {
        self.of_org(tag, "users")
    }

    pub(super) fn revoked_keys(&self, tag: OrgTag) -> String {
        self.of_org(tag, "revoked")
    }

    pub(crate) fn emails(&self, tag: OrgTag) -> String {
        self.of_org(tag, "emails")
    }

    /// Reported uses of an organization's keys that had been admitted offline.
    pub fn reported_uses(&self, tag: OrgTag) -> String {
        self.of_org(tag, "debts")
    }

    pub(crate) fn user(&self, tag: OrgTag, user: UserId) -> String {
        self.of_org(tag, &format!("user:{user}"))
    }

    pub(crate) fn keys_of(&self, tag: OrgTag, user: UserId) -> String {
        self.of_org(tag, &format!("user:{user}:keys"))
    }

    /// Keys of an organization, or of one of its users, by creation time; session quota keys at 0.
    pub(crate) fn listed_keys(&self, tag: OrgTag, owner: Option<UserId>) -> String {
        owner.map_or_else(|| self.of_org(tag, "keys:listed"), |user| format!("{}:listed", self.keys_of(tag, user)))
    }

    /// A key.
    pub fn key(&self, key: KeyId) -> String {
        self.of_org(key.tag(), &format!("key:{}", key.as_str()))
    }

    /// Slots of a key that has a limit of requests in flight of its own.
    pub fn key_slots(&self, key: KeyId) -> String {
        format!("{}:slots", self.key(key))
    }

    pub(super) fn key_actors(&self, tag: OrgTag) -> String {
        self.of_org(tag, "keys:actors")
    }

    /// The federation rules of an organization.
    pub(super) fn federation_rules(&self, tag: OrgTag) -> String {
        self.of_org(tag, "federation")
    }

    /// The bucket of a federation rule.
    pub(super) fn federation_bucket(&self, tag: OrgTag, rule: &str) -> String {
        self.of_org(tag, &format!("federation:{rule}"))
    }

    /// A token that was exchanged by a federation rule.
    pub(super) fn federation_token(&self, tag: OrgTag, rule: &str, token: &TokenDigest) -> String {
        self.of_org(tag, &format!("federation:{rule}:{}", hex(token.as_bytes())))
    }

    /// The listed keys of federation rules.
    pub(super) fn federation_keys(&self, tag: OrgTag) -> String {
        self.of_org(tag, "federation-keys")
    }

    pub(crate) fn digest(&self, digest: &KeyDigest) -> String {
        format!("{}{}", self.digests(), hex(digest.as_bytes()))
    }

    /// The beginning of the names of all digests.
    pub(super) fn digests(&self) -> String {
        format!("{}:digest:", self.prefix)
    }

    pub(crate) fn orgs(&self) -> String {
        format!("{}:{{orgs}}:list", self.prefix)
    }

    /// Tags of the organizations, by their ids.
    pub fn tags(&self) -> String {
        format!("{}:{{orgs}}:tags", self.prefix)
    }

    pub(crate) fn names(&self) -> String {
        format!("{}:{{orgs}}:names", self.prefix)
    }

    /// Ids of organizations by the looks of their names.
    pub(crate) fn looks(&self) -> String {
        format!("{}:{{orgs}}:looks", self.prefix)
    }

    /// Version of the looks that all organizations have in [`RecordNames::looks`].
    pub(super) fn looks_indexed(&self) -> String {
        format!("{}:{{orgs}}:looks-indexed", self.prefix)
    }

    /// Version of the layout of all records.
    pub(super) fn format(&self) -> String {
        format!("{}:{{orgs}}:format", self.prefix)
    }

    pub(super) fn cursor_secret(&self) -> String {
        format!("{}:{{orgs}}:cursor_secret", self.prefix)
    }

    /// Facts about the record of the live gateways, by which it is known to lack some.
    pub fn registry(&self) -> String {
        format!("{}:registry", self.gateways())
    }

    /// Live gateways.
    pub fn gateways(&self) -> String {
        format!("{}:{{gateways}}", self.prefix)
    }

    /// Signs of life of the server that has the hash slot of this name.
    pub(super) fn sign_of_life(&self, number: u16) -> String {
        format!("{}:{{alive:{number}}}", self.prefix)
    }

    /// The record of the session with this digest.
    pub fn session(&self, digest: &TokenDigest) -> String {
        format!("{}:session:{}", self.prefix, hex(digest.as_bytes()))
    }

    pub(super) fn sessions(&self) -> String {
        format!("{}:{{sessions}}:digests", self.prefix)
    }

    pub(super) fn session_ends(&self) -> String {
        format!("{}:{{sessions}}:ends", self.prefix)
    }

    pub(super) fn sessions_of_person(&self, person: &PersonId) -> String {
        format!("{}:{{sessions}}:person:{person}", self.prefix)
    }

    pub(super) fn sessions_of_org(&self, org: OrgId) -> String {
        format!("{}:{{sessions}}:org:{org}", self.prefix)
    }

    /// By a hash of the address: it may have any characters, and braces would choose the hash slot.
    pub(super) fn users_by_email(&self, email: &str) -> String {
        format!("{}:email:{}", self.prefix, hex(TokenDigest::of(email.as_bytes()).as_bytes()))
    }

    pub(super) fn users_by_person(&self, person: &PersonId) -> String {
        format!("{}:person:{person}", self.prefix)
    }

    /// Management tokens by id.
    pub fn management_tokens(&self) -> String {
        format!("{}:{{tokens}}:records", self.prefix)
    }

    /// Last uses of management tokens by id.
    pub(super) fn token_uses(&self) -> String {
        format!("{}:{{tokens}}:uses", self.prefix)
    }

    /// Ids of management tokens that were used, by the times at which they expire.
    pub(super) fn token_use_ends(&self) -> String {
        format!("{}:{{tokens}}:uses:ends", self.prefix)
    }

    /// Grant of a management token in the hash slot of what it changes.
    pub(super) fn token_grant(&self, place: IdempotencyPlace, token: TokenId) -> String {
        match place {
            IdempotencyPlace::Installation => format!("{}:{{orgs}}:token:{token}", self.prefix),
            IdempotencyPlace::Tokens => format!("{}:{{tokens}}:token:{token}", self.prefix),
            IdempotencyPlace::Org(tag) => self.of_org(tag, &format!("token:{token}")),
        }
    }

    /// Places in which a management token has a grant.
    pub(super) fn token_places(&self, token: TokenId) -> String {
        format!("{}:{{tokens}}:places:{token}", self.prefix)
    }

    /// Ids of management tokens by the times at which they expire.
    pub(super) fn management_token_ends(&self) -> String {
        format!("{}:{{tokens}}:ends", self.prefix)
    }

    /// The same, of the tokens of one organization.
    pub(super) fn management_token_ends_of(&self, org: OrgId) -> String {
        format!("{}:{{tokens}}:ends:{org}", self.prefix)
    }

    pub(super) fn ticket(&self, digest: &TokenDigest) -> String {
        format!("{}:ticket:{}", self.prefix, hex(digest.as_bytes()))
    }

    /// The record of a request with an idempotency key.
    pub(super) fn idempotency(&self, place: IdempotencyPlace, id: &[u8; 32]) -> String {
        match place {
            IdempotencyPlace::Installation => format!("{}:{{orgs}}:idempotency:{}", self.prefix, hex(id)),
            IdempotencyPlace::Tokens => format!("{}:{{tokens}}:idempotency:{}", self.prefix, hex(id)),
            IdempotencyPlace::Org(tag) => self.of_org(tag, &format!("idempotency:{}", hex(id))),
        }
    }

    /// Live idempotency records of a caller, by their ends.
    pub(super) fn idempotency_of(&self, caller: &str) -> String {
        format!("{}:{{{caller}}}:idempotency", self.prefix)
    }

    /// Revocation log.
    pub fn revocations(&self) -> String {
        format!("{}:{{revocations}}", self.prefix)
    }

    /// Identity of the state that gateways remember and do not find.
    pub fn missed_state(&self) -> String {
        format!("{}:missed", self.revocations())
    }

    /// Written on every connect, to check that writing works and is fast enough; it expires.
    pub(super) fn probe(&self) -> String {
        format!("{}:probe", self.prefix)
    }

    /// Names of a key and of its organization, with this hash tag; there are no such records.
    pub(super) fn of_no_key(&self, tag: &str) -> [String; 2] {
        ["none", "org"].map(|rest| format!("{}:{{{tag}}}:{rest}", self.prefix))
    }

    fn of_org(&self, tag: OrgTag, rest: &str) -> String {
        format!("{}:{{{}}}:{rest}", self.prefix, tag.as_str())
    }
}

/// The digest of a token from 64 hexadecimal digits.
pub(super) fn token_digest(hex: &str) -> Option<TokenDigest> {
    KeyDigest::from_hex(hex).ok().map(|digest| TokenDigest::from_bytes(*digest.as_bytes()))
}

/// A digest as 64 hexadecimal digits.
pub(crate) fn hex(digest: &[u8; 32]) -> String {
    HEXLOWER.encode(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_an_organization_have_its_tag_as_hash_tag() {
        let names = RecordNames::new("p");
        let tag = OrgTag::generate().unwrap();
        let key = KeyId::generate(tag).unwrap();
        assert_eq!(names.org(tag), format!("p:{{{}}}:org", tag.as_str()));
        assert!(names.key(key).starts_with(&format!("p:{{{}}}:key:{}", tag.as_str(), tag.as_str())));
    }
}
