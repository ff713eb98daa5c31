//! Limits of connections: how many may be open to each endpoint and to all of them, over all workers, and the requests
//! that wait for one.
//!
//! A worker's connections serve its own requests only. So half of each bound is divided into equal guaranteed shares,
//! of at least one connection where there are enough, and the rest is borrowed by those workers that need more
//! ([`share`]). With `max: 100` and four workers, each has 12 for certain, and one alone may have 64. Each open
//! connection holds a [`ConnectionPermit`] from before it is made until its socket is closed.
//!
//! Fair:
//! - Never are more connections open than the bound, unless it was lowered meanwhile.
//! - A worker can always open connections up to its share: no other worker borrows of it. So none starves.
//! - The requests of a worker wait in the order in which they came ([`worker_link`]). The requests of all workers that
//!   wait are bounded, and so is their time.
//! - An idle connection beyond its worker's share is closed for a request of another worker, one for each such request.
//! - After bounds were lowered, connections beyond them are closed when their exchanges have ended.
//!
//! Not fair:
//! - A worker keeps borrowed connections while requests of its own wait for them: they are not connected anew in turns.
//! - What is returned to the rest goes to the first worker that takes it, however long others have waited.
//! - With a bound below the number of workers there are no shares, and the two points before hold for all connections:
//!   a worker may wait in vain. The configuration warns of that.

mod sync;
mod share;
mod limiter;
mod permit;
mod queue;
mod worker_link;
#[cfg(test)]
mod tests;

pub(crate) use limiter::ConnectionLimiter;
pub(crate) use permit::{ClosingMark, ConnectionPermit};
pub(crate) use queue::{Acquisition, Grant, LocalRequest, QueueFull, QueuePlace};
pub(crate) use share::OpenConnections;
pub use worker_link::ConnectionBounds;
pub(crate) use worker_link::{EndpointLink, IdleUse, WorkerLink};
