//! State of one worker's pool of connections to one upstream.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::time::Instant;

use super::carrier::Carrier;
use super::endpoint_connections::Connections;
use super::lifetime::Lifetimes;
use super::limits::{ConnectionBounds, WorkerLink};
use crate::endpoint::endpoints::{EndpointState, Endpoints};
use crate::endpoint::retry_budget::Deposits;
use crate::endpoint::selection::Balancer;
use crate::exchange::retry::RetrySettings;
use crate::settings::{Protocol, Timeouts};
use platform::abort_on_drop::AbortOnDrop;

/// One worker's connections to the endpoints of one upstream, and the settings of exchanges over them. Owned by a
/// [`crate::Pool`] and its clones, on one thread; exchanges borrow it.
pub(crate) struct PoolState {
    /// State that all workers share. One count of references for each request in flight, not one for each part.
    pub(crate) endpoints: Arc<Endpoints>,
    /// Connections in the order of the endpoints. Shared with the pools before and after a change of the configuration.
    pub(crate) connections: Rc<[Connections]>,
    pub(crate) protocol: Protocol,
    /// Chance and turns of this worker.
    pub(crate) balancer: Balancer,
    pub(crate) timeouts: Timeouts,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) bounds: ConnectionBounds,
    /// Link of this worker to the bound of connections.
    pub(crate) link: Rc<WorkerLink>,
    /// Task of the upkeep, which ends when this is dropped; none once another pool has taken over.
    pub(crate) upkeep: RefCell<Option<AbortOnDrop<()>>>,
    pub(crate) retries: RetrySettings,
    /// Requests of this worker that count for the budget of retries.
    pub(crate) deposits: Deposits,
}

impl PoolState {
    pub(crate) fn endpoint(&self, index: usize) -> &EndpointState {
        &self.endpoints.list[index]
    }

    /// Takes a pooled connection to an endpoint: an idle one (HTTP/1.1), or a free stream of an open one (HTTP/2).
    pub(crate) fn take_pooled(&self, endpoint: usize, now: Instant) -> Option<Carrier> {
        let Connections { idle, http2, .. } = &self.connections[endpoint];
        match self.protocol {
            Protocol::Http1 => {
                let connection = idle.borrow_mut().pop(now)?;
                Some(Carrier::pooled(connection, idle))
            }
            Protocol::Http2 => http2.free_stream().map(Carrier::of_stream),
        }
    }

    /// Returns whether an endpoint has pooled connections.
    pub(crate) fn has_pooled(&self, endpoint: usize) -> bool {
        let Connections { idle, http2, .. } = &self.connections[endpoint];
        match self.protocol {
            Protocol::Http1 => idle.borrow().len() > 0,
            Protocol::Http2 => http2.has_open(),
        }
    }
}
