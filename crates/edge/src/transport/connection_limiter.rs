//! Limits on the number of connections, in total and from one address.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use domain::identity::client_prefix;

/// Shards of the counts by address: workers that accept at the same time rarely wait for one another.
const SHARDS: usize = 64;

/// Limiter of connections, shared by all listeners and workers; clones share the counts.
///
/// - At most `total` connections have a permit, and at most `per_address` of one address (of one /64 with IPv6).
///   Addresses of `exempt` networks have no limit of their own: they are proxies with many clients.
#[derive(Clone, Debug)]
pub struct ConnectionLimiter(Arc<Counts>);

/// Shared by the limiters of all workers and by the permits, which give their counts back.
#[derive(Debug)]
struct Counts {
    /// Limits, which a reload changes.
    max_total: AtomicUsize,
    max_per_address: AtomicUsize,
    exempt: ArcSwap<Vec<IpNet>>,
    /// Permits that are not dropped, and for a moment those that are about to be refused.
    total: AtomicUsize,
    /// Random, so that no client can choose addresses that share a shard.
    hasher: RandomState,
    /// Permits of each address that has one.
    by_address: [Mutex<FxHashMap<IpAddr, usize>>; SHARDS],
}

/// The limit that keeps a connection from getting a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    Total,
    Address,
}

/// A connection's permit, given back when dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    counts: Arc<Counts>,
    per_address: Option<PerAddressPermit>,
}

/// A permit among those of one address, given back when dropped.
#[derive(Debug)]
pub(super) struct PerAddressPermit {
    counts: Arc<Counts>,
    address: IpAddr,
    /// Shard that counts the address.
    shard: usize,
}

impl ConnectionLimiter {
    /// A limiter of `total` connections, and of `per_address` for each address that is not exempt.
    pub fn new(total: usize, per_address: usize, exempt: Vec<IpNet>) -> Self {
        Self(Arc::new(Counts {
            max_total: AtomicUsize::new(total),
            max_per_address: AtomicUsize::new(per_address),
            exempt: ArcSwap::from_pointee(exempt),
            total: AtomicUsize::new(0),
            hasher: RandomState::new(),
            by_address: std::array::from_fn(|_| Mutex::default()),
        }))
    }

    /// Changes the limits. Connections beyond the new limits stay; new ones get permits when there are fewer.
    pub fn resize(&self, total: usize, per_address: usize, exempt: Vec<IpNet>) {
        self.0.exempt.store(Arc::new(exempt));
        self.0.max_total.store(total, Ordering::Relaxed);
        self.0.max_per_address.store(per_address, Ordering::Relaxed);
    }

    /// Acquires the permit of a connection from this address.
    pub(super) fn acquire(&self, address: IpAddr) -> Result<ConnectionPermit, LimitReached> {
        // Counted before the limit is looked at, so that two workers never share the last permit. A permit that is
        // refused below gives its count back when it is dropped.
        let mut permit = ConnectionPermit { counts: Arc::clone(&self.0), per_address: None };
        if self.0.total.fetch_add(1, Ordering::Relaxed) >= self.0.max_total.load(Ordering::Relaxed) {
            return Err(LimitReached::Total);
        }
        permit.per_address = self.acquire_per_address(address)?;
        Ok(permit)
    }

    /// Acquires a permit among those of an address; `None` for an exempt one.
    pub(super) fn acquire_per_address(&self, address: IpAddr) -> Result<Option<PerAddressPermit>, LimitReached> {
        let address = address.to_canonical();
        if self.0.exempt.load().iter().any(|network| network.contains(&address)) {
            return Ok(None);
        }
        let address = client_prefix(address);
        let shard = self.0.shard_of(address);
        let mut counts = self.0.by_address[shard].lock();
        let count = counts.entry(address).or_default();
        if *count >= self.0.max_per_address.load(Ordering::Relaxed) {
            return Err(LimitReached::Address);
        }
        *count += 1;
        Ok(Some(PerAddressPermit { counts: Arc::clone(&self.0), address, shard }))
    }
}

impl Counts {
    fn shard_of(&self, address: IpAddr) -> usize {
        let hash = self.hasher.hash_one(address);
        usize::try_from(hash % SHARDS as u64).expect("less than the number of shards")
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        drop(self.per_address.take());
        let before = self.counts.total.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each permit is counted once");
    }
}

impl Drop for PerAddressPermit {
    fn drop(&mut self) {
        let mut shard = self.counts.by_address[self.shard].lock();
        debug_assert!(shard.contains_key(&self.address), "an address is counted until its last permit is dropped");
        if let Some(count) = shard.get_mut(&self.address) {
            *count -= 1;
            // Addresses without a connection take no memory.
            if *count == 0 {
                shard.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn permits_never_exceed_the_limits() {
        let limiter = ConnectionLimiter::new(3, 2, vec!["10.0.0.0/8".parse().unwrap()]);
        let first = limiter.acquire(ip("192.0.2.1")).unwrap();
        let _second = limiter.acquire(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(limiter.acquire(ip("192.0.2.1")).unwrap_err(), LimitReached::Address);
        drop(first);
        let _again = limiter.acquire(ip("192.0.2.1")).unwrap();
        let _other = limiter.acquire(ip("192.0.2.2")).unwrap();
        assert_eq!(limiter.acquire(ip("192.0.2.3")).unwrap_err(), LimitReached::Total);
    }

    #[test]
    fn ipv6_prefix_counts_as_one_address_and_a_proxy_is_exempt() {
        let limiter = ConnectionLimiter::new(100, 1, vec!["10.0.0.0/8".parse().unwrap()]);
        let _prefix = limiter.acquire(ip("2001:db8::1")).unwrap();
        assert_eq!(limiter.acquire(ip("2001:db8::2")).unwrap_err(), LimitReached::Address);
        let _other = limiter.acquire(ip("2001:db8:0:1::1")).unwrap();
        let _proxied: Vec<_> = (0..10).map(|_| limiter.acquire(ip("10.1.2.3")).unwrap()).collect();
    }

    #[test]
    fn permits_given_back_leave_no_counts() {
        let limiter = ConnectionLimiter::new(1000, 1000, Vec::new());
        for last in 0..=255 {
            drop(limiter.acquire(IpAddr::from([192, 0, 2, last])).unwrap());
        }
        assert_eq!(limiter.0.total.load(Ordering::Relaxed), 0);
        assert!(limiter.0.by_address.iter().all(|shard| shard.lock().is_empty()));
    }
}
