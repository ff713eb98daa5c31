//! Pool of one worker's connections to one upstream: made for a configuration, changed with it, and closed. What
//! happens to the requests that it sends is in [`super::exchange`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::Request;

use super::connection::endpoint_connections::Connections;
use super::connection::limits::WorkerLink;
use super::connection::pool_state::PoolState;
use super::connection::upkeep::Upkeep;
use super::endpoint::endpoints::{EndpointState, Endpoints};
use super::endpoint::retry_budget::Deposits;
use super::endpoint::selection::Balancer;
use super::error::SendError;
use super::exchange;
use super::exchange::response::UpstreamResponse;
use super::exchange::tries::SendTerms;
use super::settings::Settings;
use domain::field_lines::FieldLines;
use platform::request_body::RequestBody;

/// One worker's connections to the endpoints of one upstream. Clones share them.
#[derive(Clone)]
pub struct Pool(Rc<PoolState>);

impl Pool {
    /// Pool without open connections, of one of so many workers. To be called on its thread: it starts a task.
    pub fn new(endpoints: Endpoints, settings: &Settings, workers: usize) -> Self {
        let link = WorkerLink::new(&endpoints.limiter, workers);
        Self::build(endpoints, settings, link, |_| None)
    }

    /// Pool over other endpoints, which shares the connections to those that are in both. Idle connections to the
    /// others close now, those in use after their last requests.
    #[must_use]
    pub fn changed(&self, endpoints: Endpoints, settings: &Settings) -> Self {
        if self.0.endpoints.is_same(&endpoints) {
            return self.clone();
        }
        let staying: HashSet<_> = endpoints.list.iter().map(Arc::as_ptr).collect();
        let ours: HashMap<_, usize> = self.0.endpoints.list.iter().map(Arc::as_ptr).zip(0..).collect();
        // Requests that wait for a connection of one protocol cannot use one of the other.
        let is_same = self.0.protocol == settings.protocol;
        if is_same {
            // The new pool looks after the connections, and the queue, from now on.
            drop(self.0.upkeep.take());
        }
        for (endpoint, connections) in self.0.endpoints.list.iter().zip(&*self.0.connections) {
            if !is_same || !staying.contains(&Arc::as_ptr(endpoint)) {
                connections.close();
            }
        }
        let link = if is_same { Rc::clone(&self.0.link) } else { self.0.link.renew() };
        Self::build(endpoints, settings, link, |endpoint| {
            let index = ours.get(&Arc::as_ptr(endpoint))?;
            is_same.then(|| self.0.connections[*index].clone())
        })
    }

    fn build(
        endpoints: Endpoints,
        settings: &Settings,
        link: Rc<WorkerLink>,
        existing: impl Fn(&Arc<EndpointState>) -> Option<Connections>,
    ) -> Self {
        let connections = |endpoint| existing(endpoint).unwrap_or_else(|| Connections::new(&link, endpoint));
        let connections: Rc<[Connections]> = endpoints.list.iter().map(connections).collect();
        let Settings { protocol, timeouts, lifetimes, retries, connections: bounds, .. } = *settings;
        link.set_bounds(&bounds, connections.iter().map(|connections| &connections.link));
        let endpoints = Arc::new(endpoints);
        let upkeep = Upkeep { connections: Rc::clone(&connections), link: Rc::clone(&link) };
        Self(Rc::new(PoolState {
            endpoints,
            connections,
            protocol,
            balancer: Balancer::default(),
            timeouts,
            lifetimes,
            bounds,
            link,
            upkeep: RefCell::new(Some(upkeep.start())),
            retries,
            deposits: Deposits::default(),
        }))
    }

    /// Name of the upstream.
    pub fn upstream(&self) -> &str {
        self.0.endpoints.name()
    }

    /// Ends the pool of an upstream that is removed: idle connections close now, those in use after their last
    /// requests.
    pub fn close(&self) {
        // The upkeep goes on for the requests that wait.
        self.0.connections.iter().for_each(Connections::close);
    }

    /// Sends a request and waits for the head of the response. One for which there is a pooled connection is on its
    /// way when this returns. `added`: fields of its head that are not in its table. `now` is the time of the call.
    ///
    /// # Errors
    /// [`SendError`] when there is no response head.
    pub fn send(
        &self,
        mut request: Request<RequestBody>,
        mut added: FieldLines,
        terms: SendTerms,
        now: Instant,
    ) -> impl Future<Output = Result<UpstreamResponse, SendError>> {
        if self.0.endpoints.reads_identity() {
            std::mem::take(&mut added).write_to(request.headers_mut());
        }
        exchange::send(&self.0, request, added, terms, now)
    }
}
