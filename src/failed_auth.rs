//! Attempts with bad keys, and to sign in, bounded by address.
//!
//! - Only bad keys count, and only they are refused: behind a shared address, good keys are never locked out.
//! - The addresses are cells of a table of fixed size, found by a keyed hash. Two that share a cell share its attempts,
//!   which costs a client with a bad key the difference between two refusals. So an attacker with many addresses fills
//!   nothing, and finds nobody to harm.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Micros;
use crate::identity::client_prefix;
use crate::quota::Quota;

/// Half a megabyte; with fewer attackers than that at a time, each has nearly always a cell of its own.
const CELLS: usize = 1 << 16;

/// Attempts by address, shared by all workers.
#[derive(Clone, Debug)]
pub struct FailedAuthLimiter(Arc<Table>);

#[derive(Debug)]
struct Table {
    /// Microseconds that one attempt takes to be forgotten.
    interval: u64,
    /// Microseconds of attempts that may be remembered.
    burst: u64,
    hasher: RandomState,
    /// When the last attempt of each cell will be forgotten (GCRA's theoretical arrival time).
    cells: Box<[AtomicU64]>,
}

impl FailedAuthLimiter {
    /// As many attempts as the quota has.
    pub fn new(quota: Quota) -> Self {
        let per = u64::try_from(quota.per.as_micros()).unwrap_or(u64::MAX);
        let interval = per / u64::from(quota.requests).max(1);
        Self(Arc::new(Table {
            interval,
            burst: interval.saturating_mul(u64::from(quota.burst)),
            hasher: RandomState::new(),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
        }))
    }

    /// Counts an attempt, unless there were too many; then says in how many whole seconds there may be another.
    ///
    /// # Errors
    /// Those seconds, at least 1.
    pub fn count_attempt(&self, address: IpAddr, now: Micros) -> Result<(), u64> {
        let table = &*self.0;
        let hash = table.hasher.hash_one(client_prefix(address));
        let cell = &table.cells[usize::try_from(hash % CELLS as u64).expect("less than the number of cells")];
        let counted = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |forgotten| {
            let next = forgotten.max(now.0) + table.interval;
            (next - now.0 <= table.burst).then_some(next)
        });
        counted.map(drop).map_err(|forgotten| {
            let wait = (forgotten + table.interval).saturating_sub(now.0 + table.burst);
            wait.div_ceil(1_000_000).max(1)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_few_attempts_and_then_one_at_a_time() {
        let limiter = FailedAuthLimiter::new(Quota { requests: 6, per: Duration::from_secs(60), burst: 3 });
        let (now, address) = (Micros(1_000_000_000), IpAddr::from([192, 0, 2, 1]));
        assert!((0..3).all(|_| limiter.count_attempt(address, now).is_ok()));
        assert_eq!(limiter.count_attempt(address, now), Err(10));
        assert!(limiter.count_attempt(IpAddr::from([192, 0, 2, 2]), now).is_ok(), "others are not concerned");
        let later = Micros(now.0 + 10_000_000);
        assert!(limiter.count_attempt(address, later).is_ok());
        assert_eq!(limiter.count_attempt(address, Micros(later.0 + 1)), Err(10));
    }
}
