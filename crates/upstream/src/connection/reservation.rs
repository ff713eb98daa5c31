//! Reservation of a connection for a request for which no pooled one was there.
//!
//! - The request stays at its endpoint if there is room for a connection; else it goes to another endpoint that has room
//!   or a pooled connection: nothing was sent yet.
//! - If none has, it waits, in the order of arrival, for the first of these endpoints that gets room. The wait is bounded
//!   in time, and so is the number of requests that wait; beyond, the request is refused.
//! - The wait counts as time of connecting. At least half of that time is left for the connection itself.
//! - A request that is dropped while it waits leaves the queue at once. A connection that it got goes to the next one.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::http1::Connection;
use super::http2::Http2Stream;
use super::limits::{Acquisition, ConnectionPermit, Grant, OpenConnections, QueueFull, QueuePlace};
use crate::endpoint::endpoint_set::EndpointSet;
use crate::endpoint::endpoints::EndpointState;
use crate::error::{SendError, WaitRefusal};
use crate::exchange::send_options::SendOptions;
use crate::pool::{AddressedRequest, Pool};
use crate::settings::Protocol;

/// Connection that is reserved for a request.
pub(crate) enum Reserved {
    /// Pooled connections, or one that is being opened for another request: one of them is free, unless it is taken before.
    Pooled,
    /// A new connection may be opened.
    Permit(ConnectionPermit),
    /// An idle connection (HTTP/1.1).
    Connection(Box<Connection>),
    /// A stream (HTTP/2).
    Stream(Http2Stream),
}

/// Waiting request. On drop it returns an unused connection and records the time of the wait.
struct Wait<'a> {
    pool: &'a Pool,
    /// Endpoints that it may go to; it would go to the first one first.
    candidates: &'a [usize],
    queue_place: QueuePlace,
    /// Taken before the place in the queue: the deadline counts from it as well.
    begun: Instant,
    options: &'a SendOptions,
}

impl Pool {
    /// Reserves a connection for a request, which may go to another endpoint for that. `may_share`: it may use a
    /// connection that is being opened for another request.
    ///
    /// # Errors
    /// [`SendError::NoConnection`] when too many wait, or the wait is over.
    pub(crate) async fn reserve(
        &self,
        addressed: AddressedRequest,
        tried: &EndpointSet,
        options: &SendOptions,
        may_share: bool,
    ) -> Result<(AddressedRequest, Reserved), SendError> {
        let endpoint = addressed.in_flight.index();
        if let Some(reserved) = self.try_reserve(endpoint, may_share) {
            return Ok((addressed, reserved));
        }
        let excluded = tried.with(endpoint);
        if let Some((other, reserved)) = self.reserve_elsewhere(&addressed, &excluded, may_share) {
            return Ok((self.readdress(addressed, other, options), reserved));
        }
        let others = self.endpoints().in_traffic().filter(|other| !excluded.contains(*other));
        let candidates: Vec<usize> = std::iter::once(endpoint).chain(others).collect();
        let (chosen, reserved) =
            self.wait_for_connection(&candidates, options).await.map_err(SendError::NoConnection)?;
        // The wait is no part of the latency.
        Ok((self.readdress(addressed, chosen, options), reserved))
    }

    /// Reserves a connection at one of the endpoints that are neither excluded nor set aside.
    fn reserve_elsewhere(
        &self,
        addressed: &AddressedRequest,
        excluded: &EndpointSet,
        may_share: bool,
    ) -> Option<(usize, Reserved)> {
        let has_room = |index: usize| !excluded.contains(index) && self.has_room(index);
        let headers = addressed.request.headers();
        let other = self.endpoints().choose_in_traffic(self.balancer(), headers, has_room)?;
        if let Some(reserved) = self.try_reserve(other, may_share) {
            return Some((other, reserved));
        }
        // Another worker has taken the room meanwhile, or (HTTP/2) all streams of the open connections are in use. Each
        // of the others is looked at once, from a random one on: a choice for each would take the square of the time.
        let others: Vec<usize> = self.endpoints().in_traffic().filter(|index| has_room(*index)).collect();
        let start = self.balancer().random.below(others.len().max(1));
        let (before, behind) = others.split_at(start);
        let mut others = behind.iter().chain(before).filter(|index| **index != other);
        others.find_map(|index| self.try_reserve(*index, may_share).map(|reserved| (*index, reserved)))
    }

    /// Reserves a connection at an endpoint, if there is room.
    fn try_reserve(&self, endpoint: usize, may_share: bool) -> Option<Reserved> {
        let is_pooled = match self.protocol() {
            Protocol::Http1 => self.idle_connections(endpoint).borrow().len() > 0,
            Protocol::Http2 => {
                let connections = self.http2_connections(endpoint);
                if let Some(stream) = connections.free_stream() {
                    return Some(Reserved::Stream(stream));
                }
                may_share && connections.is_connecting()
            }
        };
        if is_pooled {
            return Some(Reserved::Pooled);
        }
        let permit = self.link().limiter().try_acquire(self.connections_of(endpoint)).map(Reserved::Permit);
        permit.or_else(|| self.http2_connections(endpoint).any_stream().map(Reserved::Stream))
    }

    /// Returns whether an endpoint has pooled connections, or room for one.
    fn has_room(&self, endpoint: usize) -> bool {
        self.has_pooled(endpoint) || self.link().limiter().has_room(self.connections_of(endpoint))
    }

    /// Returns whether an endpoint has pooled connections.
    pub(crate) fn has_pooled(&self, endpoint: usize) -> bool {
        match self.protocol() {
            Protocol::Http1 => self.idle_connections(endpoint).borrow().len() > 0,
            Protocol::Http2 => self.http2_connections(endpoint).has_open(),
        }
    }

