//! The directory's records as management sees them, and the changes it can make to them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::identity::{OrgId, Permission, SessionId, UserId};
use crate::key::{KeyDigest, KeyId, OrgTag};
use crate::quota::Quota;
use crate::session::TokenDigest;

use super::{Session, Unavailable, is_session_quota_digest, session_quota_digest};

/// An organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Org {
    /// Its id.
    pub id: OrgId,
    /// Its tag: the beginning of the ids of all its keys. No two organizations share one.
    pub tag: OrgTag,
    /// Its name. No two organizations share one.
    pub name: String,
    /// When it was created.
    pub created: Micros,
    /// Suspended: all its requests are refused.
    pub suspended: bool,
    /// Its own limit of requests in flight, in place of the configured one.
    pub concurrent: Option<u32>,
}

/// A user of one organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its id.
    pub id: UserId,
    /// The organization it belongs to.
    pub org: OrgId,
    /// Its email address. No two users of an organization that are not removed share one.
    pub email: String,
    /// What it may do; sorted, each once.
    pub permissions: Vec<Permission>,
    /// When it was created.
    pub created: Micros,
    /// When it was removed. Its record stays, because keys and audit records name it.
    pub removed: Option<Micros>,
}

/// A key, without what it is recognized by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its public id.
    pub id: KeyId,
    /// The organization it belongs to.
    pub org: OrgId,
    /// The user whose permissions it has.
    pub user: UserId,
    /// The name given at creation.
    pub name: String,
    /// Imported by its SHA-256 from an older system.
    pub imported: bool,
    /// True for a session quota key, which has no secret: it meters the requests of its user's web sessions.
    pub session_quota_key: bool,
    /// When it was created.
    pub created: Micros,
    /// When it last got a new secret.
    pub rotated: Option<Micros>,
    /// Until when the secret before the last rotation is valid.
    pub previous_until: Option<Micros>,
    /// When it was revoked.
    pub revoked: Option<Micros>,
    /// Its own quota, in place of the configured one.
    pub quota: Option<Quota>,
    /// When it was last admitted.
    pub last_used: Option<Micros>,
    /// How often it was admitted.
    pub uses: u64,
}

/// One change to the directory, to sessions or to tickets. All of it takes place, or none.
///
/// - `Debug` shows its kind only: it may carry what nobody is to see.
#[derive(Clone)]
pub enum Change {
    /// A new organization.
    CreateOrg(Org),
    /// Suspend or resume.
    SuspendOrg {
        /// Which.
        org: OrgId,
        /// Suspended from now on, or not.
        suspended: bool,
    },
    /// Its own concurrency, or `None` for the configured one.
    LimitOrg {
        /// Which.
        org: OrgId,
        /// Requests in flight, at least 1.
        concurrent: Option<u32>,
    },
    /// A new user.
    CreateUser(User),
    /// Replace what a user may do; holds for its keys from the next request on.
    PermitUser {
        /// The organization, which must be the user's.
        org: OrgId,
        /// Which.
        user: UserId,
        /// All it may do from now on; sorted, each once.
        permissions: Vec<Permission>,
    },
    /// Remove a user; its keys are refused from the next request on, for good.
    RemoveUser {
        /// The organization, which must be the user's.
        org: OrgId,
        /// Which.
        user: UserId,
        /// When.
        at: Micros,
    },
    /// A new key.
    CreateKey {
        /// Its record.
        key: Key,
        /// What it is recognized by.
        digest: KeyDigest,
    },
    /// Refuse a key from the next request on, for good. Revoking twice is no error; the first time stands.
    RevokeKey {
        /// Which.
        key: KeyId,
        /// When.
        at: Micros,
    },
    /// A new secret under the same id, limits and history.
    RotateKey {
        /// Which.
        key: KeyId,
        /// What it is recognized by from now on.
        digest: KeyDigest,
        /// When.
        at: Micros,
        /// Until when the secret until now is valid; `at` for not at all.
        previous_until: Micros,
    },
    /// Its own quota, or `None` for the configured one. The tokens in the bucket stay, capped by the new burst.
    LimitKey {
        /// Which.
        key: KeyId,
        /// The quota, checked.
        quota: Option<Quota>,
    },
    /// A new web session.
    CreateSession {
        /// Its record.
        session: Box<Session>,
        /// What it is recognized by.
        digest: TokenDigest,
    },
    /// Another organization to act in, of those that the person belongs to.
    ChooseOrg {
        /// Which session.
        session: SessionId,
        /// The organization.
        org: OrgId,
    },
    /// End a session, for every request that begins afterwards. Ending one that is not there is no error.
    EndSession {
        /// Which.
        session: SessionId,
    },
    /// Something to be handed out once: [`super::State::take_ticket`].
    PutTicket {
        /// What it is found by.
        digest: TokenDigest,
        /// What is handed out.
        content: Vec<u8>,
        /// Until when.
        expires: Micros,
    },
}

