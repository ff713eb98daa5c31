//! Active default limits, and since when: a bucket refills the time before by the quota that was in force then.
//!
//! - The time is this gateway's own, and Redis is told the age: so clocks of gateways need not agree.
//! - At its start a gateway does not know the limits before, and takes those of its configuration as in force from then
//!   on. Redis keeps with each bucket the quota that it was measured with, which is the one before.
//! - While gateways have different limits, the time between two decisions of a key counts by the limits of the gateway
//!   that makes the second, except for the part before these came into force there, which counts by those of the first.
//! - Another plan of a key's user or organization is in force from the key's last decision on: nothing of the key is
//!   written when it changes, however many keys there are.

use crate::Defaults;
use domain::clock::Micros;

/// Limits of keys and organizations without limits of their own.
#[derive(Clone, Debug)]
pub(crate) struct ActiveDefaults {
    pub(super) limits: Defaults,
    /// Time since which the quotas, of keys and of plans, are in force at this gateway.
    pub(super) quota_since: Micros,
    /// Number of the limits: entries of the cache that were computed with others are read again.
    pub(super) number: u64,
}

impl ActiveDefaults {
    /// The limits of a gateway that starts.
    pub(super) fn new(limits: Defaults, now: Micros) -> Self {
        Self { limits, quota_since: now, number: 0 }
    }

    /// The limits after a reload.
    #[must_use]
    pub(super) fn with_limits(&self, limits: Defaults, now: Micros) -> Self {
        let is_same = limits.quota == self.limits.quota && limits.plans == self.limits.plans;
        let number = if limits == self.limits { self.number } else { self.number + 1 };
        Self { limits, quota_since: if is_same { self.quota_since } else { now }, number }
    }
}
