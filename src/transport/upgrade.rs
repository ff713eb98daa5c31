//! Connections that switch from HTTP to another protocol (RFC 9110, section 7.8).

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;

use super::stream::Upgraded;

/// The hook of an upgrade: what runs on the connection from its 101 on.
type UpgradeHook = Box<dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()>>>>;

/// The slot for a connection's upgrade hook. One per connection; clones share it.
///
/// - The hook runs in the connection's own task, once the 101 has been sent, and the connection lasts as long as it
///   runs. If the 101 cannot be sent, the hook is dropped with the connection.
#[derive(Clone, Default)]
pub struct UpgradeSlot(Rc<RefCell<Option<UpgradeHook>>>);

impl UpgradeSlot {
    /// Sets the hook. The service then answers with a 101.
    pub fn on_upgrade<F: Future<Output = ()> + 'static>(&self, hook: impl FnOnce(Upgraded) -> F + 'static) {
        *self.0.borrow_mut() = Some(Box::new(move |upgraded| Box::pin(hook(upgraded))));
    }

    /// Takes the hook out of the slot, if the service has set one.
    pub(super) fn take(&self) -> Option<UpgradeHook> {
        self.0.borrow_mut().take()
    }
}

impl fmt::Debug for UpgradeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeSlot").field("is_set", &self.0.borrow().is_some()).finish()
    }
}
