//! Slots of open exchanges: a vector whose free places are used again.

use std::sync::Arc;

use domain::clock::Micros;
use domain::identity::Principal;
use edge::transport::ResetHandle;
use state::{EntryEffect, RevocationEntry, Validity};

/// Slots of a worker's open exchanges. Owned by the worker's registry; no other thread sees them.
///
/// - An exchange has its slot until its `OpenExchange` is dropped. A reset takes the handle, and leaves the slot.
/// - The identity of an exchange that has ended finds nothing: its slot has another generation.
#[derive(Default)]
pub(super) struct ExchangeSlots {
    /// As many as exchanges were open at once.
    slots: Vec<Slot>,
    /// Indices of the slots without an exchange.
    free: Vec<usize>,
}

/// Slot: the exchange that has it now, and the number of exchanges that had it before.
#[derive(Default)]
struct Slot {
    generation: u64,
    exchange: Option<RegisteredExchange>,
}

/// Identity of an exchange: its slot, and the generation, which tells it from others in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId {
    index: usize,
    generation: u64,
}

/// Registered exchange: its credential, and the handle that resets it.
pub(super) struct RegisteredExchange {
    /// Caller; shared with the state's cached record.
    pub(super) principal: Arc<Principal>,
    /// Validity of the credential, which entries of the revocation log and checks change.
    pub(super) validity: Validity,
    /// None once the exchange was reset.
    reset: Option<ResetHandle>,
}

impl ExchangeSlots {
    /// Puts an exchange into a free slot.
    pub(super) fn insert(&mut self, principal: Arc<Principal>, validity: Validity, reset: ResetHandle) -> SlotId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        slot.exchange = Some(RegisteredExchange { principal, validity, reset: Some(reset) });
        SlotId { index, generation: slot.generation }
    }

    /// Removes an exchange, which must be registered.
    pub(super) fn remove(&mut self, id: SlotId) -> Option<RegisteredExchange> {
        let slot = &mut self.slots[id.index];
        debug_assert!(slot.generation == id.generation && slot.exchange.is_some(), "an exchange is removed once");
        slot.generation += 1;
        self.free.push(id.index);
        slot.exchange.take()
    }

    /// Calls a function with an exchange; none when it is no longer registered.
    pub(super) fn with<T>(&mut self, id: SlotId, call: impl FnOnce(&mut RegisteredExchange) -> T) -> Option<T> {
        let slot = self.slots.get_mut(id.index).filter(|slot| slot.generation == id.generation)?;
        slot.exchange.as_mut().map(call)
    }

    /// All exchanges.
    pub(super) fn ids(&self) -> impl Iterator<Item = SlotId> + use<> {
        let ids: Vec<SlotId> = self.registered().map(|(id, _)| id).collect();
        ids.into_iter()
    }

    /// The exchanges whose credentials have expired at this time, and the time at which the next one expires.
    pub(super) fn due(&self, now: Micros) -> (Vec<(SlotId, Validity)>, Micros) {
        let mut due = Vec::new();
        let mut next = Validity::FOREVER;
        for (id, exchange) in self.registered() {
            match exchange.validity.until() {
                until if until <= now => due.push((id, exchange.validity)),
                until => next = next.min(until),
            }
        }
        (due, next)
    }

    fn registered(&self) -> impl Iterator<Item = (SlotId, &RegisteredExchange)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| Some((SlotId { index, generation: slot.generation }, slot.exchange.as_ref()?)))
    }
}

impl RegisteredExchange {
    /// Applies an entry of the revocation log. Returns its effect, and the end of the credential.
    pub(super) fn apply(&mut self, entry: &RevocationEntry) -> (EntryEffect, Micros) {
        let effect = self.validity.apply(&self.principal, entry);
        (effect, self.validity.until())
    }

    /// Takes the handle that resets the exchange; none when it was taken before.
    pub(super) fn terminate(&mut self) -> Option<ResetHandle> {
        self.reset.take()
    }

    /// Returns whether the exchange was reset.
    pub(super) fn is_terminated(&self) -> bool {
        self.reset.is_none()
    }
}
