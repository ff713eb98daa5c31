//! Upkeep of one worker's connections, by a task of the worker: it grants permits to waiting requests, offers idle
//! connections when requests wait elsewhere, and keeps connections open ahead of requests.
//!
//! Connections ahead of requests (spares):
//!
//! - Each worker keeps its part of `min_idle` idle connections to each endpoint that takes requests, within the
//!   bounds: it takes no place from a request that waits.
//! - A spare that has been closed, or has reached its age, is replaced at the next look.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::endpoint_connections::Connections;
use super::http1;
use super::lifetime::Lifetimes;
use super::limits::{ConnectionPermit, WorkerLink};
use crate::endpoint::endpoints::Endpoints;
use crate::settings::{Address, Protocol};
use platform::abort_on_drop::AbortOnDrop;

/// Time between two looks at the spares.
const INTERVAL: Duration = Duration::from_secs(1);

/// Spares to each endpoint that are opened at once at most: the upstream is not to be flooded when a gateway starts.
const MAX_OPENING: usize = 16;

/// Connections of a worker's pool, and what new ones are made by.
#[derive(Clone)]
pub(crate) struct Upkeep {
    pub(crate) endpoints: Arc<Endpoints>,
    /// Connections in the order of the endpoints.
    pub(crate) connections: Rc<[Connections]>,
    pub(crate) link: Rc<WorkerLink>,
    pub(crate) protocol: Protocol,
    pub(crate) connect_timeout: Duration,
    pub(crate) lifetimes: Lifetimes,
    /// Idle connections to each endpoint that all workers keep together.
    pub(crate) min_idle: usize,
}

impl Upkeep {
    /// Starts the task, which ends when the handle is dropped.
    pub(crate) fn start(self) -> AbortOnDrop<()> {
        AbortOnDrop::new(tokio::task::spawn_local(async move {
            let offers = pin!(self.offer_when_woken());
            if self.min_idle == 0 {
                offers.await;
            } else {
                select(offers, pin!(self.keep_spares())).await;
            }
        }))
    }

    /// Grants permits to the requests that wait, and offers the idle connections, whenever the worker is woken. Never
    /// completes.
    async fn offer_when_woken(&self) {
        loop {
            self.link.woken().await;
            self.link.grant_permits();
            for connections in &*self.connections {
                connections.idle.borrow_mut().offer_all();
                connections.http2.offer_all();
            }
        }
    }

    /// Replaces spares. Never completes.
    async fn keep_spares(&self) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Dropped with this task, it ends what is being opened.
        let mut opening = JoinSet::new();
        loop {
            interval.tick().await;
            while opening.join_next().await.is_some() {}
            for index in 0..self.connections.len() {
                for permit in self.missing_spares(index) {
                    opening.spawn_local(self.clone().open_spare(index, permit));
                }
            }
        }
    }

    /// Permits for the spares that an endpoint lacks, as far as there is room.
    fn missing_spares(&self, index: usize) -> Vec<ConnectionPermit> {
        let endpoint = &self.endpoints.list[index];
        let connections = &self.connections[index];
        let is_removed = connections.is_closed() || endpoint.address.address == Address::Unresolved;
        if is_removed || endpoint.ejection.is_out() {
            return Vec::new();
        }
        let share = self.link.share_of(self.min_idle);
        let missing = share.saturating_sub(self.count_idle(index)).min(MAX_OPENING);
        (0..missing).map_while(|_| connections.link.try_acquire()).collect()
    }

    /// Idle connections to an endpoint that can carry a request.
    fn count_idle(&self, index: usize) -> usize {
        let Connections { idle, http2, .. } = &self.connections[index];
        match self.protocol {
            Protocol::Http1 => {
                idle.borrow_mut().prune();
                idle.borrow().len()
            }
            Protocol::Http2 => {
                http2.prune();
                http2.idle()
            }
        }
    }

    /// Opens a spare. One that fails is tried again at the next look.
    async fn open_spare(self, index: usize, permit: ConnectionPermit) {
        let endpoint = &self.endpoints.list[index];
        match self.connect(index, permit).await {
            Ok(()) => endpoint.note_reachable(),
            Err(error) => tracing::debug!(endpoint = %endpoint.label, %error, "cannot open a spare connection"),
        }
    }

    async fn connect(&self, index: usize, permit: ConnectionPermit) -> io::Result<()> {
        let endpoint = &self.endpoints.list[index];
        let connections = &self.connections[index];
        let timeout = self.connect_timeout;
        let lifetimes = &self.lifetimes;
        match self.protocol {
            Protocol::Http1 => {
                let address = &endpoint.address;
                let encryption = endpoint.encryption.as_ref();
                let connection = http1::connect(address, encryption, timeout, lifetimes, permit).await?;
                connections.idle.borrow_mut().push_unused(connection, Instant::now());
                Ok(())
            }
            Protocol::Http2 => connections.http2.open_spare(endpoint, permit, timeout, lifetimes).await,
        }
    }
}
