//! Traces: for each request a server span, and a client span for each try at the upstream, exported by OTLP over HTTP.
//!
//! - [`context`](domain::trace_context) is what goes from hop to hop; [`Tracer`] begins the trace of a request, or goes
//!   on with the caller's.
//! - A traced request has [`TraceFacts`] among its facts. When it has ended, it is exported if its trace is sampled,
//!   and always if it was refused or has failed (`sampling`).
//! - What is exported goes through a bounded queue to a thread of its own (`exporter`, a
//!   [worker](crate::outbound::delivery)), which encodes it (`span_data`) and sends it to the collector (`collector`).
//!   A full queue drops and counts: no request ever waits for a collector.
//! - An attribute never has a query string, a cookie or the secret of a key: keys in paths and hosts are redacted.
//! - Nothing is global: a tracer is a value, and ends when its last clone is dropped.

mod settings;
mod sampling;
mod trace_facts;
mod queue;
mod tracer;
mod span_data;
mod collector;
mod exporter;

pub use exporter::{StartError, TraceExporters};
pub use sampling::{InvalidRatio, Ratio};
pub use settings::{ClientContext, Endpoint, InvalidEndpoint, Settings};
pub use trace_facts::{TraceFacts, TryError};
pub use tracer::Tracer;
