//! The upstream side: endpoints, their pooled connections, and whose fault a failure was. The upstream may be broken, or
//! hostile: what it says is checked before it is shown.
//!
//! - Every worker has its own [`Pool`], so a connection is used by the thread that made it. What the pools share is the
//!   number of requests in flight per endpoint ([`Endpoints`]): a request goes to the endpoint with the fewest.
//! - A connection that cannot be made sends the request to another endpoint: nothing was sent yet. A pooled connection
//!   that turns out to be closed before anything was written to it is replaced the same way.
//! - A request that is idempotent and has no body is sent again, once and on a new connection, when a pooled one died
//!   before the first byte of the response. That costs a copy of its head for every such request on a pooled
//!   connection: the table of its fields and a reference count for each, some hundred nanoseconds.
//! - A connection is pooled again only when its exchange has ended whole, the request's body included, and is taken from
//!   the pool only when nothing waits to be read from it. In all other cases it is closed at once.
//! - To an endpoint with `https`, nothing is sent before its certificate is verified.
//! - Heads are scanned for what the HTTP library lets pass, and inspected by the caller before the body is touched.

mod settings;
mod endpoint;
mod pool;
mod idle;
mod http2_send;
mod attempt;
mod replay_body;
mod http1_connection;
mod http2_connections;
mod socket;
mod scanned_stream;
mod head_scan;
mod response_body;
mod tunnel;
mod error;

pub use endpoint::Endpoints;
pub use error::{ResponseError, SendError, TimeoutKind};
pub use pool::{Inspect, Pool, SendOptions};
pub use response_body::ResponseBody;
pub use settings::{Endpoint, Protocol, Settings, Timeouts};
pub use tunnel::Tunnel;
