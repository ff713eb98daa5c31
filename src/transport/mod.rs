//! The downstream side: listeners, connections, their time-outs and sizes, and how they end.
//!
//! [`serve`] accepts connections on one listener and runs each as a task of the calling thread's `LocalRuntime`: a request
//! is served where it was accepted. A connection goes through these rooms:
//!
//! ```text
//! listener    is there a place for it (connection_limiter)?
//! opening     PROXY header (proxy_protocol), TLS handshake, HTTP/1.1 or HTTP/2: by ALPN, or by prior knowledge
//! http1       its bytes (io) are heads read strictly (head), and bodies followed to their ends (chunks)
//! http2       its bytes are counted as frames (frames), its streams end when nobody takes what they send
//! watched     the service, between the connection and the gateway; upgrade: the bytes behind a 101
//! ```
//!
//! - A head that cannot be read is answered in the caller's words ([`HeadError`]) and the connection is closed.
//! - Whatever a client does or fails to do ends by itself: every wait has its time ([`Settings`]), kept by one timer
//!   per connection (watchdog), every count its bound.
//! - A failed accept (out of file descriptors, say) is waited out, never spun on.

mod accept;
mod http1;
mod http2;
mod tracked_service;
mod watchdog;
mod activity;
mod upgrade;
mod stream;
mod drain;
mod connection_limiter;
mod serving;
mod settings;

pub use accept::{bind, proxy_protocol, serve};
pub use connection_limiter::ConnectionLimiter;
pub use http1::head;
pub use serving::{HeadError, Http2Negotiation, ServeOptions};
pub use settings::Settings;
pub use upgrade::{UpgradeSlot, Upgraded};
