//! Release of listening sockets to another process, which accepts on them from then on.
//!
//! A listening socket that this process shares with another one outlives it: with systemd, which has opened it, or with
//! the process that takes over. Such a socket is left as it is, with its backlog. One that is this process's own is
//! emptied before it closes ([`super::backlog`]).

use tokio::sync::watch;

/// Tells listeners that another process has their sockets. Clones share it.
#[derive(Clone, Debug)]
pub struct ListenerRelease {
    released: watch::Sender<bool>,
    /// The sockets stay open elsewhere whatever happens.
    is_shared: bool,
}

impl ListenerRelease {
    /// For sockets that this process has opened.
    pub fn new() -> Self {
        Self { released: watch::Sender::new(false), is_shared: false }
    }

    /// The same release, for sockets that stay open in another process, such as systemd, whatever happens.
    #[must_use]
    pub fn of_shared(&self) -> Self {
        Self { is_shared: true, ..self.clone() }
    }

    /// Releases the sockets: nothing more is accepted on them here.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Returns whether another process has the sockets, so that they must stay as they are.
    pub fn is_held_elsewhere(&self) -> bool {
        self.is_shared || *self.released.borrow()
    }

    /// Completes when the sockets are released.
    pub async fn wait(&self) {
        // This value holds the sender, so waiting cannot fail.
        self.released.subscribe().wait_for(|released| *released).await.ok();
    }
}

impl Default for ListenerRelease {
    fn default() -> Self {
        Self::new()
    }
}