    /// Waits for a connection to one of these endpoints. Returns the endpoint.
    pub(crate) async fn wait_for_connection(
        &self,
        candidates: &[usize],
        options: &SendOptions,
    ) -> Result<(usize, Reserved), WaitRefusal> {
        let mut begun = Instant::now();
        let deadline = self.wait_deadline(begun, options);
        let is_http2 = self.protocol() == Protocol::Http2;
        let has_none = is_http2 && !candidates.iter().any(|index| self.http2_connections(*index).has_open());
        loop {
            let endpoints = candidates.iter().map(|index| Arc::clone(self.connections_of(*index))).collect();
            let queue_place = match self.link().acquire(endpoints, has_none) {
                Ok(Acquisition::Permit(candidate, permit)) => {
                    return Ok((candidates[candidate], Reserved::Permit(permit)));
                }
                Ok(Acquisition::Queued(queue_place)) => queue_place,
                Err(QueueFull) => return Err(self.refuse(candidates, WaitRefusal::QueueFull)),
            };
            let mut wait = Wait::new(self, candidates, queue_place, begun, options);
            match wait.queue_place.wait(deadline).await {
                Some(grant) => {
                    // A connection that was handed over may have been closed meanwhile.
                    if let Some(reserved) = wait.take(grant) {
                        return Ok(reserved);
                    }
                }
                None => return Err(self.refuse(candidates, WaitRefusal::TimedOut)),
            }
            // Its drop counts this wait; the next one measures its own time. The deadline stays.
            drop(wait);
            begun = Instant::now();
        }
    }

    /// Waits for a permit for a new connection to an endpoint.
    pub(crate) async fn wait_for_permit(
        &self,
        endpoint: usize,
        options: &SendOptions,
    ) -> Result<ConnectionPermit, WaitRefusal> {
        let begun = Instant::now();
        let mut wait = match self.link().acquire_permit(Arc::clone(self.connections_of(endpoint))) {
            Ok(Acquisition::Permit(_, permit)) => return Ok(permit),
            Ok(Acquisition::Queued(queue_place)) => {
                Wait::new(self, std::slice::from_ref(&endpoint), queue_place, begun, options)
            }
            Err(QueueFull) => return Err(self.refuse(&[endpoint], WaitRefusal::QueueFull)),
        };
        match wait.queue_place.wait(self.wait_deadline(begun, options)).await {
            Some(Grant::Permit(_, permit)) => Ok(permit),
            // A wait for a permit belongs to no worker, so no connection is handed to it.
            Some(Grant::Local(_)) | None => Err(self.refuse(&[endpoint], WaitRefusal::TimedOut)),
        }
    }

    /// Time for the next attempt of a request to connect; none when its budget is spent.
    pub(crate) fn connect_time(&self, options: &SendOptions) -> Option<Duration> {
        options.connecting.next_attempt(self.timeouts().connect)
    }

    fn wait_deadline(&self, begun: Instant, options: &SendOptions) -> Instant {
        let longest = self.bounds().max_wait.min(self.timeouts().connect / 2);
        begun + longest.saturating_sub(options.connecting.waited())
    }

    fn refuse(&self, candidates: &[usize], refusal: WaitRefusal) -> WaitRefusal {
        let metrics = &self.endpoint(candidates[0]).metrics;
        match refusal {
            WaitRefusal::QueueFull => metrics.refused_queue_full.inc(),
            WaitRefusal::TimedOut => metrics.refused_timeout.inc(),
        }
        refusal
    }

    fn endpoint(&self, index: usize) -> &EndpointState {
        &self.endpoints().list[index]
    }

    fn connections_of(&self, endpoint: usize) -> &Arc<OpenConnections> {
        &self.endpoint(endpoint).connections
    }
}

impl<'a> Wait<'a> {
    fn new(
        pool: &'a Pool,
        candidates: &'a [usize],
        queue_place: QueuePlace,
        begun: Instant,
        options: &'a SendOptions,
    ) -> Self {
        pool.endpoint(candidates[0]).waiting.fetch_add(1, Relaxed);
        Self { pool, candidates, queue_place, begun, options }
    }

    /// Takes what was granted, with its endpoint; none when the connection was closed meanwhile.
    fn take(&self, grant: Grant) -> Option<(usize, Reserved)> {
        let (candidate, reserved) = match grant {
            Grant::Permit(candidate, permit) => (candidate, Some(Reserved::Permit(permit))),
            Grant::Local(candidate) => (candidate, self.take_handed(self.candidates[candidate])),
        };
        Some((self.candidates[candidate], reserved?))
    }

    fn take_handed(&self, endpoint: usize) -> Option<Reserved> {
        let id = self.queue_place.id();
        match self.pool.protocol() {
            Protocol::Http1 => {
                let handed = self.pool.idle_connections(endpoint).borrow_mut().take_handed(id);
                handed.map(Reserved::Connection)
            }
            Protocol::Http2 => self.pool.http2_connections(endpoint).take_handed(id).map(Reserved::Stream),
        }
    }

    /// Gives back a connection that came too late.
    fn give_back(&self, endpoint: usize) {
        // A stream, and a permit, are given back when they are dropped.
        if let Some(Reserved::Connection(connection)) = self.take_handed(endpoint) {
            self.pool.idle_connections(endpoint).borrow_mut().push_unused(connection, Instant::now());
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(Grant::Local(candidate)) = self.queue_place.take_late() {
            self.give_back(self.candidates[candidate]);
        }
        let (endpoint, waited) = (self.pool.endpoint(self.candidates[0]), self.begun.elapsed());
        endpoint.waiting.fetch_sub(1, Relaxed);
        endpoint.metrics.connection_wait.observe(waited.as_secs_f64());
        self.options.connecting.spend_on_wait(waited);
    }
}
