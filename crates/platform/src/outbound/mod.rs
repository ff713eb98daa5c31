//! Connections that the gateway opens to servers beside its upstreams: collectors, identity
//! providers, sinks of the audit.
//!
//! - [`Server`]: a host with its port, whose addresses are tried in turn; over TLS where it is to be verified.
//! - [`HttpConnection`]: HTTP/1.1 over such a connection, one exchange at a time.
//! - [`delivery`]: how lines, spans and records get to their destinations.

mod server;
mod http;
mod url;
pub mod delivery;

pub use http::{ExchangeError, HttpConnection};
pub use server::{ConnectError, OutboundStream, Server, ServerError};
pub use url::{HttpUrl, InvalidHttpUrl};
