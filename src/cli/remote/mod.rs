//! A gateway on another machine, which commands reach by its management API: `--server URL --token-file F [--ca F]`.
//!
//! - [`calls`]: the call of the API that performs each operation, as a table.
//! - [`client`]: sends a call, and repeats it where that is safe.
//! - [`answer`]: the reply or the error that an answer stands for.
//! - [`http`]: one connection, HTTP/1.1, over TLS unless it stays on this machine.

mod answer;
mod args;
mod calls;
mod client;
mod http;
mod reading;

pub(in crate::cli) use args::{RemoteArgs, RemoteServer};
pub(super) use client::Remote;
pub(super) use reading::{records, usage};
