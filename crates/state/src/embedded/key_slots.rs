//! Slots of a key whose policy has `concurrent`, and the slots that a request holds: of its organization and its key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::quota::SlotStatus;
use domain::refusal::Refusal;

use super::key_terms::KeyTerms;
use super::org_record::{OrgRecord, OrgSlot};

/// Requests in flight of a key, shared by its terms and its requests.
///
/// - It counts the live [`KeySlot`]s: requests that began while the key's policy had `concurrent`.
/// - It outlives a policy without `concurrent` for as long as one of them is open.
#[derive(Debug, Default)]
pub(super) struct KeySlots {
    in_flight: AtomicU32,
}

/// A slot of a key, released on drop.
#[derive(Debug)]
pub(super) struct KeySlot(Arc<KeySlots>);

/// The slots of an admitted request, released on drop.
#[derive(Debug)]
pub struct Permit {
    _org: OrgSlot,
    /// None for a key without a limit of its own.
    _key: Option<KeySlot>,
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
    /// Acquires a slot of the key with these terms, then one of the organization. Returns them with the number of the
    /// organization's slots that are taken now.
    pub(super) fn acquire(terms: Option<&KeyTerms>, org: &Arc<OrgRecord>) -> Result<(Self, u32), Refusal> {
        let key = match terms.and_then(KeyTerms::slots) {
            Some((slots, limit)) => Some(slots.acquire(limit).ok_or(Refusal::KeyTooManyInFlight)?),
            None => None,
        };
        // Without one, the slot of the key is released again.
        let (org, taken) = org.acquire_slot().ok_or(Refusal::TooManyInFlight)?;
        Ok((Self { _org: org, _key: key }, taken))
    }

    /// Acquires both slots also when all are taken: for a request that holds them in another process.
    pub(super) fn hold(terms: Option<&KeyTerms>, org: &Arc<OrgRecord>) -> Self {
        let key = terms.and_then(KeyTerms::slots).map(|(slots, _)| slots.hold());
        Self { _org: org.hold_slot(), _key: key }
    }
}

impl KeyTerms {
    /// The slots of the key and their number, if it has a limit of its own.
    pub(super) fn slots(&self) -> Option<(&Arc<KeySlots>, u32)> {
        self.slots.as_ref().zip(self.policy.concurrent)
    }

    /// The status of these slots.
    pub(super) fn slot_status(&self) -> Option<SlotStatus> {
        self.slots().map(|(slots, concurrent)| SlotStatus { concurrent, in_flight: slots.in_flight() })
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
