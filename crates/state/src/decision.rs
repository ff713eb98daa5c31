//! Decision of one request: the answer of the state, and the permit of an admitted request.

use std::sync::Arc;

use domain::identity::Principal;
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;

use super::embedded::{Permit as EmbeddedPermit, SuccessorPermit};
use super::redis::slots::Permits as RedisPermits;
use super::{Reservation, Validity};

/// Answer to a [`DecideRequest`](super::DecideRequest).
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
    /// Slots of a request that has reserved units of a budget. In a box, which nearly no request has.
    Budgeted(Box<(Permit, Reservation)>),
}

impl Permit {
    /// The slots of a request that has made this reservation.
    pub(crate) fn with_reservation(self, reservation: Reservation) -> Self {
        Self::Budgeted(Box::new((self, reservation)))
    }

    /// Its reservation in a budget; none of nearly all requests.
    pub fn reservation(&self) -> Option<&Reservation> {
        if let Self::Budgeted(budgeted) = self { Some(&budgeted.1) } else { None }
    }

    /// Releases the slots, and gives the reservation to be settled.
    pub fn into_reservation(self) -> Option<Reservation> {
        if let Self::Budgeted(budgeted) = self { Some(budgeted.1) } else { None }
    }
}
