//! The behaviour of the library's parts, each on real files and sockets; a file per behaviour, all in one binary.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test fails by panicking, and is nobody's API")]

mod state_contract;
