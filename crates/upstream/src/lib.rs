//! The upstream: its endpoints and their pooled connections. The upstream may be broken or hostile: its responses are
//! checked before they are forwarded.
//!
//! - Every worker has its own [`Pool`], so that a connection is used by the thread that made it. The pools share the
//!   state of each endpoint ([`Endpoints`]).
//! - A request goes to the better one of two endpoints that are drawn (`balance`); those that fail are set aside
//!   (`outlier`), and [`maintain`] brings them back.
//! - When no connection can be made, the request goes to another endpoint: nothing was sent yet. A pooled connection
//!   that was closed before anything was written to it is replaced in the same way. All connecting of a request has one
//!   budget of time (`connect_budget`).
//! - A request that failed is sent again where that does no harm, to another endpoint first, and within a budget that
//!   the workers share (`retry`). For that the bytes of its head are kept until the connection's next exchange
//!   (`sent_head`), and a small body while it is sent (`replay_body`).
//! - The requests in flight of all workers can be bounded (`circuit`).
//! - A connection is pooled again only when its exchange has ended whole, the request's body included, and its response
//!   head was accepted. It is taken from the pool only when nothing waits to be read from it. Otherwise it is closed at
//!   once.
//! - A connection ends after an exchange in which it has reached its age or number of requests (`lifetime`). When an
//!   endpoint is removed, its exchanges end as they would; it gets no new ones, and its idle connections close.
//! - Connections are bounded over all workers (`limits`). A request that finds no room tries other endpoints, and then
//!   waits, for a bounded time; idle connections of other workers and endpoints are closed for it (`reservation`).
//! - A server may answer before it has read a request whole, and close: its response is read before a failed write is
//!   seen (`held_writes`), and an upload that breaks off is no failure of its endpoint.
//! - To an endpoint with `https`, nothing is sent before its certificate is verified.
//! - The frames of an HTTP/2 connection are scanned for floods and for interim responses without bound
//!   (`scanned_http2`). A connection that answers nothing is neither waited for by all nor kept (`http2_connections`).
//! - The bytes of response heads are scanned for what the HTTP library accepts leniently. The caller checks the parsed
//!   head ([`UpstreamResponse`]) and accepts or rejects it, before the body is read.

mod settings;
mod error;
mod endpoint;
mod connection;
mod exchange;
mod pool;

pub use connection::lifetime::Lifetimes;
pub use connection::limits::ConnectionBounds;
pub use endpoint::balance::{BalancePolicy, BalanceSettings, HashBy};
pub use endpoint::discovery::{
    Discovered, Discovery, DiscoveryEnded, Settings as DiscoverySettings, Source, SourceError, Sources,
};
pub use endpoint::endpoints::Endpoints;
pub use endpoint::health::{CheckReport, HealthKind, HealthSettings};
pub use endpoint::maintenance::maintain;
pub use endpoint::outlier::OutlierSettings;
pub use endpoint::recent_latency::LatencyReport;
pub use endpoint::report::{EndpointReport, EndpointStatus};
pub use error::{ResponseError, SendError, TimeoutKind, WaitRefusal};
pub use exchange::response::UpstreamResponse;
pub use exchange::response_body::ResponseBody;
pub use exchange::retry::{RetrySettings, RetryStatuses};
pub use exchange::tries::SendTerms;
pub use exchange::tunnel::Tunnel;
pub use pool::Pool;
pub use settings::{Address, DEFAULT_NAME, Endpoint, Protocol, Settings, Timeouts};
