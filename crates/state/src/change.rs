//! Changes to the state, as management makes them.

use std::fmt;

use domain::clock::Micros;
use domain::identity::{OrgId, Permission, SessionId, UserId, Voucher};
use domain::key::policy::{Field, PolicyPatch};
use domain::key::{KeyDigest, KeyId};
use domain::management_token::{ManagementToken, TokenId, TokenUse};
use domain::quota::Quota;
use domain::session::TokenDigest;

use super::{
    ActorName, ChangeError, FederationExchange, Key, KeyEvent, LastRotation, Org, OrgPolicy, Permitted, PolicyChange,
    PolicyScope, RuleChange, Session, TicketSource, User,
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
        /// True of a change that was made in another state: its actor is recorded, and the program's token, which may
        /// have ended since, is not required.
        is_imported: bool,
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
    /// Stores the last use of a management token in place of the one before. It is no part of the token's record, so
    /// that it conflicts with no other change.
    UseToken {
        /// The token.
        token: TokenId,
        /// Its last use.
        last: Box<TokenUse>,
        /// Time at which the token expires, from which the use may be removed.
        expires: Micros,
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

/// The record that a change changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Org(OrgId),
    User(OrgId, UserId),
    Key(KeyId),
}

impl Change {
    /// The change by which one of all gateways does something until `expires`: the others get
    /// [`super::ChangeError::Taken`]. The same `mark` repeats a change whose answer was lost, or extends it.
    pub fn claim(what: &str, mark: &[u8], expires: Micros) -> Self {
        // Hashed twice: what visitors present is text, and hashed once, so that none of them takes the ticket.
        let digest = TokenDigest::of(TokenDigest::of(what.as_bytes()).as_bytes());
        Self::PutTicket { digest, content: mark.to_vec(), expires, source: TicketSource::Gateway }
    }

    /// Suspends or resumes an organization.
    pub fn suspend_org(org: OrgId, suspended: bool) -> Self {
        Self::UpdateOrg { org, patch: OrgPatch { suspended: Some(suspended), ..OrgPatch::default() } }
    }

    /// Sets an organization's own limit of requests in flight; none for the configured limit.
    pub fn limit_org(org: OrgId, concurrent: Option<u32>) -> Self {
        Self::UpdateOrg { org, patch: OrgPatch { concurrent: field(concurrent), ..OrgPatch::default() } }
    }

    /// Replaces the policy of an organization for keys that are created from now on; the empty one bounds nothing.
    pub fn set_org_policy(org: OrgId, policy: OrgPolicy) -> Self {
        Self::UpdateOrg { org, patch: OrgPatch { policy: policy.into(), ..OrgPatch::default() } }
    }

    /// Replaces the permissions of a user, and takes back a withdrawal. See [`Permitted`].
    pub fn permit_user(org: OrgId, user: UserId, permissions: Vec<Permission>, vouched_by: Option<Voucher>) -> Self {
        let permitted = Some(Permitted { permissions, vouched_by });
        Self::UpdateUser { org, user, patch: UserPatch { permitted, ..UserPatch::default() } }
    }

    /// Suspends a user at this time, or, without one, resumes it; as the operator or as an administrator of the
    /// organization.
    pub fn suspend_user(org: OrgId, user: UserId, at: Option<Micros>, by_operator: bool) -> Self {
        Self::UpdateUser { org, user, patch: UserPatch { suspended: field(at), by_operator, ..UserPatch::default() } }
    }

    /// Makes another person of the organization responsible for a service.
    pub fn reassign_user(org: OrgId, user: UserId, responsible: UserId) -> Self {
        let responsible = Some(responsible);
        Self::UpdateUser { org, user, patch: UserPatch { responsible, ..UserPatch::default() } }
    }

    /// Sets a key's own quota; none for the configured one.
    pub fn limit_key(key: KeyId, quota: Option<Quota>) -> Self {
        Self::UpdateKey { key, patch: KeyPatch { quota: field(quota), ..KeyPatch::default() } }
    }

    /// Changes the policy of a key.
    pub fn set_key_policy(key: KeyId, patch: Box<PolicyPatch>, allowed: PolicyScope) -> Self {
        let policy = Some(PolicyChange { patch, allowed });
        Self::UpdateKey { key, patch: KeyPatch { policy, ..KeyPatch::default() } }
    }

    /// The change with the actor who makes it, which is recorded of keys that are created, rotated or revoked. A change
    /// by a program is made only while its management token is not revoked.
    #[must_use]
    pub fn by(self, actor: &str) -> Self {
        let actor = ActorName::new(actor);
        let depends_on_token = actor.token().is_some() && self.is_of_records();
        if self.key_event().is_none() && !depends_on_token {
            return self;
        }
        Self::ByActor { actor, is_imported: false, change: Box::new(self) }
    }

    /// The change of a key with the actor who made it in another state. See [`Change::ByActor`].
    #[must_use]
    pub(super) fn imported_by(self, actor: &ActorName) -> Self {
        Self::ByActor { actor: actor.clone(), is_imported: true, change: Box::new(self) }
    }

    /// The key that is changed, how, and when; none of changes that have no actor.
    pub(super) fn key_event(&self) -> Option<(KeyId, KeyEvent, Micros)> {
        match self.as_made() {
            Self::CreateKey { key, .. } => Some((key.id, KeyEvent::Created, key.created)),
            Self::RotateKey { key, at, .. } => Some((*key, KeyEvent::Rotated, *at)),
            Self::RevokeKey { key, at } => Some((*key, KeyEvent::Revoked, *at)),
            _ => None,
        }
    }

    /// The change with the record of its request: it is made unless there is a live record with the same id already.
    /// Then [`super::ChangeError::Repeated`] has that record.
    ///
    /// # Panics
    /// The change is one of a session or a ticket.
    #[must_use]
    pub fn once(self, request: IdempotentRequest) -> Self {
        assert!(self.takes_record(), "sessions and tickets take no idempotency key");
        Self::Once { request: Box::new(request), change: Box::new(self) }
    }

    /// Returns whether it depends on an entity tag, or has the record of a request.
    pub(super) fn has_conditions(&self) -> bool {
        match self {
            Self::ByPerson { change, .. } | Self::ByActor { change, .. } => change.has_conditions(),
            Self::IfMatch { .. } | Self::Once { .. } => true,
            _ => false,
        }
    }

    /// The change with a condition: it is made only if the record that it changes has this tag at that moment, else it
    /// fails with [`super::ChangeError::Stale`], as the creation of a record always does. With an idempotency key, the
    /// record of the request goes first.
    #[must_use]
    pub fn if_match(self, etag: ETag) -> Self {
        match self {
            Self::Once { request, change } => Self::Once { request, change: Box::new(change.if_match(etag)) },
            change => Self::IfMatch { etag, change: Box::new(change) },
        }
    }

    /// Returns whether it has the record of a request.
    pub(super) fn has_record(&self) -> bool {
        match self {
            Self::ByPerson { change, .. } | Self::ByActor { change, .. } | Self::IfMatch { change, .. } => {
                change.has_record()
            }
            change => matches!(change, Self::Once { .. }),
        }
    }

    /// The same change without the record of its request.
    #[must_use]
    pub(super) fn without_record(self) -> Self {
        let inner = |change: Box<Self>| Box::new(change.without_record());
        match self {
            Self::ByPerson { person, change } => Self::ByPerson { person, change: inner(change) },
            Self::ByActor { actor, is_imported, change } => Self::ByActor { actor, is_imported, change: inner(change) },
            Self::IfMatch { etag, change } => Self::IfMatch { etag, change: inner(change) },
            Self::Once { change, .. } => *change,
            change => change,
        }
    }

    /// Returns whether it is a change of an organization, a user, a key, a federation rule or a management token, and
    /// not one of sessions.
    pub(super) fn is_of_records(&self) -> bool {
        self.takes_record() || matches!(self.as_made(), Self::RevokeToken { .. })
    }

    /// Returns whether it revokes this management token.
    pub(super) fn revokes(&self, token: TokenId) -> bool {
        matches!(self.as_made(), Self::RevokeToken { token: revoked, .. } if *revoked == token)
    }

    /// Returns whether it is a change of an organization, a user, a key or a federation rule, or a new management
    /// token.
    fn takes_record(&self) -> bool {
        self.target().is_some()
            || matches!(
                self.as_made(),
                Self::CreateOrg(_)
                    | Self::CreateUser(_)
                    | Self::CreateKey { .. }
                    | Self::CreateToken(_)
                    | Self::FederationRule(_)
            )
    }

    /// The record that is changed; none when one is created.
    pub(super) fn target(&self) -> Option<Target> {
        Some(match self.as_made() {
            Self::UpdateOrg { org, .. } => Target::Org(*org),
            Self::UpdateUser { org, user, .. }
            | Self::WithdrawUser { org, user, .. }
            | Self::RemoveUser { org, user, .. } => Target::User(*org, *user),
            Self::UpdateKey { key, .. } | Self::RotateKey { key, .. } | Self::RevokeKey { key, .. } => {
                Target::Key(*key)
            }
            _ => return None,
        })
    }

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
            | Self::UseToken { .. }
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
    /// visitor may begin one, and not the use of a token.
    pub(crate) fn is_counted(&self) -> bool {
        !matches!(
            self,
            Self::CreateSession { .. } | Self::ChooseOrg { .. } | Self::UseToken { .. } | Self::PutTicket { .. }
        )
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
            Self::UseToken { .. } => "UseToken",
            Self::PutTicket { .. } => "PutTicket",
        })
    }
}

