//! The downstream side: listeners, connections, their time-outs and sizes, and how they end.
//!
//! [`serve`] accepts connections on one listener and runs each, HTTP/1.1 or HTTP/2 with prior knowledge (RFC 9113,
//! section 3.3), as a task of the calling thread's `LocalRuntime`: a request is served where it was accepted.
//!
//! - A head that cannot be read is answered in the caller's words ([`Unreadable`]) and the connection is closed.
//! - When the shutdown future completes, nothing is accepted any more, idle connections close, HTTP/2 ones are told to
//!   go away, and [`serve`] returns when the last exchange has ended.
//! - A failed accept (out of file descriptors, say) is waited out, never spun on.

mod body;
mod connection;
mod drain;
mod io;
mod listener;
mod settings;

pub use body::{BodyError, RequestBody, Upload};
pub use connection::Unreadable;
pub use listener::{Serving, bind, serve};
pub use settings::Settings;
