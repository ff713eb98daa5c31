//! The downstream side: listeners, connections, their sizes and time-outs, and how they end.
//!
//! [`serve`] accepts connections on one listener and runs each as a task of the calling thread's `LocalRuntime`: a
//! request is served by the worker that its connection was given to. Upper layers import lower ones:
//!
//! ```text
//! accept              accept loop, backlog, balance between workers; connection set-up: PROXY header, TLS, protocol
//! http1               strict scanners of heads and chunked bodies, the gate that they guard, one connection's driver
//! http2               scanner of frames, write stalls of streams, one connection's driver
//! ------------------------------------------------------------------------------------------------------------------
//! tracked_service     the service between the HTTP library and the gateway: exchanges begin and end
//! watchdog, activity  time-outs of a connection, and the phases that they are measured from
//! connection_handle   what a service can do with its connection: upgrade it, close it
//! upgrade, stream     a connection's bytes, also behind a 101
//! reset               ends an exchange on request of the service
//! drain               stages of a listener that closes, known to all its connections
//! connection_limiter  permits, in total and for each address
//! serving, settings   what is served on a listener, and how
//! ```
//!
//! - A head that cannot be read is answered by the caller's function ([`HeadError`]), and the connection is closed.
//! - Whatever a client does or fails to do ends by itself: every wait has a time-out ([`Settings`]), every count a
//!   limit. One timer per connection keeps all time-outs between exchanges.
//! - An HTTP/1 connection that waits for a request is parked: it holds no buffer (`http1::driver`).
//! - A failed accept (out of file descriptors, for instance) is followed by a pause, never by a spin.
//! - HTTP/1 and HTTP/2 have separate states, one struct each, which a connection's bytes, exchanges and driver share.
//!   There is one cell through which two of them pass an argument, because the HTTP library has no other way: see
//!   `http2::state`.

mod accept;
mod http1;
mod http2;
mod tracked_service;
mod watchdog;
mod activity;
mod upgrade;
mod reset;
mod connection_handle;
mod stream;
mod drain;
mod connection_limiter;
mod serving;
mod settings;

pub use accept::{ListenerRelease, WorkerListener, WorkerLoads, bind, proxy_protocol, serve};
pub use connection_handle::ConnectionHandle;
pub use connection_limiter::ConnectionLimiter;
pub use http1::head;
pub use reset::ResetHandle;
pub use serving::{ConnectionService, HeadError, HeadErrorResponse, Http2Negotiation, ServeOptions};
pub use settings::Settings;
pub use stream::Upgraded;
pub use upgrade::{ExchangeHandle, UpgradeSlot};
