//! The platform of every part of keygate: settings, TLS, PostgreSQL, HTTP clients, metrics, logs and traces.
//!
//! - Nothing here knows of an organization or a limit: the parts above say what they count, log and trace.
//! - [`settings`] reads the typed values of the configuration, and says where a wrong one is and what to write.
//! - [`metrics`] holds every metric by its name; `docs/monitoring.md` has the same list.
//! - [`telemetry`] writes the log, the access log and the traces; none of them holds a request up.

pub mod settings;
pub mod postgresql;
pub mod tls;
pub mod metrics;
pub mod telemetry;
pub mod cli_docs;
pub mod timer;
pub mod byte_stream;
pub mod large_reads;
pub mod request_body;
pub mod outbound;
pub mod abort_on_drop;
pub mod disk;
pub mod idle_class;
pub mod passwd;
pub mod accept_errors;

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
