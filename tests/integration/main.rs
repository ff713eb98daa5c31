//! The integration tests: one binary, a file per behaviour.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod command_line;
mod config;
mod journal;
mod management;
