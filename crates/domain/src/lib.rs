//! The nouns of keygate, without I/O: what is said about keys, identities, quotas, sessions and refusals.
//!
//! - Nothing here opens a file or a socket, or waits. Decisions are pure functions of (state, quota, now).
//! - Secrets are types of their own whose `Debug` shows nothing ([`secret::Secret`], [`key::PlainKey`]).
//! - What HTTP says about heads is here once ([`http_syntax`], [`head_fields`]), for both sides of the gateway.

pub mod refusal;
pub mod problem;
pub mod http_syntax;
pub mod head_fields;
pub mod field_lines;
pub mod head_memory;
pub mod trace_context;
pub mod value_text;
pub mod counted;
pub mod identity;
mod base62;
pub mod key;
pub mod management_token;
pub mod session;
pub mod names;
pub mod quota;
pub mod budget;
pub mod plan_name;
pub mod address_limiter;
pub mod page;
pub mod clock;
pub mod secret;

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