impl Change {
    /// Why no state takes it, whatever the state holds: a session quota key's digest is its user's and no key has it, and who is
    /// signed in acts in an organization that they belong to.
    pub(super) fn objection(&self) -> Option<ChangeError> {
        match self {
            Self::CreateKey { key, digest } => {
                let fits = if key.session_quota_key {
                    *digest == session_quota_digest(key.user)
                } else {
                    !is_session_quota_digest(digest)
                };
                (!fits).then_some(ChangeError::Taken("digest"))
            }
            Self::RotateKey { digest, .. } => is_session_quota_digest(digest).then_some(ChangeError::Taken("digest")),
            Self::CreateSession { session, .. } => {
                session.user().is_none().then_some(ChangeError::NoOrg(session.chosen))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateOrg(_) => "CreateOrg",
            Self::SuspendOrg { .. } => "SuspendOrg",
            Self::LimitOrg { .. } => "LimitOrg",
            Self::CreateUser(_) => "CreateUser",
            Self::PermitUser { .. } => "PermitUser",
            Self::RemoveUser { .. } => "RemoveUser",
            Self::CreateKey { .. } => "CreateKey",
            Self::RevokeKey { .. } => "RevokeKey",
            Self::RotateKey { .. } => "RotateKey",
            Self::LimitKey { .. } => "LimitKey",
            Self::CreateSession { .. } => "CreateSession",
            Self::ChooseOrg { .. } => "ChooseOrg",
            Self::EndSession { .. } => "EndSession",
            Self::PutTicket { .. } => "PutTicket",
        })
    }
}

/// Why a change was not made, or not acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No such organization.
    #[error("there is no organization {0}")]
    NoOrg(OrgId),
    /// No such user in the organization, or removed.
    #[error("there is no user {0} in this organization")]
    NoUser(UserId),
    /// No such key.
    #[error("there is no key {0}")]
    NoKey(KeyId),
    /// No such session, or it has ended.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The key is revoked.
    #[error("key {0} is revoked")]
    Revoked(KeyId),
    /// Another record has this name, email, tag, id or digest already; the text says which of them.
    #[error("{0} is already in use")]
    Taken(&'static str),
    /// The state could not be written. Nothing was changed in SQLite; in Redis it may have been.
    #[error("the state could not be written")]
    Unavailable(#[source] Failure),
    /// The change was made and holds, but too few replicas have it.
    #[error(
        "the change was made, but only {reached} of {wanted} replicas confirmed it in time: a failover may undo it; \
         repeat it"
    )]
    NotReplicated {
        /// Replicas that were to confirm it.
        wanted: u32,
        /// Replicas that did.
        reached: u32,
    },
    /// The state was closed.
    #[error("the state is closed")]
    Closed,
}

/// What kept the state from being written.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// SQLite said no.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// Redis gave no answer, or a bad one.
    #[error(transparent)]
    Redis(Unavailable),
}
