//! Public routes: requests that need no key.
//!
//! - No credential is looked at; those that come are removed by `forward`. The upstream gets no identity.
//! - They cost no token and no slot of anybody, and have no audit record: what bounds them is a bucket for each client
//!   address, and their number in flight at this gateway. So a flood of them takes nothing from callers with keys.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::address_limiter::AddressLimiter;
use domain::clock::Micros;
use domain::quota::Quota;

/// Limits of requests without keys, as the configuration states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicSettings {
    /// Bucket of each client address.
    pub quota: Quota,
    /// Requests in flight at this gateway.
    pub concurrent: u32,
}

/// Limits of requests without keys, shared by all workers.
#[derive(Clone, Debug)]
pub struct PublicLimits {
    settings: PublicSettings,
    by_address: AddressLimiter,
    /// Requests in flight. Shared with their slots, also those of before a reload.
    in_flight: Arc<AtomicU32>,
}

/// Place of a request among those in flight; given back when it is dropped.
pub(super) struct PublicSlot(Arc<AtomicU32>);

impl PublicLimits {
    /// Limits by these settings, with nothing in flight.
    pub fn new(settings: PublicSettings) -> Self {
        Self { settings, by_address: AddressLimiter::new(settings.quota), in_flight: Arc::default() }
    }

    /// The limits after a reload. Requests in flight go on counting; so do the buckets, unless their quota is another.
    #[must_use]
    pub fn changed(&self, settings: PublicSettings) -> Self {
        let same_quota = settings.quota == self.settings.quota;
        let by_address = if same_quota { self.by_address.clone() } else { AddressLimiter::new(settings.quota) };
        Self { settings, by_address, in_flight: Arc::clone(&self.in_flight) }
    }

    /// Takes a token of the address.
    ///
    /// # Errors
    /// The seconds until the next one may come.
    pub(super) fn count(&self, address: IpAddr, now: Micros) -> Result<(), u64> {
        self.by_address.count(address, now)
    }

    /// Takes a place among the requests in flight; none when all are taken.
    fn acquire(&self) -> Option<PublicSlot> {
        let slot = PublicSlot(Arc::clone(&self.in_flight));
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        // Too many: the drop of the slot takes the place back.
        (before < self.settings.concurrent).then_some(slot)
    }

    /// Takes a place and a token. A request that gets no place costs no token.
    ///
    /// # Errors
    /// The seconds until the address has a token; none when all places are taken.
    pub(super) fn admit(&self, address: IpAddr, now: Micros) -> Result<PublicSlot, Option<u64>> {
        let Some(slot) = self.acquire() else { return Err(None) };
        self.count(address, now).map_err(Some)?;
        Ok(slot)
    }
}

impl Drop for PublicSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use domain::refusal::Refusal;

    fn settings(requests: u32, concurrent: u32) -> PublicSettings {
        let quota = Quota { requests, per: Duration::from_secs(60), burst: requests, strict: false };
        PublicSettings { quota, concurrent }
    }

    fn refusal(limits: &PublicLimits, address: [u8; 4], now: u64) -> Option<Refusal> {
        let refused = limits.admit(address.into(), Micros(now)).err();
        refused.map(|seconds| seconds.map_or(Refusal::PublicBusy, |_| Refusal::AddressLimited))
    }

    #[test]
    fn address_beyond_its_bucket_and_all_beyond_the_places_are_refused() {
        let limits = PublicLimits::new(settings(2, 2));
        let now = 1_000_000_000;
        let first = limits.admit([192, 0, 2, 1].into(), Micros(now)).ok();
        let second = limits.admit([192, 0, 2, 2].into(), Micros(now)).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(refusal(&limits, [192, 0, 2, 1], now), Some(Refusal::PublicBusy));
        drop(first);
        assert_eq!(refusal(&limits, [192, 0, 2, 1], now), None, "the refusal cost no token, and the place is free");
        assert_eq!(refusal(&limits, [192, 0, 2, 1], now), Some(Refusal::AddressLimited));
        assert_eq!(refusal(&limits, [192, 0, 2, 3], now), None, "another address has a bucket of its own");
    }

    #[test]
    fn reload_keeps_requests_in_flight_and_the_buckets_of_the_same_quota() {
        let limits = PublicLimits::new(settings(1, 2));
        let now = 1_000_000_000;
        let open = limits.admit([192, 0, 2, 1].into(), Micros(now)).ok();
        let narrowed = limits.changed(settings(1, 1));
        assert_eq!(refusal(&narrowed, [192, 0, 2, 2], now), Some(Refusal::PublicBusy));
        drop(open);
        assert_eq!(refusal(&narrowed, [192, 0, 2, 1], now), Some(Refusal::AddressLimited));
        assert_eq!(refusal(&narrowed.changed(settings(3, 1)), [192, 0, 2, 1], now), None);
    }
}
