//! Idempotency keys and conditions of changes: `Idempotency-Key` (IETF draft idempotency-key-header) and `If-Match`.
//!
//! - The record of a request is stored with its change, in one transaction: after a crash at any point there are both
//!   or neither.
//! - A record lives until [`IdempotentRequest::expires`]. Records are no part of an export: an import into another
//!   state begins without any.
//! - A record is never the reason to refuse a change that withdraws something. With Redis out of memory its record is
//!   written all the same; on a full disk, and beyond the bound of its token, the change is made without a record.
//!   Other changes are refused then.

use std::fmt;

use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::{KeyId, OrgTag};
use domain::management_token::TokenId;

use super::{Change, ETag};

/// A request with an idempotency key. See [`Change::once`].
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// SHA-256 over the token, the method, the path and the key.
    pub id: [u8; 32],
    /// The management token of the request.
    pub token: TokenId,
    /// SHA-256 of its body.
    pub body: [u8; 32],
    /// Status of its response.
    pub status: u16,
    /// The record that it creates or changes, by which a repeated request finds it.
    pub resource: String,
    /// Time of the request.
    pub now: Micros,
    /// End of the record, at most [`IdempotentRequest::MAX_LIFETIME_US`] after `now`.
    pub expires: Micros,
    /// Live records that the token may have, this one included: [`IdempotentRequest::MAX_LIVE`].
    pub max_live: u32,
}

/// Record of a request whose change was made.
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// SHA-256 of the body of that request.
    pub body: [u8; 32],
    /// Status of its response.
    pub status: u16,
    /// The record that it created or changed.
    pub resource: String,
}

/// The place of a record: that of the change, so that one transaction writes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotencyPlace {
    /// Requests that create an organization.
    Installation,
    /// Requests that create a management token.
    Tokens,
    /// Requests that change an organization, or one of its users, keys or federation rules.
    Org(OrgTag),
}

/// The record that a change changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Org(OrgId),
    User(OrgId, UserId),
    Key(KeyId),
}

impl IdempotentRequest {
    /// Live records that a token may have.
    pub const MAX_LIVE: u32 = 10_000;
    /// Longest life of a record, in microseconds: a week.
    pub const MAX_LIFETIME_US: u64 = 7 * 24 * 3600 * 1_000_000;
}

impl Change {
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
            Self::ByActor { actor, change } => Self::ByActor { actor, change: inner(change) },
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
}

impl fmt::Debug for IdempotentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentRequest").field("token", &self.token).finish_non_exhaustive()
    }
}

impl fmt::Debug for IdempotencyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyRecord").field("status", &self.status).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> IdempotentRequest {
        IdempotentRequest {
            id: [1; 32],
            token: "AbCdEf1234".parse().unwrap(),
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
