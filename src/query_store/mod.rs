//! query-store: the upstream that ships with keygate.

pub mod http;
pub mod service;
pub mod query;
pub mod cursor;
pub mod store;
