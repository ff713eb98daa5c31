//! The upstream side: endpoints, their pooled connections, and whose fault a failure was.
//!
//! - Every worker has its own [`Pool`], so a connection is used by the thread that made it. What the pools share is the
//!   number of requests in flight per endpoint ([`Endpoints`]): a request goes to the endpoint with the fewest.
//! - A connection that cannot be made sends the request to another endpoint: nothing was sent yet. A pooled connection
//!   that turns out to be closed before anything was written to it is replaced the same way.
//! - To an endpoint with `https`, nothing is sent before its certificate is verified.
//! - A connection is pooled again only when its exchange has ended whole.

mod body;
mod connection;
mod endpoint;
mod patience;
mod pool;
mod settings;
mod stream;

pub use body::{ResponseBody, ResponseError};
pub use endpoint::Endpoints;
pub use pool::{Failure, Pool};
pub use settings::{Endpoint, Settings};
