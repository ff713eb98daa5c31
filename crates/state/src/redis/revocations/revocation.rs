//! A withdrawal that a failover may undo, and how it is written to Redis again.
//!
//! - **Final** ones (revocations, removals, ends) are written where the record lacks them.
//! - Those that can be taken back (a key is disabled, a user or an organization suspended) and rotations are numbered
//!   in the record that they change. One is written where the record has a smaller number: so it undoes nothing that
//!   came after it.

use crate::redis::record_codec::ended_membership;
use crate::redis::record_names::{RecordNames, hex};
use crate::redis::slot_numbers::org_slot;
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::policy::Disabled;
use domain::key::{KeyDigest, KeyId, OrgTag};
use domain::management_token::TokenId;
use domain::session::TokenDigest;
use redis_client::hash_slot;

/// A withdrawal. Repeating it undoes nothing that was changed since.
#[derive(Clone, Debug)]
pub enum Revocation {
    /// Revocation of a key.
    Key {
        /// The key.
        key: KeyId,
        /// Time of its revocation.
        at: Micros,
    },
    /// Removal of a user, and so of all keys of the user. The address is known to the gateway that removed the user.
    User {
        /// Tag of the user's organization.
        tag: OrgTag,
        /// The user.
        user: UserId,
        /// The address, where it is known.
        email: Option<String>,
        /// Time of the removal.
        at: Micros,
    },
    /// End of a session.
    Session(TokenDigest),
    /// End of a session's membership in an organization.
    Membership(TokenDigest, OrgId),
    /// Revocation of a management token.
    Token {
        /// The token.
        token: TokenId,
        /// Time of its revocation.
        at: Micros,
    },
    /// Removal of a federation rule; of another one with its name the time of creation is another.
    Rule {
        /// Tag of its organization.
        tag: OrgTag,
        /// Its name.
        name: String,
        /// Time of its creation.
        created: Micros,
    },
    /// Disabling of a key: that with this number.
    Disabled {
        /// The key.
        key: KeyId,
        /// Its number among those of the key, from 1.
        number: u64,
        /// The mark.
        disabled: Disabled,
    },
    /// Suspension of a user: that with this number.
    SuspendedUser {
        /// Tag of the user's organization.
        tag: OrgTag,
        /// The user.
        user: UserId,
        /// Its number among those of the user, from 1.
        number: u64,
        /// Time of the suspension.
        at: Micros,
    },
    /// Suspension of an organization: that with this number.
    SuspendedOrg {
        /// The organization.
        tag: OrgTag,
        /// Its number among those of the organization, from 1.
        number: u64,
    },
    /// Rotation of a key, which ends the secrets before the one that it replaced.
    Rotation {
        /// The key.
        key: KeyId,
        /// Its number among those of the key, from 1.
        number: u64,
        /// SHA-256 of the new secret, and of the replaced one.
        digests: [KeyDigest; 2],
        /// Time of the rotation, and the time until which the replaced secret is valid.
        times: [Micros; 2],
    },
    /// The digest of the new secret of a rotation is its key's.
    Digest {
        /// The digest.
        digest: KeyDigest,
        /// The key.
        key: KeyId,
        /// Time of the rotation.
        at: Micros,
    },
}

/// The subject of a revocation: of two revocations of the same subject that with the larger number counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    Key(KeyId),
    User(UserId),
    Session([u8; 32]),
    Membership([u8; 32], OrgId),
    Token(TokenId),
    /// By the SHA-256 of what names it.
    Rule([u8; 32]),
    Disabled(KeyId),
    SuspendedUser(UserId),
    SuspendedOrg(OrgTag),
    Rotation(KeyId),
    Digest([u8; 32]),
}

impl Subject {
    /// A federation rule.
    pub(crate) fn rule(tag: OrgTag, name: &str, created: Micros) -> Self {
        Self::Rule(*TokenDigest::of(format!("{tag} {name} {}", created.0).as_bytes()).as_bytes())
    }

