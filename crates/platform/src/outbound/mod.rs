//! Connections that the gateway opens to servers beside its upstreams: collectors, identity
//! providers, sinks of the audit.
//!
//! - [`connect`]: a TCP connection to a host, whose addresses are tried in turn.
//! - [`Server`]: a host with its port, over TLS where it is to be verified.
//! - [`HttpConnection`]: HTTP/1.1 over such a connection, one exchange at a time.
//! - [`delivery`]: how lines, spans and records get to their destinations.

mod connect;
mod server;
mod http;
mod url;
pub mod delivery;

pub use connect::{ConnectError, connect};
pub use http::{ExchangeError, HttpConnection};
pub use server::{OutboundStream, Server, ServerError};
pub use url::{HttpUrl, InvalidHttpUrl};
