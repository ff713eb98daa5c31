//! Idempotency keys (`Idempotency-Key`, IETF draft idempotency-key-header): the change of a request is made once.
//!
//! - The record of a request is stored with its change, in one transaction: after a crash at any point there are both
//!   or neither.
//! - A record lives until [`IdempotentRequest::expires`]. Records are no part of an export: an import into another
//!   state begins without any.
//! - A record is never the reason to refuse a change that withdraws something. With Redis out of memory its record is
//!   written all the same; on a full disk, and beyond the bound of its caller, the change is made without a record.
//!   Other changes are refused then.

use std::fmt;

use domain::clock::Micros;
use domain::key::OrgTag;

/// A request with an idempotency key. See [`super::Change::once`].
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotentRequest {
    /// SHA-256 over the caller, the method, the path and the key.
    pub id: [u8; 32],
    /// Sender of the request: the id of a management token or of a user, or `operator`.
    pub caller: String,
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
    /// Live records that the caller may have, this one included: [`IdempotentRequest::MAX_LIVE`].
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

impl IdempotentRequest {
    /// Live records that a caller may have.
    pub const MAX_LIVE: u32 = 10_000;
    /// Longest life of a record, in microseconds: a week.
    pub const MAX_LIFETIME_US: u64 = 7 * 24 * 3600 * 1_000_000;
}

impl fmt::Debug for IdempotentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentRequest").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl fmt::Debug for IdempotencyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyRecord").field("status", &self.status).finish_non_exhaustive()
    }
}
