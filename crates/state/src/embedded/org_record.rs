//! Organization record for decisions: its suspension, its limit, and its slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use domain::identity::OrgId;

/// The part of an organization that decisions need, shared by all its keys.
///
/// - `in_flight` is the number of live [`OrgSlot`]s, and never above the limit that held when the last was acquired.
/// - A change is a single store: a decision that begins after the change was acknowledged sees it.
#[derive(Debug)]
pub(super) struct OrgRecord {
    pub(super) id: OrgId,
    suspended: AtomicBool,
    /// Its own limit of requests in flight; zero for the configured one.
    own_limit: AtomicU32,
    /// The configured limit.
    default_limit: AtomicU32,
    in_flight: AtomicU32,
}

/// A slot of an organization, released on drop.
#[derive(Debug)]
pub(super) struct OrgSlot(Arc<OrgRecord>);

impl OrgRecord {
    pub(super) fn new(id: OrgId, suspended: bool, own_limit: Option<u32>, default_limit: u32) -> Self {
        Self {
            id,
            suspended: AtomicBool::new(suspended),
            own_limit: AtomicU32::new(own_limit.unwrap_or(0)),
            default_limit: AtomicU32::new(default_limit),
            in_flight: AtomicU32::new(0),
        }
    }

    /// Acquires a slot and returns it with the number of slots taken now; none when all are taken.
    pub(super) fn acquire_slot(self: &Arc<Self>) -> Option<(OrgSlot, u32)> {
        let limit = self.limit();
        // Compared, not equal: a lowered limit may leave more slots taken than it allows, until they are released.
        let one_more = |taken| (taken < limit).then(|| taken + 1);
        let before = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).ok()?;
        Some((OrgSlot(Arc::clone(self)), before + 1))
    }

    /// Acquires a slot also when all are taken: for a request that holds it in another process.
    pub(super) fn hold_slot(self: &Arc<Self>) -> OrgSlot {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        OrgSlot(Arc::clone(self))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The effective limit.
    pub(super) fn limit(&self) -> u32 {
        self.own_limit().unwrap_or_else(|| self.default_limit.load(Ordering::Acquire))
    }

    pub(super) fn own_limit(&self) -> Option<u32> {
        Some(self.own_limit.load(Ordering::Acquire)).filter(|limit| *limit > 0)
    }

    pub(super) fn set_own_limit(&self, limit: Option<u32>) {
        self.own_limit.store(limit.unwrap_or(0), Ordering::Release);
    }

    pub(super) fn set_default_limit(&self, limit: u32) {
        self.default_limit.store(limit, Ordering::Release);
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    pub(super) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Release);
    }
}

impl Drop for OrgSlot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
