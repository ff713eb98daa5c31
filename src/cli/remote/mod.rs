//! A gateway on another machine, which commands reach by its management API: `--server URL --token-file F [--ca F]`.
//!
//! - [`client`]: sends a call, and repeats it where that is safe.
//! - [`http`]: one connection, HTTP/1.1, over TLS unless it stays on this machine.

mod args;
mod client;
mod http;
mod reading;

pub(in crate::cli) use args::{RemoteArgs, RemoteServer};
pub(super) use client::Remote;
pub(super) use reading::{records, usage};
