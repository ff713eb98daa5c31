//! Active default limits, and since when: a bucket refills the time before by the quota that was in force then.
//!
//! - The time is this gateway's own, and Redis is told the age: so clocks of gateways need not agree.
//! - At its start a gateway does not know the limits before, and takes those of its configuration as in force from then
//!   on. Redis keeps with each bucket the quota that it was measured with, which is the one before.
//! - While gateways have different limits, the time between two decisions of a key counts by the limits of the gateway
//!   that makes the second, except for the part before these came into force there, which counts by those of the first.

use crate::Defaults;
use domain::clock::Micros;

/// Limits of keys and organizations without limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ActiveDefaults {
    pub(super) limits: Defaults,
    /// Time since which the quota is in force at this gateway.
    pub(super) quota_since: Micros,
}

impl ActiveDefaults {
    /// The limits of a gateway that starts.
    pub(super) fn new(limits: Defaults, now: Micros) -> Self {
        Self { limits, quota_since: now }
    }

    /// The limits after a reload.
    #[must_use]
    pub(super) fn with_limits(self, limits: Defaults, now: Micros) -> Self {
        let quota_since = if limits.quota == self.limits.quota { self.quota_since } else { now };
        Self { limits, quota_since }
    }
}
