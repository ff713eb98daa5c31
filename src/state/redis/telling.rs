//! A command on its way, and what becomes of the account it speaks for.

use std::sync::Arc;
use std::time::Instant;

use super::account::{Account, Permit, Standing};

/// A command on its way that tells of released slots and may take one.
///
/// Dropped without a word of what became of it, its answer is lost, and the account unsettled.
pub(super) struct Telling {
    account: Arc<Account>,
    /// Released slots that it tells of.
    pub(super) released: u32,
    pub(super) epoch: u64,
    /// Whether Redis is to make our account if there is none.
    pub(super) fresh: bool,
    /// Whether others told of released permits when this one began: Redis may hear of them after it.
    crossed: bool,
    /// When it began: Redis hears of us no sooner.
    begun: Instant,
    done: bool,
}

impl Telling {
    pub(super) fn new(account: Arc<Account>, released: u32, epoch: u64, fresh: bool, crossed: bool) -> Self {
        Self { account, released, epoch, fresh, crossed, begun: Instant::now(), done: false }
    }

    /// It ran, and took a slot, with which so many of `limit` are taken: the slot. None when a settlement has begun in
    /// the meantime, which did not count it: then Redis forgets it.
    pub(super) fn took(mut self, taken: u32, limit: u32) -> Option<Permit> {
        self.done = true;
        let mut holding = self.account.holding();
        self.account.answered(&mut holding, self.released);
        if holding.epoch != self.epoch {
            return None;
        }
        holding.held += 1;
        // Half of the limit: far enough from it for what the other gateways may have taken since.
        holding.crowded = taken.saturating_mul(2) >= limit || holding.released.saturating_mul(8) >= limit;
        if holding.standing != Standing::Unsettled {
            self.account.registered(&mut holding, self.begun, false);
        }
        drop(holding);
        Some(Permit(Arc::clone(&self.account)))
    }

    /// It ran and told what it had to tell, and whether it said that we leave.
    pub(super) fn told(mut self, left: bool) {
        self.done = true;
        let mut holding = self.account.holding();
        self.account.answered(&mut holding, self.released);
        if holding.epoch == self.epoch && holding.standing == Standing::Registered {
            self.account.registered(&mut holding, self.begun, left);
        }
    }

    /// It ran and took nothing, and unless it told of something, Redis did not even note that we live. Whether it may
    /// have been too early for permits that we had given back before it.
    pub(super) fn refused(mut self) -> bool {
        let early = self.crossed || self.account.holding().released > 0;
        if self.released > 0 {
            self.told(false);
        } else {
            self.done = true;
        }
        early
    }

    /// It did not run: what it told of is still to be told.
    pub(super) fn untold(mut self) {
        self.done = true;
        let mut holding = self.account.holding();
        self.account.answered(&mut holding, self.released);
        if holding.epoch == self.epoch && holding.standing != Standing::Unsettled {
            holding.released += self.released;
        }
    }

    /// Redis does not know us in this epoch.
    pub(super) fn unknown(mut self) {
        self.done = true;
        let mut holding = self.account.holding();
        self.account.answered(&mut holding, self.released);
        self.account.forgotten(&mut holding, self.epoch);
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if !self.done {
            let mut holding = self.account.holding();
            self.account.answered(&mut holding, self.released);
            self.account.forgotten(&mut holding, self.epoch);
        }
    }
}
