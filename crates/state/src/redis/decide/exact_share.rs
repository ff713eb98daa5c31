//! Taking of the exact share: a token of the bucket's share, and slots.

use std::sync::Arc;

use super::decide_codec::rate_limit_status;
use super::key_cache::KeySlots;
use super::share::{self, Share};
use super::usage::CachedUsage;
use crate::bucket::Bucket;
use crate::redis::slots::{Permits, Portion, SlotLease};
use domain::clock::Micros;
use domain::quota::{Quota, RateLimitStatus};
use domain::refusal::Refusal;

/// An admission, with the number of the use; or the refusal for what is missing.
pub(super) type Taken = Result<(Permits, RateLimitStatus, u64), (Refusal, RateLimitStatus)>;

/// The parts of a cached key from which its exact share is taken.
pub(super) struct ExactShare<'a> {
    /// Usage of the key.
    pub(super) usage: &'a CachedUsage,
    /// Lease on the slots of its organization.
    pub(super) lease: &'a Arc<SlotLease>,
    /// Slots of the key, if it has a limit of its own.
    pub(super) slots: Option<&'a KeySlots>,
    /// The effective quota.
    pub(super) quota: Quota,
    /// The effective concurrency limit.
    pub(super) concurrent: u32,
}

impl ExactShare<'_> {
    /// Takes `cost` tokens, and slots; `None` when this gateway has no share, or one that never has so many.
    /// `down_since` is the time since which the server
    /// is not connected, if it is not; `portion` gives the portion in an outage that began at a time, and the time from
    /// which inflow belongs to it. All times are steady.
    pub(super) fn take(
        &self,
        cost: u32,
        down_since: Option<Micros>,
        now: Micros,
        portion: impl FnOnce(Micros) -> Option<(Portion, Micros)>,
    ) -> Option<Taken> {
        let since = self.lease.outage_since(down_since, now);
        // Tokens that flowed in before Redis last answered about this key are in its bucket.
        let since = since.max(self.usage.state().confirmed);
        let (portion, since) = portion(since)?;
        let quota = share::quota_of(portion, self.quota).filter(|quota| cost <= quota.burst)?;
        Some(self.take_of_portion(portion, (quota, cost), since, now))
    }

    fn take_of_portion(&self, portion: Portion, (quota, cost): (Quota, u32), since: Micros, now: Micros) -> Taken {
        let mut state = self.usage.state();
        let status = |bucket: Bucket| {
            let key_slots = self.slots.map(|slots| slots.status(0));
            rate_limit_status((bucket, quota), cost, self.concurrent, self.lease.held(), key_slots)
        };
        let share = Share::in_outage(state.share, since, portion);
        let taken = share.try_take(quota, cost, now).map_err(|share| (Refusal::RateLimited, status(share.bucket)))?;
        let permits = self.take_slots(portion).map_err(|refusal| (refusal, status(share.bucket)))?;
        // Stored only now: without a slot no tokens are taken.
        state.share = Some(taken);
        let number = state.uses + state.unreported.pending() + 1;
        Ok((permits, status(taken.bucket), number))
    }

    /// Takes a slot of the key, if it has a limit of its own, and one of the organization.
    fn take_slots(&self, portion: Portion) -> Result<Permits, Refusal> {
        let own = self.slots.map(|slots| slots.lease.acquire_in_outage(portion, slots.concurrent));
        let own = own.map(|own| own.ok_or(Refusal::KeyTooManyInFlight)).transpose()?;
        // Without one, the slot of the key is given back.
        let org = self.lease.acquire_in_outage(portion, self.concurrent).ok_or(Refusal::TooManyInFlight)?;
        Ok(Permits::new(org, own))
    }
}
