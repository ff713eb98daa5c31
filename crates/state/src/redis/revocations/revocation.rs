//! A final refusal, and how it is written to Redis.

use crate::redis::record_codec::ended_membership;
use crate::redis::record_names::{RecordNames, org_slot};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::session::TokenDigest;
use redis_client::hash_slot;

/// A final refusal. Repeating it undoes nothing that was changed since.
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
}

/// The subject of a revocation: two revocations of the same subject are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Key(KeyId),
    User(UserId),
    Session([u8; 32]),
    Membership([u8; 32], OrgId),
}

impl Subject {
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
        }
    }

    /// The hash slot of its records.
    pub(super) fn slot(&self, names: &RecordNames) -> u16 {
        match self {
            Self::Key { key, .. } => org_slot(key.tag()),
            Self::User { tag, .. } => org_slot(*tag),
            Self::Session(digest) | Self::Membership(digest, _) => hash_slot(&names.session(digest)),
        }
    }

    /// The writes that make it.
    pub(super) fn writes(&self, names: &RecordNames) -> Vec<Write> {
        match self {
            Self::Key { key, at } => vec![(names.key(*key), format!("set revoked {}", at.0))],
            Self::User { tag, user, email, at } => {
                let removed = (names.user(*tag, *user), format!("set removed {}", at.0));
                // As in the removal: the address is free for another user.
                let free = email.as_ref().map(|email| (names.emails(*tag), format!("free {user} {email}")));
                std::iter::once(removed).chain(free).collect()
            }
            Self::Session(digest) => vec![(names.session(digest), "delete".to_owned())],
            Self::Membership(digest, org) => {
                vec![(names.session(digest), format!("set {} 1", ended_membership(*org)))]
            }
        }
    }
}
