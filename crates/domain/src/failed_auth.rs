//! Failed-authentication limiter: bounds, for each client address, attempts with unknown keys, or sign-ins that were
//! not completed. Each of the two has a limiter of its own: neither takes attempts from the other.
//!
//! - Only failed attempts are counted, and only they are refused: behind a shared address, valid keys are never locked
//!   out.
//! - Addresses map to the cells of a table of fixed size by a keyed hash. Two addresses with the same cell share its
//!   attempts; the only effect is that a client with an unknown key gets 429 in place of 401. So an attacker with many
//!   addresses can neither exhaust memory nor lock out other clients.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;

use crate::clock::Micros;
use crate::identity::client_prefix;
use crate::quota::{ArrivalTime, Gcra, Quota};

/// Number of cells: half a megabyte. With far fewer attackers at a time, each nearly always has a cell of its own.
const CELLS: usize = 1 << 16;

/// Limiter of failed authentications, shared by all workers.
#[derive(Clone, Debug)]
pub struct FailedAuthLimiter(Arc<Table>);

#[derive(Debug)]
struct Table {
    limit: Gcra,
    hasher: RandomState,
    cells: Box<[ArrivalTime]>,
}

impl FailedAuthLimiter {
    /// Makes a limiter that allows each client address the attempts of this quota.
    pub fn new(quota: Quota) -> Self {
        Self(Arc::new(Table {
            limit: Gcra::new(quota.requests, quota.per, quota.burst),
            hasher: RandomState::new(),
            cells: (0..CELLS).map(|_| ArrivalTime::default()).collect(),
        }))
    }

    /// Counts a failed attempt.
    ///
    /// # Errors
    /// There were too many attempts already; this one is not counted. The whole seconds until the next one is
    /// allowed, at least 1.
    pub fn count_attempt(&self, address: IpAddr, now: Micros) -> Result<(), u64> {
        let table = &*self.0;
        let hash = table.hasher.hash_one(client_prefix(address));
        let cell = &table.cells[usize::try_from(hash % CELLS as u64).expect("less than the number of cells")];
        table.limit.count(cell, now).map_err(|wait| wait.div_ceil(1_000_000).max(1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn attempts_are_limited_by_address() {
        let limiter =
            FailedAuthLimiter::new(Quota { requests: 6, per: Duration::from_secs(60), burst: 3, strict: false });
        let now = Micros(1_000_000_000);
        let address = IpAddr::from([192, 0, 2, 1]);
        assert!((0..3).all(|_| limiter.count_attempt(address, now).is_ok()));
        assert_eq!(limiter.count_attempt(address, now), Err(10));
        assert!(limiter.count_attempt(IpAddr::from([192, 0, 2, 2]), now).is_ok(), "another address is not limited");
        let later = Micros(now.0 + 10_000_000);
        assert!(limiter.count_attempt(address, later).is_ok());
        assert_eq!(limiter.count_attempt(address, Micros(later.0 + 1)), Err(10));
    }
}
