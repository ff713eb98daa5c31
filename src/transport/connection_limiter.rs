//! How many connections there may be, in total and from one address.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use ipnet::IpNet;
use rustc_hash::FxHashMap;

use crate::identity::client_prefix;

/// So that workers that accept at the same time rarely meet at a lock.
const SHARDS: usize = 64;

/// The places for connections, shared by all listeners and workers; clones are the same places.
///
/// - Never more than `total` connections hold a place, and never more than `per_address` of one address (of one /64 with
///   IPv6), except for addresses of `exempt` networks: proxies that speak for many.
#[derive(Clone, Debug)]
pub struct ConnectionLimiter(Arc<Places>);

#[derive(Debug)]
struct Places {
    total: AtomicUsize,
    per_address: AtomicUsize,
    exempt: ArcSwap<Vec<IpNet>>,
    taken: AtomicUsize,
    hasher: RandomState,
    addresses: [Mutex<FxHashMap<IpAddr, usize>>; SHARDS],
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Total,
    Address,
}

/// A connection's place, given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    /// Of its address.
    seat: Option<Seat>,
}

/// A place among those of one address, given back when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    places: Arc<Places>,
    address: IpAddr,
}

impl ConnectionLimiter {
    /// Room for `total` connections, and for `per_address` of each address that is not exempt.
    pub fn new(total: usize, per_address: usize, exempt: Vec<IpNet>) -> Self {
        Self(Arc::new(Places {
            total: AtomicUsize::new(total),
            per_address: AtomicUsize::new(per_address),
            exempt: ArcSwap::from_pointee(exempt),
            taken: AtomicUsize::new(0),
            hasher: RandomState::new(),
            addresses: std::array::from_fn(|_| Mutex::default()),
        }))
    }

    /// Changes how many there may be, and who is exempt. Connections beyond the new numbers stay; no new ones come until
    /// they are fewer.
    pub fn resize(&self, total: usize, per_address: usize, exempt: Vec<IpNet>) {
        self.0.exempt.store(Arc::new(exempt));
        self.0.total.store(total, Ordering::Relaxed);
        self.0.per_address.store(per_address, Ordering::Relaxed);
    }

    /// A place for a connection from this address.
    pub(super) fn enter(&self, address: IpAddr) -> Result<Place, Full> {
        let mut place = Place { places: Arc::clone(&self.0), seat: None };
        if self.0.taken.fetch_add(1, Ordering::Relaxed) >= self.0.total.load(Ordering::Relaxed) {
            return Err(Full::Total);
        }
        place.seat = self.seat(address)?;
        Ok(place)
    }

    /// A place among those of an address; none for who is exempt.
    pub(super) fn seat(&self, address: IpAddr) -> Result<Option<Seat>, Full> {
        let address = address.to_canonical();
        if self.0.exempt.load().iter().any(|network| network.contains(&address)) {
            return Ok(None);
        }
        let address = client_prefix(address);
        let mut addresses = self.0.shard(address);
        let count = addresses.entry(address).or_default();
        if *count >= self.0.per_address.load(Ordering::Relaxed) {
            return Err(Full::Address);
        }
        *count += 1;
        Ok(Some(Seat { places: Arc::clone(&self.0), address }))
    }
}

impl Places {
    fn shard(&self, site: IpAddr) -> MutexGuard<'_, FxHashMap<IpAddr, usize>> {
        let hash = self.hasher.hash_one(site);
        let index = usize::try_from(hash % SHARDS as u64).expect("less than the number of shards");
        // Nothing can panic while it is held; and if it did, the counts would be whole.
        self.addresses[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.seat.take());
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut addresses = self.places.shard(self.address);
        if let Some(count) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
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
    fn never_more_than_there_is_room_for() {
        let connection_limiter = ConnectionLimiter::new(3, 2, vec!["10.0.0.0/8".parse().unwrap()]);
        let first = connection_limiter.enter(ip("192.0.2.1")).unwrap();
        let _second = connection_limiter.enter(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(connection_limiter.enter(ip("192.0.2.1")).unwrap_err(), Full::Address);
        drop(first);
        let _again = connection_limiter.enter(ip("192.0.2.1")).unwrap();
        let _other = connection_limiter.enter(ip("192.0.2.2")).unwrap();
        assert_eq!(connection_limiter.enter(ip("192.0.2.3")).unwrap_err(), Full::Total);
    }

    #[test]
    fn a_site_is_one_address_and_a_proxy_is_none() {
        let connection_limiter = ConnectionLimiter::new(100, 1, vec!["10.0.0.0/8".parse().unwrap()]);
        let _site = connection_limiter.enter(ip("2001:db8::1")).unwrap();
        assert_eq!(connection_limiter.enter(ip("2001:db8::2")).unwrap_err(), Full::Address);
        let _other = connection_limiter.enter(ip("2001:db8:0:1::1")).unwrap();
        let _proxied: Vec<_> = (0..10).map(|_| connection_limiter.enter(ip("10.1.2.3")).unwrap()).collect();
    }

    #[test]
    fn places_that_are_given_back_leave_nothing() {
        let connection_limiter = ConnectionLimiter::new(1000, 1000, Vec::new());
        for last in 0..=255 {
            drop(connection_limiter.enter(IpAddr::from([192, 0, 2, last])).unwrap());
        }
        assert_eq!(connection_limiter.0.taken.load(Ordering::Relaxed), 0);
        assert!(connection_limiter.0.addresses.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
