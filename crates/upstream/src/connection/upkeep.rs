//! Upkeep of one worker's connections, by a task of the worker: it grants permits to waiting requests, and offers idle
//! connections when requests wait elsewhere.

use std::rc::Rc;

use super::endpoint_connections::Connections;
use super::limits::WorkerLink;
use platform::abort_on_drop::AbortOnDrop;

/// Connections of a worker's pool, and the link by which the worker is woken.
pub(crate) struct Upkeep {
    /// Connections in the order of the endpoints. Shared with the pool.
    pub(crate) connections: Rc<[Connections]>,
    pub(crate) link: Rc<WorkerLink>,
}

impl Upkeep {
    /// Starts the task, which ends when the handle is dropped.
    pub(crate) fn start(self) -> AbortOnDrop<()> {
        AbortOnDrop::new(tokio::task::spawn_local(self.offer_when_woken()))
    }

    /// Grants permits to the requests that wait, and offers the idle connections, whenever the worker is woken. Never
    /// completes.
    async fn offer_when_woken(self) {
        loop {
            self.link.woken().await;
            self.link.grant_permits();
            for connections in &*self.connections {
                connections.idle.borrow_mut().offer_all();
                connections.http2.offer_all();
            }
        }
    }
}
