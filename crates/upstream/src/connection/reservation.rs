//! Reservation of a connection for a request for which no pooled one was there.
//!
//! - The request stays at its endpoint if there is room for a connection; else it goes to another endpoint that has
//!   room or a pooled connection: nothing was sent yet.
//! - If none has, it waits, in the order of its worker, for the first of these endpoints that gets room. The wait is
//!   bounded in time, and so is the number of requests that wait; beyond, the request is refused.
//! - The wait counts as time of connecting. At least half of that time is left for the connection itself.
//! - A request that is dropped while it waits leaves the queue at once. A connection that it got goes to the next one.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::carrier::Carrier;
use super::connect_budget::ConnectBudget;
use super::endpoint_connections::Connections;
use super::http1;
use super::http2_connections::NoConnection;
use super::limits::{Acquisition, ConnectionPermit, Grant, QueueFull, QueuePlace};
use super::pool_state::PoolState;
use crate::endpoint::endpoint_set::EndpointSet;
use crate::endpoint::endpoints::InFlight;
use crate::endpoint::record;
use crate::error::WaitRefusal;
use crate::settings::Protocol;

/// Connection that is reserved for a request.
pub(crate) enum Reserved {
    /// A pooled one.
    Open(Carrier),
    /// A new one may be opened.
    Permit(ConnectionPermit),
    /// One that is being opened for another request (HTTP/2).
    Shared,
}

/// Reason why nothing of a request was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unsent {
    /// There was no pooled connection, or it was closed before anything was written to it.
    NoPooled,
    /// There was no room for a connection after all: the endpoint was not tried.
    NoRoom,
    /// No connection could be made: connecting timed out, or failed at once.
    NotConnected { timed_out: bool },
}

impl Unsent {
    /// Reason of a connection that was closed before anything was written to it. A new one is the endpoint's failure.
    pub(crate) fn of_closed(is_new: bool) -> Self {
        if is_new { Self::NotConnected { timed_out: false } } else { Self::NoPooled }
    }
}

/// Reservation of a connection for one request.
pub(crate) struct Reservation<'e> {
    pub(crate) pool: &'e PoolState,
    /// Endpoints that were tried: it goes to none of them.
    pub(crate) tried: &'e EndpointSet,
    /// Time of the request for connections, which each wait is counted in.
    pub(crate) budget: &'e ConnectBudget,
    /// True if the request may use a connection that is being opened for another one.
    pub(crate) may_share: bool,
}

/// Waiting request. On drop it returns an unused connection and records the time of the wait.
struct Wait<'a> {
    pool: &'a PoolState,
    /// Endpoints that it may go to; it would go to the first one first.
    candidates: &'a [usize],
    queue_place: QueuePlace,
    /// Taken before the place in the queue: the deadline counts from it as well.
    begun: Instant,
    budget: &'a ConnectBudget,
}

