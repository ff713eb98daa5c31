//! Changes to the state, as management makes them.

use std::fmt;

use domain::clock::Micros;
use domain::identity::{OrgId, SessionId, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::management_token::{ManagementToken, TokenId};
use domain::session::TokenDigest;

use super::{
    ActorName, ChangeError, FederationExchange, Key, LastRotation, Org, RuleChange, Session, TicketSource, User,
};
use super::{ETag, IdempotentRequest, KeyPatch, OrgPatch, UserPatch};
use super::{is_session_quota_digest, session_quota_digest};

/// One change to the directory, to sessions or to tickets, made whole or not at all.
///
/// - `Debug` shows its kind only: it may carry secrets.
#[derive(Clone)]
pub enum Change {
    /// Creates an organization.
    CreateOrg(Org),
    /// Changes an organization.
    UpdateOrg {
        /// The organization.
        org: OrgId,
        /// The fields to change.
        patch: OrgPatch,
    },
    /// Creates a user. The responsible person of a service must be a person of the organization.
    CreateUser(User),
    /// Changes a user that is not removed.
    UpdateUser {
        /// The user's organization.
        org: OrgId,
        /// The user.
        user: UserId,
        /// The fields to change.
        patch: UserPatch,
    },
    /// Withdraws a user for whose membership the provider no longer vouches: requests with the user's keys and sessions
    /// are refused from the next one on, until [`UserPatch::permitted`]. Of several withdrawals the first time stands.
    WithdrawUser {
        /// The user's organization.
        org: OrgId,
        /// The user.
        user: UserId,
        /// Time of the withdrawal.
        at: Micros,
    },
    /// Removes a user; the user's keys are refused from the next request on, for good.
    RemoveUser {
        /// The user's organization.
        org: OrgId,
        /// The user.
        user: UserId,
        /// Time of removal.
        at: Micros,
    },
    /// Creates a key, which expires no later than the policy of its organization allows.
    CreateKey {
        /// Its record.
        key: Key,
        /// SHA-256 of its secret, or [`session_quota_digest`] of its user.
        digest: KeyDigest,
    },
    /// Revokes a key, from the next request on, for good. Revoking twice is no error; the first time stands.
    RevokeKey {
        /// The key.
        key: KeyId,
        /// Time of revocation.
        at: Micros,
    },
    /// Gives a key a new secret. Id, limits and history stay.
    RotateKey {
        /// The key.
        key: KeyId,
        /// SHA-256 of the new secret.
        digest: KeyDigest,
        /// Time of rotation.
        at: Micros,
        /// Time until which the replaced secret stays valid; `at` for no overlap.
        previous_until: Micros,
        /// The rotation that has to be the key's last one.
        last: LastRotation,
    },
    /// Changes a key that is not revoked.
    UpdateKey {
        /// The key.
        key: KeyId,
        /// The fields to change.
        patch: KeyPatch,
    },
    /// Changes a key or a user by the rights of a person, and creates or rotates a key within [`super::Bounds`]: all of
    /// it is checked in the transaction that makes the change. See [`Change::by_person`].
    ByPerson {
        /// The person, who may create a key for another user. The token is taken from this person's bucket.
        person: UserId,
        /// The change.
        change: Box<Change>,
    },
    /// Changes a key, and records who does. See [`Change::by`].
    ByActor {
        /// The actor.
        actor: ActorName,
        /// The change: a creation, rotation or revocation of a key.
        change: Box<Change>,
    },
    /// Changes a record only if it has this entity tag. See [`Change::if_match`].
    IfMatch {
        /// The tag.
        etag: ETag,
        /// The change.
        change: Box<Change>,
    },
    /// Makes a change for a request with an idempotency key, once. See [`Change::once`].
    Once {
        /// The request, of which a record is stored.
        request: Box<IdempotentRequest>,
        /// The change.
        change: Box<Change>,
    },
    /// Creates a key in exchange for a token: once for each token and rule, within the rate of the rule, and only while
    /// the rule is as it was read; all of it in the transaction that creates the key.
    ByFederation {
        /// The exchange.
        exchange: Box<FederationExchange>,
        /// [`Change::CreateKey`].
        change: Box<Change>,
    },
    /// Changes the federation rules of an organization.
    FederationRule(RuleChange),
    /// Creates a web session.
    CreateSession {
        /// Its record.
        session: Box<Session>,
        /// SHA-256 of the token in its browser's cookie.
        digest: TokenDigest,
    },
    /// Chooses the organization in which a session acts, among those that the person belongs to.
    ChooseOrg {
        /// The session.
        session: SessionId,
        /// The organization.
        org: OrgId,
    },
    /// Ends a session, for every request that begins afterwards. Ending a session that does not exist is no error.
    EndSession {
        /// The session.
        session: SessionId,
    },
    /// Ends the membership of a session in one organization, for every request that begins afterwards; the session goes
    /// on in the person's others, and ends with the last one. Ending a membership that does not exist is no error.
    EndMembership {
        /// The session.
        session: SessionId,
        /// The organization.
        org: OrgId,
    },
    /// Creates a management token.
    CreateToken(Box<ManagementToken>),
    /// Revokes a management token and its [`super::descendants`], for every call that begins afterwards. Revoking twice
    /// is no error; the first time stands.
    RevokeToken {
        /// The token.
        token: TokenId,
        /// Time of revocation.
        at: Micros,
    },
    /// Stores a ticket, to be handed out once by [`super::State::take_ticket`].
    PutTicket {
        /// SHA-256 of the token that the ticket is found by.
        digest: TokenDigest,
        /// Content to be handed out.
        content: Vec<u8>,
        /// Time from which it is no longer handed out.
        expires: Micros,
        /// The cause of the ticket.
        source: TicketSource,
    },
}

impl Change {
    /// True for a change that withdraws something, or changes a record in place. Such changes must succeed also when
    /// the disk is full; others may then be refused, because they would use up the space that is kept for these.
    pub fn withdraws(&self) -> bool {
        match self {
            Self::RevokeKey { .. }
            | Self::RemoveUser { .. }
            | Self::WithdrawUser { .. }
            | Self::UpdateUser { .. }
            | Self::UpdateOrg { .. }
            | Self::UpdateKey { .. }
            | Self::EndMembership { .. }
            | Self::RevokeToken { .. }
            | Self::EndSession { .. } => true,
            Self::FederationRule(change) => matches!(change, RuleChange::Remove { .. }),
            Self::ByPerson { change, .. }
            | Self::ByActor { change, .. }
            | Self::ByFederation { change, .. }
            | Self::IfMatch { change, .. }
            | Self::Once { change, .. } => change.withdraws(),
            Self::CreateOrg(_)
            | Self::CreateUser(_)
            | Self::CreateKey { .. }
            | Self::RotateKey { .. }
            | Self::CreateSession { .. }
            | Self::ChooseOrg { .. }
            | Self::CreateToken(_)
            | Self::PutTicket { .. } => false,
        }
    }

    /// The change that is made: without the bounds of a person, its actor, its condition and its request.
    pub fn as_made(&self) -> &Self {
        match self {
            Self::ByPerson { change, .. }
            | Self::ByActor { change, .. }
            | Self::ByFederation { change, .. }
            | Self::IfMatch { change, .. }
            | Self::Once { change, .. } => change.as_made(),
            change => change,
        }
    }

    /// Returns whether it counts as a change by management even when it withdraws nothing: not a sign-in, of which any
    /// visitor may begin one.
    pub(crate) fn is_counted(&self) -> bool {
        !matches!(self, Self::CreateSession { .. } | Self::ChooseOrg { .. } | Self::PutTicket { .. })
    }

    /// Checks all that does not depend on the content of the state.
    ///
    /// - A session quota key has its user's session quota digest, and no other key has such a digest.
    /// - A new session acts in an organization that the person belongs to.
    ///
    /// # Errors
    /// [`ChangeError::Taken`] or [`ChangeError::NoOrg`].
    pub(super) fn validate(&self) -> Result<(), ChangeError> {
        let valid = match self.as_made() {
            Self::CreateKey { key, digest } if key.session_quota_key => *digest == session_quota_digest(key.user),
            Self::CreateKey { digest, .. } | Self::RotateKey { digest, .. } => !is_session_quota_digest(digest),
            Self::CreateSession { session, .. } => {
                return session.user().map(drop).ok_or(ChangeError::NoOrg(session.chosen));
            }
            _ => true,
        };
        if valid { Ok(()) } else { Err(ChangeError::Taken("digest")) }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateOrg(_) => "CreateOrg",
            Self::UpdateOrg { .. } => "UpdateOrg",
            Self::CreateUser(_) => "CreateUser",
            Self::UpdateUser { .. } => "UpdateUser",
            Self::WithdrawUser { .. } => "WithdrawUser",
            Self::RemoveUser { .. } => "RemoveUser",
            Self::CreateKey { .. } => "CreateKey",
            Self::RevokeKey { .. } => "RevokeKey",
            Self::RotateKey { .. } => "RotateKey",
            Self::UpdateKey { .. } => "UpdateKey",
            Self::ByPerson { .. } => "ByPerson",
            Self::ByActor { .. } => "ByActor",
            Self::IfMatch { .. } => "IfMatch",
            Self::Once { .. } => "Once",
            Self::ByFederation { .. } => "ByFederation",
            Self::FederationRule(_) => "FederationRule",
            Self::CreateSession { .. } => "CreateSession",
            Self::ChooseOrg { .. } => "ChooseOrg",
            Self::EndMembership { .. } => "EndMembership",
            Self::EndSession { .. } => "EndSession",
            Self::CreateToken(_) => "CreateToken",
            Self::RevokeToken { .. } => "RevokeToken",
            Self::PutTicket { .. } => "PutTicket",
        })
    }
}
