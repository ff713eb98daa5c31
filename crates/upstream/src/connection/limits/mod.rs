//! Limits of connections: how many may be open to each endpoint and to all of them, over all workers, and the queue of the
//! requests that wait for one.
//!
//! - Each open connection holds a [`ConnectionPermit`] from before it is made until its socket is closed. Counts and queue
//!   are under one lock ([`limiter`]), which is taken to open and to close a connection, and to wait; a request that finds
//!   a pooled connection takes no lock.
//! - Requests wait in the order in which they came ([`ledger`]). The queue, and the time in it, are bounded.
//! - A worker's connections serve its own requests only. So an idle connection of one worker is closed when a request of
//!   another one waits for its permit ([`worker_link`]).

mod settings;
mod counts;
mod ledger;
mod limiter;
mod queue_place;
mod worker_link;

pub(crate) use counts::OpenConnections;
pub(crate) use ledger::QueueFull;
pub(crate) use limiter::{ClosingMark, ConnectionLimiter, ConnectionPermit, Grant};
pub(crate) use queue_place::{Acquisition, QueuePlace};
pub use settings::ConnectionBounds;
pub(crate) use worker_link::{EndpointLink, IdleUse, LocalRequest, WorkerLink};
