//! Slots of organizations and of keys, and the slots that a request holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use domain::identity::OrgId;
use domain::refusal::Refusal;

/// The part of an organization that decisions need, shared by all its keys.
///
/// - `in_flight` is the number of live [`OrgSlot`]s, and never above the limit that held when the last was acquired.
/// - A change is a single store: a decision that begins after the change was acknowledged sees it.
#[derive(Debug)]
pub(crate) struct OrgRecord {
    pub(crate) id: OrgId,
    suspended: AtomicBool,
    /// Its own limit of requests in flight; zero for the configured one.
    own_limit: AtomicU32,
    /// The configured limit.
    default_limit: AtomicU32,
    in_flight: AtomicU32,
}

/// A slot of an organization, released on drop.
#[derive(Debug)]
struct OrgSlot(Arc<OrgRecord>);

/// Requests in flight of a key, shared by its terms and its requests.
///
/// - It counts the live [`KeySlot`]s: requests that began while the key's policy had `concurrent`.
/// - It outlives a policy without `concurrent` for as long as one of them is open.
#[derive(Debug, Default)]
pub(crate) struct KeySlots {
    in_flight: AtomicU32,
}

/// A slot of a key, released on drop.
#[derive(Debug)]
struct KeySlot(Arc<KeySlots>);

/// The slots of an admitted request, released on drop.
#[derive(Debug)]
pub struct Permit {
    _org: OrgSlot,
    /// None for a key without a limit of its own.
    _key: Option<KeySlot>,
}

impl OrgRecord {
    pub(crate) fn new(id: OrgId, suspended: bool, own_limit: Option<u32>, default_limit: u32) -> Self {
        Self {
            id,
            suspended: AtomicBool::new(suspended),
            own_limit: AtomicU32::new(own_limit.unwrap_or(0)),
            default_limit: AtomicU32::new(default_limit),
            in_flight: AtomicU32::new(0),
        }
    }

    /// Acquires a slot and returns it with the number of slots taken now; none when all are taken.
    fn acquire_slot(self: &Arc<Self>) -> Option<(OrgSlot, u32)> {
        let limit = self.limit();
        // Compared, not equal: a lowered limit may leave more slots taken than it allows, until they are released.
        let one_more = |taken| (taken < limit).then(|| taken + 1);
        let before = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).ok()?;
        Some((OrgSlot(Arc::clone(self)), before + 1))
    }

    /// Acquires a slot also when all are taken: for a request that holds it in another process.
    fn hold_slot(self: &Arc<Self>) -> OrgSlot {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        OrgSlot(Arc::clone(self))
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The effective limit.
    pub(crate) fn limit(&self) -> u32 {
        self.own_limit().unwrap_or_else(|| self.default_limit.load(Ordering::Acquire))
    }

    pub(crate) fn own_limit(&self) -> Option<u32> {
        Some(self.own_limit.load(Ordering::Acquire)).filter(|limit| *limit > 0)
    }

    pub(crate) fn set_own_limit(&self, limit: Option<u32>) {
        self.own_limit.store(limit.unwrap_or(0), Ordering::Release);
    }

    pub(crate) fn set_default_limit(&self, limit: u32) {
        self.default_limit.store(limit, Ordering::Release);
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Release);
    }
}

impl KeySlots {
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Acquires a slot, if fewer than `limit` are taken.
    fn acquire(self: &Arc<Self>, limit: u32) -> Option<KeySlot> {
        let one_more = |taken| (taken < limit).then(|| taken + 1);
        self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).ok()?;
        Some(KeySlot(Arc::clone(self)))
    }

    /// Acquires a slot also when all are taken.
    fn hold(self: &Arc<Self>) -> KeySlot {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        KeySlot(Arc::clone(self))
    }
}

impl Permit {
    /// Acquires a slot of the key, if it has a limit of its own, then one of the organization. Returns them with the
    /// number of the organization's slots that are taken now.
    pub(super) fn acquire(key: Option<(&Arc<KeySlots>, u32)>, org: &Arc<OrgRecord>) -> Result<(Self, u32), Refusal> {
        let key = match key {
            Some((slots, limit)) => Some(slots.acquire(limit).ok_or(Refusal::KeyTooManyInFlight)?),
            None => None,
        };
        // Without one, the slot of the key is released again.
        let (org, taken) = org.acquire_slot().ok_or(Refusal::TooManyInFlight)?;
        Ok((Self { _org: org, _key: key }, taken))
    }

    /// Acquires both slots also when all are taken: for a request that holds them in another process.
    pub(crate) fn hold(key: Option<(&Arc<KeySlots>, u32)>, org: &Arc<OrgRecord>) -> Self {
        let key = key.map(|(slots, _)| slots.hold());
        Self { _org: org.hold_slot(), _key: key }
    }
}

impl Drop for OrgSlot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