impl Reservation<'_> {
    /// Reserves a connection to an endpoint, or to another one that has room or gets it first. Returns the endpoint
    /// that the request is to be addressed to anew: another one, or the same one after a wait, which is no part of the
    /// latency. `headers` are those of the request.
    ///
    /// # Errors
    /// [`WaitRefusal`] when too many wait, or the wait is over.
    pub(crate) async fn reserve(
        &self,
        endpoint: usize,
        headers: &HeaderMap,
    ) -> Result<(Option<usize>, Reserved), WaitRefusal> {
        if let Some(reserved) = self.try_reserve(endpoint) {
            return Ok((None, reserved));
        }
        let excluded = self.tried.with(endpoint);
        if let Some((other, reserved)) = self.reserve_elsewhere(&excluded, headers) {
            return Ok((Some(other), reserved));
        }
        let others = self.pool.endpoints.in_traffic().filter(|other| !excluded.contains(*other));
        let candidates: Vec<usize> = std::iter::once(endpoint).chain(others).collect();
        let (chosen, reserved) = self.wait_for_connection(&candidates, false).await?;
        Ok((Some(chosen), reserved))
    }

    /// Reserves a connection at one of the endpoints that are neither excluded nor set aside.
    fn reserve_elsewhere(&self, excluded: &EndpointSet, headers: &HeaderMap) -> Option<(usize, Reserved)> {
        let PoolState { endpoints, balancer, .. } = self.pool;
        let has_room = |index: usize| !excluded.contains(index) && self.has_room(index);
        let other = endpoints.choose_in_traffic(balancer, headers, has_room)?;
        if let Some(reserved) = self.try_reserve(other) {
            return Some((other, reserved));
        }
        // Another worker has taken the room meanwhile, or (HTTP/2) all streams of the open connections are in use. Each
        // of the others is looked at once, from a random one on: a choice for each would take the square of the time.
        let others: Vec<usize> = endpoints.in_traffic().filter(|index| has_room(*index)).collect();
        let start = balancer.random.below(others.len().max(1));
        let (before, behind) = others.split_at(start);
        let mut others = behind.iter().chain(before).filter(|index| **index != other);
        others.find_map(|index| self.try_reserve(*index).map(|reserved| (*index, reserved)))
    }

    /// Reserves a connection at an endpoint, if there is room.
    fn try_reserve(&self, endpoint: usize) -> Option<Reserved> {
        if let Some(carrier) = self.pool.take_pooled(endpoint, Instant::now()) {
            return Some(Reserved::Open(carrier));
        }
        let http2 = &self.pool.connections[endpoint].http2;
        if self.may_share && http2.is_connecting() {
            return Some(Reserved::Shared);
        }
        let permit = self.pool.connections[endpoint].link.try_acquire().map(Reserved::Permit);
        // There is no room for another connection: one that has answered nothing for a while may yet answer.
        permit.or_else(|| http2.any_stream().map(|stream| Reserved::Open(Carrier::of_stream(stream))))
    }

    /// Returns whether an endpoint has pooled connections, or room for one.
    fn has_room(&self, endpoint: usize) -> bool {
        self.pool.has_pooled(endpoint) || self.pool.connections[endpoint].link.has_room()
    }

    /// Reserves a new connection to an endpoint, which may have pooled ones.
    ///
    /// # Errors
    /// [`WaitRefusal`] when too many wait, or the wait is over.
    pub(crate) async fn reserve_new(&self, endpoint: usize) -> Result<(Option<usize>, Reserved), WaitRefusal> {
        let (_, reserved) = self.wait_for_connection(&[endpoint], true).await?;
        Ok((None, reserved))
    }

    /// Waits for a connection to one of these endpoints. Returns the endpoint. `needs_new`: no open one is handed over.
    async fn wait_for_connection(
        &self,
        candidates: &[usize],
        needs_new: bool,
    ) -> Result<(usize, Reserved), WaitRefusal> {
        let PoolState { link, bounds, timeouts, .. } = self.pool;
        let mut begun = Instant::now();
        let longest = bounds.max_wait.min(timeouts.connect / 2);
        let deadline = begun + longest.saturating_sub(self.budget.waited());
        loop {
            let endpoints = candidates.iter().map(|index| self.pool.connections[*index].link.clone()).collect();
            let queue_place = match link.acquire(endpoints, needs_new) {
                Ok(Acquisition::Permit(candidate, permit)) => {
                    return Ok((candidates[candidate], Reserved::Permit(permit)));
                }
                Ok(Acquisition::Queued(queue_place)) => queue_place,
                Err(QueueFull) => return Err(self.refuse(candidates[0], WaitRefusal::QueueFull)),
            };
            self.pool.endpoint(candidates[0]).waiting.fetch_add(1, Relaxed);
            let mut wait = Wait { pool: self.pool, candidates, queue_place, begun, budget: self.budget };
            let Some(grant) = wait.queue_place.wait(deadline).await else {
                return Err(self.refuse(candidates[0], WaitRefusal::TimedOut));
            };
            // A connection that was handed over may have been closed meanwhile.
            if let Some(reserved) = wait.take(grant) {
                return Ok(reserved);
            }
            // Its drop counts this wait; the next one measures its own time. The deadline stays.
            drop(wait);
            begun = Instant::now();
        }
    }

    /// Opens the connection that is reserved at the endpoint of a request, within its time for connecting.
    pub(crate) async fn open(&self, in_flight: &InFlight, reserved: Reserved) -> Result<Carrier, Unsent> {
        let permit = match reserved {
            Reserved::Open(carrier) => return Ok(carrier),
            Reserved::Permit(permit) => Some(permit),
            Reserved::Shared => None,
        };
        let timeout = self.budget.next_attempt(self.pool.timeouts.connect);
        let timeout = timeout.ok_or(Unsent::NotConnected { timed_out: true })?;
        let begun = Instant::now();
        let opened = self.open_within(timeout, in_flight, permit).await;
        self.budget.spend_on_attempt(begun.elapsed());
        match opened {
            Ok(carrier) => {
                if carrier.is_new() {
                    record::record_connected(in_flight);
                }
                Ok(carrier)
            }
            Err(NoConnection::NoRoom) => Err(Unsent::NoRoom),
            Err(NoConnection::Failed(error)) => {
                Err(Unsent::NotConnected { timed_out: record::record_connect_error(in_flight, &error) })
            }
        }
    }

    async fn open_within(
        &self,
        timeout: Duration,
        in_flight: &InFlight,
        permit: Option<ConnectionPermit>,
    ) -> Result<Carrier, NoConnection> {
        let PoolState { connections, lifetimes, protocol, .. } = self.pool;
        let endpoint = in_flight.endpoint();
        let Connections { idle, http2, .. } = &connections[in_flight.index()];
        match protocol {
            Protocol::Http1 => {
                let permit = permit.ok_or(NoConnection::NoRoom)?;
                let encryption = endpoint.encryption.as_ref();
                let connecting = http1::connect(&endpoint.address, encryption, timeout, lifetimes, permit);
                let connection = connecting.await.map_err(NoConnection::Failed)?;
                Ok(Carrier::Http1 { connection, idle: Rc::clone(idle), is_new: true })
            }
            Protocol::Http2 => {
                let acquiring = http2.acquire(endpoint, permit, timeout, lifetimes);
                acquiring.await.map(Carrier::of_stream)
            }
        }
    }

    fn refuse(&self, endpoint: usize, refusal: WaitRefusal) -> WaitRefusal {
        let metrics = &self.pool.endpoint(endpoint).metrics;
        match refusal {
            WaitRefusal::QueueFull => metrics.refused_queue_full.inc(),
            WaitRefusal::TimedOut => metrics.refused_timeout.inc(),
        }
        refusal
    }
}

