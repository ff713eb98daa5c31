//! An outage of Redis, as this gateway noticed it: when it began for an organization or key, and the slots that may be
//! held while it lasts.

use std::sync::Arc;

use super::lease::{LeaseData, LeaseState, Permit, SlotLease};
use super::membership::Portion;
use domain::clock::Micros;

impl SlotLease {
    /// Notes that Redis does not answer, and has not since `begun` as far as is known. Returns the begin of the outage.
    pub(crate) fn outage_since(&self, begun: Option<Micros>, now: Micros) -> Micros {
        let mut data = self.data();
        // A later begin is of another outage: Redis was there in between.
        let since = data.outage.max(begun).unwrap_or(now);
        data.outage = Some(since);
        since
    }

    /// Acquires a slot while Redis is away. This gateway may hold what it held when the outage began, and its
    /// portion of the slots of `limit` that were free by the last answer; of one slot, if none was.
    pub(crate) fn acquire_in_outage(self: &Arc<Self>, portion: Portion, limit: u32) -> Option<Permit> {
        let mut data = self.data();
        let held = data.held;
        let free = limit.saturating_sub(data.taken).max(1);
        let allowance = *data.allowance.get_or_insert(held.saturating_add(portion.of(free)));
        if held >= allowance {
            return None;
        }
        // Redis does not count this slot: a resync reports it once Redis is back.
        self.mark_in_doubt(&mut data);
        Some(self.grant(&mut data))
    }

    /// Notes an answer of Redis about the organization or key, with the slots that are taken.
    pub(crate) fn note_answer(&self, taken: u32) {
        Self::note_answer_locked(&mut self.data(), taken);
    }

    pub(super) fn note_answer_locked(data: &mut LeaseData, taken: u32) {
        data.taken = taken;
        data.outage = None;
        // In doubt, `taken` lacks the slots that were acquired without Redis; the allowance has counted them.
        if data.state != LeaseState::InDoubt {
            data.allowance = None;
        }
    }
}
