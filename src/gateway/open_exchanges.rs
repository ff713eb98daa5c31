//! Open exchanges of a worker, which end when their credential is revoked.
//!
//! # Guarantee
//!
//! An exchange whose credential was revoked is reset soon after its worker has read the entry of the revocation log,
//! whatever it is doing: waiting for the upstream, in the middle of a body in either direction, in a tunnel, or blocked
//! by a client that takes nothing.
//!
//! None is missed. Either the exchange is registered when the worker applies an entry: then it is found. Or it was
//! admitted before the revocation and is registered after it: then the worker's position in the log has moved on since
//! the request arrived ([`OpenExchanges::position`]), and the entries between are applied to it when it is registered.
//!
//! # Cost
//!
//! An exchange is registered in a slot of a vector, and unregistered at its end: no allocation, no lock, no timer. The
//! task behind [`OpenExchanges::end_revoked`] runs when something is revoked or expires, and then looks at all slots.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::exchange_slots::{ExchangeSlots, SlotId};
use domain::clock::{self, Micros};
use domain::identity::Principal;
use edge::transport::ResetHandle;
use platform::metrics::TerminationMetrics;
use state::{EntryEffect, RevocationEntry, RevocationLog, RevokedBy, State, Validity};

/// Entries of the log that are applied before other tasks of the worker get a turn.
const BATCH: u64 = 64;
/// Longest sleep until the next credential expires: the clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Open exchanges of one worker. Clones share them.
#[derive(Clone)]
pub struct OpenExchanges(pub(super) Rc<Registry>);

/// State that the clones of [`OpenExchanges`] share.
pub(super) struct Registry {
    pub(super) slots: RefCell<ExchangeSlots>,
    /// Position in the log up to which entries were applied.
    position: Cell<u64>,
    /// Time at which the first credential expires, or an earlier one.
    deadline: Cell<Micros>,
    /// Wakes the task for an earlier deadline.
    deadline_moved: Notify,
    /// Exchanges to be checked against the directory.
    pub(super) unchecked: RefCell<Vec<SlotId>>,
    /// Wakes the checks.
    pub(super) check_requested: Notify,
    log: Arc<RevocationLog>,
    metrics: TerminationMetrics,
}

/// Registered exchange. Dropping it unregisters the exchange.
pub(super) struct OpenExchange {
    registry: Rc<Registry>,
    id: SlotId,
}

impl OpenExchanges {
    /// Registry of a worker that has no exchanges yet.
    pub fn new(log: Arc<RevocationLog>, metrics: TerminationMetrics) -> Self {
        let position = *log.subscribe().borrow();
        Self(Rc::new(Registry {
            slots: RefCell::default(),
            position: Cell::new(position),
            deadline: Cell::new(Validity::FOREVER),
            deadline_moved: Notify::new(),
            unchecked: RefCell::default(),
            check_requested: Notify::new(),
            log,
            metrics,
        }))
    }

    /// Position in the revocation log up to which this worker has applied the entries. A request takes it before its
    /// credential is checked.
    pub(super) fn position(&self) -> u64 {
        self.0.position.get()
    }

    /// Registers the exchange of a request that was admitted after `position` was taken.
    pub(super) fn register(
        &self,
        principal: Arc<Principal>,
        validity: Validity,
        reset: ResetHandle,
        position: u64,
    ) -> OpenExchange {
        let registry = &self.0;
        if validity.until() < registry.deadline.get() {
            registry.move_deadline(validity.until());
        }
        let id = registry.slots.borrow_mut().insert(principal, validity, reset);
        if position != registry.position.get() {
            registry.apply_missed(id, position);
        }
        OpenExchange { registry: Rc::clone(registry), id }
    }

    /// Ends exchanges whose credentials are revoked or expire, for as long as the worker runs. `state` is the worker's.
    pub async fn end_revoked(&self, state: &State) {
        tokio::join!(self.follow_log(state), self.run_checks(state));
    }

    async fn follow_log(&self, state: &State) {
        let mut last = self.0.log.subscribe();
        loop {
            // Read in a statement of its own: the guard of the channel must not be held over an await, as the log would
            // wait for it with its lock held.
            let position = *last.borrow_and_update();
            self.apply_entries(position).await;
            // Ends are times of the state's clock.
            let now = state.time(clock::now());
            self.0.expire(now);
            tokio::select! {
                // The registry holds the log, and with it the sender: waiting cannot fail.
                _ = last.changed() => {}
                () = self.0.deadline_moved.notified() => {}
                () = sleep(self.0.time_to_deadline(now)) => {}
            }
        }
    }

