//! A command on its way, and what becomes of the lease it speaks for.

use std::sync::Arc;
use std::time::Instant;

use crate::state::redis::slots::lease::{LeaseState, Permit, SlotLease};

/// A command on its way that tells of released slots and may take one.
///
/// Dropped without a word of what became of it, its answer is lost, and the lease unsettled.
pub(in crate::state::redis) struct PendingReport {
    lease: Arc<SlotLease>,
    /// Released slots that it tells of.
    pub(in crate::state::redis) released: u32,
    pub(in crate::state::redis) generation: u64,
    /// Whether Redis is to make our lease if there is none.
    pub(in crate::state::redis) fresh: bool,
    /// Whether others told of released permits when this one began: Redis may hear of them after it.
    crossed: bool,
    /// When it began: Redis hears of us no sooner.
    begun: Instant,
    done: bool,
}

impl PendingReport {
    pub(in crate::state::redis) fn new(
        lease: Arc<SlotLease>,
        released: u32,
        generation: u64,
        fresh: bool,
        crossed: bool,
    ) -> Self {
        Self { lease, released, generation, fresh, crossed, begun: Instant::now(), done: false }
    }

    /// It ran, and took a slot, with which so many of `limit` are taken: the slot. None when a settlement has begun in
    /// the meantime, which did not count it: then Redis forgets it.
    pub(in crate::state::redis) fn acquired(mut self, taken: u32, limit: u32) -> Option<Permit> {
        self.done = true;
        let mut holding = self.lease.holding();
        self.lease.answered(&mut holding, self.released);
        if holding.generation != self.generation {
            return None;
        }
        holding.held += 1;
        // Half of the limit: far enough from it for what the other gateways may have taken since.
        holding.near_limit = taken.saturating_mul(2) >= limit || holding.released.saturating_mul(8) >= limit;
        if holding.standing != LeaseState::InDoubt {
            self.lease.registered(&mut holding, self.begun, false);
        }
        drop(holding);
        Some(Permit(Arc::clone(&self.lease)))
    }

    /// It ran and told what it had to tell, and whether it said that we leave.
    pub(in crate::state::redis) fn acknowledged(mut self, left: bool) {
        self.done = true;
        let mut holding = self.lease.holding();
        self.lease.answered(&mut holding, self.released);
        if holding.generation == self.generation && holding.standing == LeaseState::Registered {
            self.lease.registered(&mut holding, self.begun, left);
        }
    }

    /// It ran and took nothing, and unless it told of something, Redis did not even note that we live. Whether it may
    /// have been too early for permits that we had given back before it.
    pub(in crate::state::redis) fn denied(mut self) -> bool {
        let early = self.crossed || self.lease.holding().released > 0;
        if self.released > 0 {
            self.acknowledged(false);
        } else {
            self.done = true;
        }
        early
    }

    /// It did not run: what it told of is still to be told.
    pub(in crate::state::redis) fn not_sent(mut self) {
        self.done = true;
        let mut holding = self.lease.holding();
        self.lease.answered(&mut holding, self.released);
        if holding.generation == self.generation && holding.standing != LeaseState::InDoubt {
            holding.released += self.released;
        }
    }

    /// Redis does not know us in this generation.
    pub(in crate::state::redis) fn unregistered(mut self) {
        self.done = true;
        let mut holding = self.lease.holding();
        self.lease.answered(&mut holding, self.released);
        self.lease.forgotten(&mut holding, self.generation);
    }
}

impl Drop for PendingReport {
    fn drop(&mut self) {
        if !self.done {
            let mut holding = self.lease.holding();
            self.lease.answered(&mut holding, self.released);
            self.lease.forgotten(&mut holding, self.generation);
        }
    }
}
