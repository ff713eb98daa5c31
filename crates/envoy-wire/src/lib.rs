//! The wire forms that Envoy speaks to a decision service: bytes to messages and back. It knows no key, limit or
//! listener, and has no I/O.
//!
//! - [`grpc`]: messages, trailers and the request head of gRPC over HTTP/2, on the types of `http` and `bytes`.
//! - [`ext_authz`]: one question and one answer for a request (`envoy.service.auth.v3`).
//! - [`ext_proc`]: one stream for an exchange (`envoy.service.ext_proc.v3`).
//! - [`health`]: health checks of the service (`grpc.health.v1`).
//!
//! Messages have the fields that a decision reads or writes, with the numbers of Envoy's `.proto` files
//! (<https://github.com/envoyproxy/envoy/tree/v1.40.0/api>); other fields are skipped. `Debug` shows names of fields of
//! described requests, and never their values: they have credentials.
//!
//! Layers, top-down: `ext_proc`, `ext_authz`, `health` > `header`, `address`, `http_status`, `value` > `grpc`.

pub mod ext_authz;
pub mod ext_proc;
pub mod health;
pub mod grpc;
mod header;
mod address;
mod http_status;
mod value;
#[cfg(test)]
mod tests;

pub use address::{Address, SocketAddress};
pub use header::{HeaderAppendAction, HeaderMap, HeaderValue, HeaderValueOption};
pub use http_status::HttpStatus;
pub use value::{Duration, Kind, ListValue, Struct, Timestamp, Value};

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
