//! The descriptions of APIs (OpenAPI): responses are validated against them, and requests are generated from them.

mod document;
mod gateway;
mod schemathesis;

pub use document::Document;
pub use schemathesis::{CHECKS, Schemathesis};