/// The change of a field to this value; without one it is cleared.
fn field<T>(value: Option<T>) -> Field<T> {
    value.map_or(Field::Clear, Field::Set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> IdempotentRequest {
        IdempotentRequest {
            id: [1; 32],
            caller: "AbCdEf1234".into(),
            body: [2; 32],
            status: 200,
            resource: "org".into(),
            now: Micros(1),
            expires: Micros(2),
            max_live: IdempotentRequest::MAX_LIVE,
        }
    }

    #[test]
    fn withdrawal_is_one_with_and_without_its_record() {
        let suspend = Change::suspend_org(OrgId::generate(), true);
        let etag = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
        for recorded in [suspend.clone().once(request()), suspend.clone().once(request()).if_match(etag).by("a")] {
            assert!(recorded.withdraws() && recorded.has_record());
            let without = recorded.without_record();
            assert!(without.withdraws() && !without.has_record());
        }
        assert!(suspend.withdraws());
    }

    #[test]
    fn record_goes_before_the_entity_tag() {
        let etag = "AAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
        let change = Change::suspend_org(OrgId::generate(), true).once(request()).if_match(etag);
        assert!(matches!(change, Change::Once { change, .. } if matches!(*change, Change::IfMatch { .. })));
    }

    #[test]
    #[should_panic(expected = "take no idempotency key")]
    fn change_of_a_session_takes_no_record() {
        let session = domain::identity::SessionId::generate();
        let _ = Change::EndSession { session }.once(request());
    }
}
