//! Requests of a service to its connection: to switch to another protocol (RFC 9110, section 7.8), and
//! to reset an exchange.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use super::reset::ResetHandle;
use super::stream::Upgraded;
use domain::head_fields::{CredentialFields, FieldSet};

/// The hook of an upgrade: what runs on the connection from its 101 on.
pub(super) type UpgradeHook = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The slot for a connection's upgrade hook. One per connection; clones share it.
///
/// - The hook runs in the connection's own task, once the 101 has been sent, and the connection lasts as long as it
///   runs. If the 101 cannot be sent, the hook is dropped with the connection.
#[derive(Clone)]
pub struct UpgradeSlot(Rc<Slot>);

#[derive(Default)]
struct Slot {
    hook: RefCell<Option<UpgradeHook>>,
    /// Handle of the exchange for which the service is called.
    reset: RefCell<ResetHandle>,
    /// Fields of that exchange's head, if it was scanned strictly.
    fields: Cell<Option<FieldSet>>,
    /// True once the service has asked for the end of the connection. Here, so that a handle is one allocation.
    is_closing: Cell<bool>,
    /// Fields that carry a key, as the scan of this connection knows them.
    credentials: CredentialFields,
}

/// Handle of an exchange, for the service that answers it.
#[derive(Clone, Debug)]
pub struct ExchangeHandle {
    slot: UpgradeSlot,
    reset: ResetHandle,
    fields: Option<FieldSet>,
}

impl UpgradeSlot {
    /// The slot of a connection whose heads are scanned for these fields.
    pub(super) fn new(credentials: CredentialFields) -> Self {
        Self(Rc::new(Slot { credentials, ..Slot::default() }))
    }

    /// The handle of the exchange for which the service is called now. The service takes it before its first await:
    /// then the connection may begin the next exchange.
    pub fn exchange(&self) -> ExchangeHandle {
        ExchangeHandle { slot: self.clone(), reset: self.0.reset.borrow().clone(), fields: self.0.fields.take() }
    }

    /// Sets the handle of the exchange for which the service is called next.
    pub(super) fn set_reset(&self, reset: ResetHandle) {
        *self.0.reset.borrow_mut() = reset;
    }

    /// Sets the fields of the head, which was scanned strictly, for which the service is called next.
    pub(super) fn set_fields(&self, fields: FieldSet) {
        self.0.fields.set(Some(fields));
    }

    /// The mark of a connection that is to be closed.
    pub(super) fn is_closing(&self) -> &Cell<bool> {
        &self.0.is_closing
    }

    /// Takes the hook out of the slot, if the service has set one.
    pub(super) fn take(&self) -> Option<UpgradeHook> {
        self.0.hook.borrow_mut().take()
    }
}

impl ExchangeHandle {
    /// Sets the hook of an upgrade. The service then answers with a 101.
    pub fn on_upgrade<F: Future<Output = ()> + 'static>(&self, hook: impl FnOnce(Upgraded) -> F + 'static) {
        *self.slot.0.hook.borrow_mut() = Some(Box::new(move |upgraded| Box::pin(hook(upgraded))));
    }

    /// Fields of the request's head that are acted on; none when the head was not scanned strictly, as on HTTP/2, and
    /// when it was scanned for other fields than `credentials`: a connection keeps those of the configuration by which
    /// it was accepted.
    pub fn fields(&self, credentials: &CredentialFields) -> Option<FieldSet> {
        self.fields.filter(|_| self.slot.0.credentials == *credentials)
    }

    /// The handle by which the exchange can be reset.
    pub fn reset_handle(&self) -> ResetHandle {
        self.reset.clone()
    }
}

impl fmt::Debug for UpgradeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeSlot").field("is_set", &self.0.hook.borrow().is_some()).finish()
    }
}
