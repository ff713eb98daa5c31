//! Address limiter: bounds what one client address may do without a key, by a token bucket for each address.
//!
//! Attempts with unknown keys, sign-ins that were not completed, and requests to public routes have a limiter each:
//! none takes from another. Valid keys are never counted, so that behind a shared address they are never locked out.
//!
//! - An IPv6 client has its network, /64, as its address.
//! - Addresses map to the cells of a table of fixed size by a keyed hash, so an attacker with many addresses cannot
//!   exhaust memory. Two addresses with the same cell share its bucket; the hash is keyed: no client chooses whose.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use crate::clock::Micros;
use crate::identity::client_prefix;
use crate::quota::{ArrivalTime, Gcra, Quota};

/// Number of cells: half a megabyte. With far fewer active addresses, each nearly always has a cell of its own.
const CELLS: usize = 1 << 16;

/// Limiter by client address, shared by all workers.
#[derive(Clone, Debug)]
pub struct AddressLimiter(Arc<Table>);

#[derive(Debug)]
struct Table {
    limit: Gcra,
    hasher: RandomState,
    /// Made with the first attempt: many limiters never see one.
    cells: OnceLock<Box<[ArrivalTime]>>,
}

impl AddressLimiter {
    /// Makes a limiter that allows each client address what this quota says.
    pub fn new(quota: Quota) -> Self {
        Self(Arc::new(Table {
            limit: Gcra::new(quota.requests, quota.per, quota.burst),
            hasher: RandomState::new(),
            cells: OnceLock::new(),
        }))
    }

    /// Counts one attempt or request.
    ///
    /// # Errors
    /// There were too many already; this one is not counted. The whole seconds until the next one is allowed, at least
    /// 1.
    pub fn count(&self, address: IpAddr, now: Micros) -> Result<(), u64> {
        self.0.limit.count(self.cell(address), now).map_err(|wait| wait.div_ceil(1_000_000).max(1))
    }

    /// Takes back an attempt that was counted.
    pub fn uncount(&self, address: IpAddr) {
        self.0.limit.uncount(self.cell(address));
    }

    fn cell(&self, address: IpAddr) -> &ArrivalTime {
        let table = &*self.0;
        let hash = table.hasher.hash_one(client_prefix(address));
        let cells = table.cells.get_or_init(|| (0..CELLS).map(|_| ArrivalTime::default()).collect());
        &cells[usize::try_from(hash % CELLS as u64).expect("less than the number of cells")]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn attempts_are_limited_by_address() {
        let limiter = AddressLimiter::new(Quota { requests: 6, per: Duration::from_secs(60), burst: 3, strict: false });
        let now = Micros(1_000_000_000);
        let address = IpAddr::from([192, 0, 2, 1]);
        assert!((0..3).all(|_| limiter.count(address, now).is_ok()));
        assert_eq!(limiter.count(address, now), Err(10));
        assert!(limiter.count(IpAddr::from([192, 0, 2, 2]), now).is_ok(), "another address is not limited");
        let later = Micros(now.0 + 10_000_000);
        assert!(limiter.count(address, later).is_ok());
        assert_eq!(limiter.count(address, Micros(later.0 + 1)), Err(10));
        limiter.uncount(address);
        assert!(limiter.count(address, Micros(later.0 + 1)).is_ok(), "one that is taken back does not count");
    }
}
