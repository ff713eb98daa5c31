//! Reservation of an admitted request in a budget on Redis.

use std::sync::Arc;

use super::key_cache::CachedKey;
use super::shared::UnreportedKeys;
use domain::budget::BudgetTotal;
use domain::clock::Micros;

/// Reservation of a request in a budget on Redis.
pub(crate) struct RedisReservation {
    key: Arc<CachedKey>,
    unreported: Arc<UnreportedKeys>,
}

impl std::fmt::Debug for RedisReservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisReservation").finish_non_exhaustive()
    }
}

impl RedisReservation {
    /// The reservation of a request with a key that has a budget.
    pub(super) fn new(key: &Arc<CachedKey>, unreported: &Arc<UnreportedKeys>) -> Self {
        Self { key: Arc::clone(key), unreported: Arc::clone(unreported) }
    }

    /// The request that reserved `reserved` units in the period from `start` has cost `actual`. Returns the units that
    /// this gateway has given back.
    pub(crate) fn settle(self, start: Micros, reserved: u64, actual: u64) -> BudgetTotal {
        let budget = self.key.budget.as_deref();
        let budget = budget.unwrap_or_else(|| unreachable!("a reservation is made with the budget of its key"));
        let (returned, exceeded) = (reserved.saturating_sub(actual), actual.saturating_sub(reserved));
        if reserved != actual && budget.counter.add(start, returned, exceeded) {
            self.unreported.add(&self.key);
        }
        budget.counter.returned(start)
    }
}
