//! Verdict on a cached key: how often Redis has refused it in a row, and the last of these refusals.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::bucket::Bucket;
use domain::budget::BudgetStatus;
use domain::clock::Micros;
use domain::refusal::Refusal;

/// Refusals in a row before a verdict holds. A caller that is refused once and then granted what it asks for is
/// admitted at once; a caller in a loop reaches this number within a millisecond.
const REFUSALS_IN_A_ROW: u32 = 3;

/// Verdict on a cached key.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Refusals in a row; zero for nearly all keys, whose decisions look no further.
    refusals: AtomicU32,
    basis: Mutex<Option<Box<Basis>>>,
}

/// The last refusal by Redis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis {
    pub(super) refusal: Refusal,
    /// Time of the request that was refused. Redis decided no earlier.
    pub(super) at: Micros,
    pub(super) bucket: Bucket,
    /// Slots of the organization that other gateways held.
    pub(super) held_elsewhere: u32,
    /// Slots of the organization that this gateway held.
    pub(super) held: u32,
    /// Slots of the key that other gateways held, and that this gateway held, if the key has a limit of its own.
    pub(super) key_slots_elsewhere: u32,
    pub(super) key_slots_held: u32,
    /// The budget, of a key that has one.
    pub(super) budget: Option<BudgetStatus>,
    /// Verdicts of another epoch do not hold.
    pub(super) epoch: u64,
}

impl Verdict {
    /// Notes that Redis has admitted the key.
    pub(super) fn clear(&self) {
        // Read first: writing would take the cache line from the other workers.
        if self.refusals.load(Ordering::Relaxed) != 0 {
            self.refusals.store(0, Ordering::Relaxed);
            *self.lock() = None;
        }
    }

    /// Notes a refusal by Redis.
    pub(super) fn add_refusal(&self, basis: Basis) {
        let mut last = self.lock();
        // Replies of several connections come in any order.
        if last.as_ref().is_none_or(|last| last.at <= basis.at || last.epoch != basis.epoch) {
            *last = Some(Box::new(basis));
        }
        self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |refusals| refusals.checked_add(1)).ok();
    }

    /// The last refusal, if there were enough in a row and it is of this epoch.
    pub(super) fn basis(&self, epoch: u64) -> Option<Basis> {
        if self.refusals.load(Ordering::Relaxed) < REFUSALS_IN_A_ROW {
            return None;
        }
        let basis = **self.lock().as_ref()?;
        (basis.epoch == epoch).then_some(basis)
    }

    /// A panic under this lock leaves nothing half changed: its holders only assign.
    fn lock(&self) -> MutexGuard<'_, Option<Box<Basis>>> {
        self.basis.lock()
    }
}