impl Wait<'_> {
    /// Takes what was granted, with its endpoint; none when the connection was closed meanwhile.
    fn take(&self, grant: Grant) -> Option<(usize, Reserved)> {
        let (candidate, reserved) = match grant {
            Grant::Permit(candidate, permit) => (candidate, Reserved::Permit(permit)),
            Grant::Local(candidate) => (candidate, Reserved::Open(self.take_handed(self.candidates[candidate])?)),
        };
        Some((self.candidates[candidate], reserved))
    }

    fn take_handed(&self, endpoint: usize) -> Option<Carrier> {
        let id = self.queue_place.id();
        let connections = &self.pool.connections[endpoint];
        match self.pool.protocol {
            Protocol::Http1 => {
                let connection = connections.idle.borrow_mut().take_handed(id)?;
                Some(Carrier::pooled(connection, &connections.idle))
            }
            Protocol::Http2 => connections.http2.take_handed(id).map(Carrier::of_stream),
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // A connection that came too late is given back. A stream, and a permit, are when they are dropped.
        if let Some(Grant::Local(candidate)) = self.queue_place.take_late()
            && let Some(Carrier::Http1 { connection, idle, .. }) = self.take_handed(self.candidates[candidate])
        {
            idle.borrow_mut().push_unused(connection, Instant::now());
        }
        let endpoint = self.pool.endpoint(self.candidates[0]);
        let waited = self.begun.elapsed();
        let before = endpoint.waiting.fetch_sub(1, Relaxed);
        debug_assert_ne!(before, 0, "each wait is counted once");
        endpoint.metrics.connection_wait.observe(waited.as_secs_f64());
        self.budget.spend_on_wait(waited);
    }
}
