//! Pages and code as texts: words, links, blocks, the form of the code. A program that links no gateway.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

#[allow(dead_code, reason = "shared by all test binaries")]
#[path = "../support"]
mod support {
    pub mod files;
    pub mod page;
}

mod blocks;
mod house;
mod links;
mod words;
