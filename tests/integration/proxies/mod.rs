//! Real proxies that ask a real gateway for a decision before they forward a request, each with its configuration of
//! `deploy/proxies`.

mod files;
mod identity;
mod many_streams;
mod program;
mod records;
mod refused;
mod requests;
mod setup;
mod streams;
mod targets;
mod unanswered;

pub use program::{Kind, Proxy, validate_envoy};
pub use setup::{IDENTITY, Setup, blocks, upstream, with_many_requests};
