//! The limits of a key, and where it stands in them.

use super::numbers::{count, counted};
use super::timestamp::Timestamp;

/// The limits in force for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests that flow into the bucket during one `per`.
    pub requests: u64,
    /// That time, such as `hour` or `90 seconds`.
    pub per: String,
    /// Requests that the bucket holds when full.
    pub burst: u64,
    /// Whether they are the key's own, and not those of all keys.
    pub own: bool,
    /// Requests that the organization may have in flight.
    pub concurrent: u64,
}

/// Where a key and its organization stand.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitUsage {
    /// Requests left in the bucket.
    pub bucket: Gauge,
    /// When there is a request left again; none when there is one.
    pub next: Option<Timestamp>,
    /// When the bucket is full; none when it is.
    pub full: Option<Timestamp>,
    /// Requests that the organization has in flight.
    pub in_flight: Gauge,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    part: u64,
    whole: u64,
}

impl KeyLimits {
    /// The rate: `1,000 requests per hour`.
    pub fn rate(&self) -> String {
        format!("{} per {}", counted(self.requests, "request"), self.per)
    }

    /// What can come at once: `1,000`.
    pub fn at_once(&self) -> String {
        count(self.burst)
    }

    /// What the organization may have in flight.
    pub fn in_flight(&self) -> String {
        count(self.concurrent)
    }
}

impl Gauge {
    /// `part` of `whole`.
    pub fn of(part: u64, whole: u64) -> Self {
        Self { part, whole }
    }

    /// The part, in digits.
    pub fn part(&self) -> String {
        count(self.part)
    }

    /// The whole, in digits.
    pub fn whole(&self) -> String {
        count(self.whole)
    }

    /// The part in percent, for drawing: 0 to 100.
    pub fn percent(&self) -> u64 {
        match self.whole {
            0 => 0,
            whole => u64::try_from(u128::from(self.part) * 100 / u128::from(whole)).unwrap_or(u64::MAX).min(100),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.part == 0
    }

    /// Whether there is no room in it.
    pub fn is_full(&self) -> bool {
        self.part >= self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_never_leaves_its_scale() {
        for (part, whole, percent) in
            [(0, 0, 0), (5, 0, 0), (0, 9, 0), (873, 1_000, 87), (9, 9, 100), (u64::MAX, 3, 100)]
        {
            assert_eq!(Gauge::of(part, whole).percent(), percent, "{part} of {whole}");
        }
        assert!(Gauge::of(5, 5).is_full() && !Gauge::of(4, 5).is_full() && Gauge::of(0, 5).is_empty());
    }
}
