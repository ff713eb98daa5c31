//! Handle by which a service acts on its connection.

use std::fmt;

use super::upgrade::UpgradeSlot;
use domain::head_fields::CredentialFields;

/// Handle of a connection, for its service. Clones refer to the same connection.
#[derive(Clone)]
pub struct ConnectionHandle {
    /// Slot for the hook of an upgrade.
    pub upgrade_slot: UpgradeSlot,
}

impl ConnectionHandle {
    /// Handle of a connection whose heads are scanned for these fields.
    pub(super) fn new(credentials: CredentialFields) -> Self {
        Self { upgrade_slot: UpgradeSlot::new(credentials) }
    }

    /// Closes the connection once the exchanges on it have ended. To be called before a response is given to the
    /// connection. Over HTTP/2 the client gets a GOAWAY; over HTTP/1, where this does nothing, the response says so
    /// with `Connection: close`.
    pub fn close_gracefully(&self) {
        self.upgrade_slot.is_closing().set(true);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.upgrade_slot.is_closing().get()
    }
}

impl fmt::Debug for ConnectionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionHandle").field("is_closing", &self.is_closing()).finish_non_exhaustive()
    }
}
