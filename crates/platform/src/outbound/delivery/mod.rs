//! Delivery: how all that leaves the process beside requests gets to its destination. Lines of the logs, spans, and
//! records of the audit share it.
//!
//! - `Queue`: bounded; adding to it never waits, and what finds no room is handed back to be counted.
//! - `Worker`: a thread that takes what has come together, and hands it to a `Destination` part by part, with the
//!   retries of a `RetryPolicy`. It ends when the queue is closed, and what is left is delivered or given up.
//! - [`Backoff`]: pauses that grow, with jitter; `Retry-After` takes their place ([`Retry`]).
//! - [`HttpPost`]: messages over HTTP, by a connection that is kept; [`otlp`]: what messages of OTLP share.
//!
//! A new destination of lines or spans is an `impl Destination`. A sink of the audit needs no queue, because the
//! journal is one: it is a variant of `shipping/sink.rs` that posts messages.

mod queue;
mod retry;
mod worker;
mod http_post;
pub mod otlp;

pub use http_post::{HttpPost, PostError};
pub(crate) use queue::{Batch, Queue};
pub(crate) use retry::RetryPolicy;
pub use retry::{Backoff, Retry, random_jitter};
pub use worker::in_full;
pub(crate) use worker::{Destination, Failure, Worker};