    /// Applies the entries of the log up to this position, in batches.
    async fn apply_entries(&self, last: u64) {
        while self.position() < last {
            let end = last.min(self.position() + BATCH);
            let entries = self.0.log.range(self.position(), end);
            entries.iter().for_each(|entry| self.0.apply(entry));
            self.0.position.set(end);
            tokio::task::yield_now().await;
        }
    }
}

impl Registry {
    /// Applies an entry to all exchanges.
    fn apply(&self, entry: &RevocationEntry) {
        if *entry == RevocationEntry::Gap {
            return self.request_checks(self.slots.borrow().ids());
        }
        let ids = self.slots.borrow().ids();
        ids.for_each(|id| self.apply_to(id, entry));
    }

    /// Applies the entries after a position to an exchange that was registered too late to be found by them.
    fn apply_missed(&self, id: SlotId, position: u64) {
        for entry in self.log.range(position, self.position.get()) {
            match entry {
                RevocationEntry::Gap => self.request_checks(std::iter::once(id)),
                entry => self.apply_to(id, &entry),
            }
        }
    }

    fn apply_to(&self, id: SlotId, entry: &RevocationEntry) {
        let applied = self.slots.borrow_mut().with(id, |exchange| exchange.apply(entry));
        match applied {
            Some((EntryEffect::Revoked(reason), _)) => self.terminate(id, reason),
            Some((EntryEffect::Unclear, _)) => self.request_checks(std::iter::once(id)),
            // A rotation has set the end of the secret.
            Some((EntryEffect::StillValid, until)) if until < self.deadline.get() => self.move_deadline(until),
            _ => {}
        }
    }

    /// Resets an exchange, once, and counts it.
    pub(super) fn terminate(&self, id: SlotId, reason: RevokedBy) {
        let reset = self.slots.borrow_mut().with(id, |exchange| exchange.terminate());
        let Some(Some(reset)) = reset else { return };
        self.count(reason);
        reset.reset();
    }

    fn count(&self, reason: RevokedBy) {
        let counter = match reason {
            RevokedBy::Key => &self.metrics.key,
            RevokedBy::Secret => &self.metrics.secret,
            RevokedBy::User => &self.metrics.user,
            RevokedBy::Org => &self.metrics.org,
            RevokedBy::Session => &self.metrics.session,
        };
        counter.inc();
    }

    /// Ends the exchanges whose credentials have expired, and finds the next deadline. The expiry of a session may have
    /// been put off by uses at other gateways: it is checked first.
    fn expire(&self, now: Micros) {
        if now < self.deadline.get() {
            return;
        }
        let (due, next) = self.slots.borrow().due(now);
        self.deadline.set(next);
        for (id, validity) in due {
            if validity.may_be_extended() {
                self.request_checks(std::iter::once(id));
            } else {
                self.terminate(id, validity.expiry_reason());
            }
        }
    }

    /// Sets a new end of an exchange's credential.
    pub(super) fn extend(&self, id: SlotId, until: Micros) {
        self.slots.borrow_mut().with(id, |exchange| exchange.validity.set_until(until));
        if until < self.deadline.get() {
            self.move_deadline(until);
        }
    }

    fn move_deadline(&self, deadline: Micros) {
        self.deadline.set(deadline);
        self.deadline_moved.notify_one();
    }

    fn time_to_deadline(&self, now: Micros) -> Duration {
        Duration::from_micros(self.deadline.get().since(now)).min(MAX_SLEEP)
    }

    fn request_checks(&self, ids: impl Iterator<Item = SlotId>) {
        self.unchecked.borrow_mut().extend(ids);
        self.check_requested.notify_one();
    }
}

impl OpenExchange {
    /// Returns whether the exchange was ended because its credential was revoked.
    pub(super) fn is_terminated(&self) -> bool {
        self.registry.slots.borrow_mut().with(self.id, |exchange| exchange.is_terminated()).unwrap_or(false)
    }
}

impl Drop for OpenExchange {
    fn drop(&mut self) {
        // Taken out first: what the entry holds is dropped when the slots are no longer borrowed.
        let removed = self.registry.slots.borrow_mut().remove(self.id);
        drop(removed);
    }
}