    /// Returns true when look-ups of sessions have to obey it.
    pub(super) fn is_of_session(self) -> bool {
        matches!(self, Self::Session(_) | Self::Membership(..))
    }
}

/// A write of `assert_revocations.lua`: a record, and what to write to it.
pub type Write = (String, String);

impl Revocation {
    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Key { key, .. } => Subject::Key(*key),
            Self::User { user, .. } => Subject::User(*user),
            Self::Session(digest) => Subject::Session(*digest.as_bytes()),
            Self::Membership(digest, org) => Subject::Membership(*digest.as_bytes(), *org),
            Self::Token { token, .. } => Subject::Token(*token),
            Self::Rule { tag, name, created } => Subject::rule(*tag, name, *created),
            Self::Disabled { key, .. } => Subject::Disabled(*key),
            Self::SuspendedUser { user, .. } => Subject::SuspendedUser(*user),
            Self::SuspendedOrg { tag, .. } => Subject::SuspendedOrg(*tag),
            Self::Rotation { key, .. } => Subject::Rotation(*key),
            Self::Digest { digest, .. } => Subject::Digest(*digest.as_bytes()),
        }
    }

    /// Its number among those of its subject; 0 of a final one.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Disabled { number, .. }
            | Self::SuspendedUser { number, .. }
            | Self::SuspendedOrg { number, .. }
            | Self::Rotation { number, .. } => *number,
            _ => 0,
        }
    }

    /// The hash slot of its records.
    pub(super) fn slot(&self, names: &RecordNames) -> u16 {
        match self {
            Self::Key { key, .. } | Self::Disabled { key, .. } | Self::Rotation { key, .. } => org_slot(key.tag()),
            Self::User { tag, .. }
            | Self::Rule { tag, .. }
            | Self::SuspendedUser { tag, .. }
            | Self::SuspendedOrg { tag, .. } => org_slot(*tag),
            Self::Session(digest) | Self::Membership(digest, _) => hash_slot(&names.session(digest)),
            Self::Token { .. } => hash_slot(&names.management_tokens()),
            Self::Digest { digest, .. } => hash_slot(&names.digest(digest)),
        }
    }

    /// The writes that make it.
    pub(super) fn writes(&self, names: &RecordNames) -> Vec<Write> {
        let (record, write) = match self {
            Self::Key { key, at } => (names.key(*key), format!("set revoked {}", at.0)),
            Self::User { tag, user, email, at } => {
                let removed = (names.user(*tag, *user), format!("set removed {}", at.0));
                // As in the removal: the address is free for another user.
                let free = email.as_ref().map(|email| (names.emails(*tag), format!("free {user} {email}")));
                return std::iter::once(removed).chain(free).collect();
            }
            Self::Session(digest) => (names.session(digest), "delete".to_owned()),
            Self::Membership(digest, org) => (names.session(digest), format!("set {} 1", ended_membership(*org))),
            Self::Token { token, at } => (names.management_tokens(), format!("token {token} {at}")),
            Self::Rule { tag, name, created } => (names.federation_rules(*tag), format!("rule {name} {created}")),
            Self::Disabled { key, number, disabled } => {
                let mark = serde_json::to_string(disabled).expect("a mark is two texts");
                (names.key(*key), format!("disable {number} {mark}"))
            }
            Self::SuspendedUser { tag, user, number, at } => {
                (names.user(*tag, *user), format!("suspend {number} {}", at.0))
            }
            Self::SuspendedOrg { tag, number } => (names.org(*tag), format!("suspend {number} 1")),
            Self::Rotation { key, number, digests, times: [at, until] } => {
                let [current, previous] = [&digests[0], &digests[1]].map(|digest| hex(digest.as_bytes()));
                (names.key(*key), format!("rotate {number} {current} {previous} {} {}", at.0, until.0))
            }
            Self::Digest { digest, key, at } => (names.digest(digest), format!("claim {} {}", key.as_str(), at.0)),
        };
        vec![(record, write)]
    }
}
