//! The mutable part of a cached key, which all its secrets share: its bucket as Redis last reported it, and uses that
//! Redis has not counted yet.

use parking_lot::{Mutex, MutexGuard};

use super::share::Share;
use crate::bucket::Bucket;
use crate::redis::record_codec::StoredKey;
use domain::clock::Micros;
use domain::quota::Quota;

/// Usage of a cached key, shared by the entries of all its secrets and by the calls in flight. It stays when the rest
/// of a cache entry is replaced by a newer version; dropped with uses that were not reported, it loses these.
#[derive(Debug)]
pub struct CachedUsage(Mutex<UsageState>);

/// - `bucket` is measured in the effective quota.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageState {
    pub(super) bucket: Bucket,
    /// Uses that Redis has counted.
    pub(super) uses: u64,
    /// Steady time of the last answer of Redis about the key.
    pub(super) confirmed: Micros,
    /// Time of the last request that Redis admitted for this gateway.
    pub(super) last_admitted: Micros,
    /// This gateway's share while Redis is unavailable; `None` while it is available.
    pub(super) share: Option<Share>,
    pub(super) unreported: UnreportedUses,
}

/// Uses that were admitted offline, to be reported to Redis.
///
/// - Redis is sent the total under a name that is used for nothing else, and counts what is more than it had under that
///   name. So a report whose reply was lost can be repeated, and no use counts twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnreportedUses {
    /// The name. Once all is reported, the next uses begin with another one: what Redis stores of this one expires.
    pub(super) name: [u8; 8],
    /// Uses under this name.
    pub(super) total: u64,
    /// Tokens that these took beyond one each: a total as well.
    pub(super) excess: u64,
    /// Number of them that Redis has counted.
    pub(super) reported: u64,
}

impl UnreportedUses {
    /// Uses that Redis has not counted.
    pub fn pending(self) -> u64 {
        debug_assert!(self.reported <= self.total, "Redis has counted no more than it was told");
        self.total - self.reported
    }
}

impl CachedUsage {
    /// From the key's record; its bucket is converted to the effective quota.
    /// Redis answered with it at `now`, in steady time.
    pub(super) fn new(key: &StoredKey, quota: Quota, now: Micros) -> Self {
        Self(Mutex::new(UsageState {
            bucket: key.live.bucket.convert(key.live.quota.per_micros(), quota),
            uses: key.key.uses,
            confirmed: now,
            last_admitted: Micros(0),
            share: None,
            unreported: UnreportedUses::default(),
        }))
    }

    /// Notes a reply of Redis, at a steady time; `admitted` is the time of the request, if it was admitted.
    pub(super) fn confirm(&self, level: i64, uses: u64, now: Micros, admitted: Option<Micros>) {
        let mut state = self.state();
        state.bucket = Bucket { level, at: now };
        state.uses = uses;
        state.confirmed = now;
        state.last_admitted = admitted.unwrap_or(state.last_admitted);
        // Redis is back: the next outage begins with a new share.
        state.share = None;
    }

    /// Steady time of the last answer of Redis about the key.
    pub fn confirmed(&self) -> Micros {
        self.state().confirmed
    }

    /// The uses to report, if there are any.
    pub fn unreported(&self) -> Option<UnreportedUses> {
        Some(self.state().unreported).filter(|uses| uses.pending() > 0)
    }

    /// Notes that Redis has counted the uses of a report.
    pub(super) fn mark_reported(&self, report: UnreportedUses) {
        let mut state = self.state();
        // A late reply may concern an earlier name, or an earlier total than another reply.
        if state.unreported.name == report.name {
            debug_assert!(report.total <= state.unreported.total, "a report has no more uses than there were");
            state.unreported.reported = state.unreported.reported.max(report.total);
        }
    }

    /// Adds a use of this cost that Redis has not counted. Returns how many these are now. `name` is used if it is the
    /// first one.
    pub(super) fn add_unreported(&self, name: [u8; 8], cost: u32) -> u64 {
        let mut state = self.state();
        if state.unreported.pending() == 0 {
            state.unreported = UnreportedUses { name, ..UnreportedUses::default() };
        }
        state.unreported.total += 1;
        state.unreported.excess += u64::from(cost) - 1;
        state.unreported.pending()
    }

    /// A panic under this lock leaves nothing half changed: its holders only assign.
    pub(super) fn state(&self) -> MutexGuard<'_, UsageState> {
        self.0.lock()
    }
}
