//! The gateway's faces for operators and their programs.
//!
//! - The **socket**: management as JSON over HTTP/1.1 on a Unix socket of mode 0600. Whoever may open it may do all.
//! - The **listener**: `/metrics` for Prometheus, `/live` and `/ready` for whoever starts and stops gateways.
//!
//! Binding is separate from serving, so that a gateway binds all before it serves any. Both serve on the runtime that
//! polls them, and end when the shutdown future does: requests under way are finished first, for a few seconds at most.

mod socket;
mod config_status;
mod listener;
mod readiness;
mod serving;
mod answer;

pub use config_status::{ConfigReport, ConfigStatus, RejectedConfig};
pub use listener::serve_http;
pub use readiness::{Readiness, ReadinessReport};
pub use socket::{BindError, CONFIG_PATH, HEALTH_PATH, OPERATIONS_PATH, bind_socket, serve_socket};
