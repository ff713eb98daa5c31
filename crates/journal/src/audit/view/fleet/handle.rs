//! The handle of the records of all gateways.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::{FleetError, OpenFleetError};
use super::pool::{Pool, Snapshot};
use platform::postgresql;

/// The records of all gateways. Clones share the connections.
#[derive(Clone)]
pub struct Fleet {
    pool: Arc<Pool>,
}

impl Fleet {
    /// Prepares to read from a database; makes no connection yet. A read takes up to `deadline`.
    ///
    /// # Errors
    /// When the TLS files cannot be used, and when no thread can be started.
    pub fn open(settings: postgresql::Settings, deadline: Duration) -> Result<Self, OpenFleetError> {
        Ok(Self { pool: Arc::new(Pool::open(settings, deadline)?) })
    }

    /// Begins a snapshot.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, FleetError> {
        self.pool.begin()
    }

    /// Hosts and database, for messages.
    pub fn server(&self) -> String {
        self.pool.server()
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fleet({})", self.server())
    }
}
