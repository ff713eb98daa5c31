//! Decision of one request: the question of admission, and the answer of the state.

use std::net::IpAddr;
use std::sync::Arc;

use domain::clock::Micros;
use domain::identity::{Permission, Principal};
use domain::key::policy::KeyPolicy;
use domain::key::{KeyDigest, KeyId};
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;

use super::Validity;
use super::embedded::{Permit as EmbeddedPermit, SuccessorPermit};
use super::redis::slots::Permits as RedisPermits;

/// Request for one decision.
#[derive(Clone, Copy, Debug)]
pub struct DecideRequest<'a> {
    /// SHA-256 of the presented key.
    pub digest: &'a KeyDigest,
    /// Key id within the presented key, when the key has our own format. A hint where to look
    /// first: the digest decides.
    pub id: Option<KeyId>,
    /// Access that the requested route grants.
    pub access: RouteAccess<'a>,
    /// Address of the client; none when it is not known: then it is in none of a key's networks.
    pub client: Option<&'a IpAddr>,
    /// Time of the decision.
    pub now: Micros,
}

/// Access that a route grants to authenticated callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess<'a> {
    /// Every caller may use the route.
    Everyone,
    /// Callers whose user has this permission may use the route.
    Permission(&'a Permission),
    /// There is no such route: every authenticated caller is refused.
    NoRoute,
}

impl RouteAccess<'_> {
    /// Refusal of an authenticated caller with these permissions, if there is a reason.
    pub(crate) fn refusal(self, permissions: &[Permission]) -> Option<Refusal> {
        match self {
            Self::Everyone => None,
            Self::Permission(required) => (!permissions.contains(required)).then_some(Refusal::Forbidden),
            Self::NoRoute => Some(Refusal::NotFound),
        }
    }

    /// Refusal of a key with this policy, whose user is not refused.
    pub(crate) fn refusal_by(self, policy: &KeyPolicy) -> Option<Refusal> {
        let Self::Permission(required) = self else { return None };
        (!policy.allows_permission(required)).then_some(Refusal::Forbidden)
    }
}

/// Answer to a [`DecideRequest`].
#[derive(Debug)]
pub enum Decision {
    /// The request is admitted; a token and a slot were taken.
    Admitted(Admitted),
    /// The request is denied; nothing was taken.
    Denied {
        /// Reason.
        refusal: Refusal,
        /// Owner of the key; none when no key has the digest.
        principal: Option<Arc<Principal>>,
        /// Rate-limit status; only for an authenticated caller, that is, for the refusals from
        /// [`Refusal::OrgSuspended`] on.
        rate_limit: Option<RateLimitStatus>,
    },
}

/// An admitted request.
#[derive(Debug)]
pub struct Admitted {
    /// The caller.
    pub principal: Arc<Principal>,
    /// Rate-limit status after this request.
    pub rate_limit: RateLimitStatus,
    /// Number of this use of the key, counted from 1. It is durable; the journal records it, so that a replay counts no
    /// use twice.
    pub number: u64,
    /// True when the shared state was away and this gateway admitted the request against its own share of the limits.
    pub provisional: bool,
    /// Validity of the credential, by which the exchange is ended when the credential is revoked.
    pub validity: Validity,
    /// The slot, released on drop.
    pub permit: Permit,
}

/// Slots of a request, released on drop: one of its organization, and one of its key if that has a limit of its own.
#[derive(Debug)]
pub enum Permit {
    /// Slots counted in memory.
    Embedded(EmbeddedPermit),
    /// Slots counted in Redis.
    Redis(RedisPermits),
    /// Slots counted by the process that this one has handed its state over to.
    Successor(SuccessorPermit),
}
