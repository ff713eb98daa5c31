//! HTTP/2 frames (RFC 9113, section 4.1) of either side of a connection, scanned before the HTTP library reads them:
//! those of clients by `edge`, those of upstreams by `upstream`.
//!
//! The library limits what it keeps: streams that were reset and not accepted yet, streams that it had to reset itself,
//! CONTINUATION frames of one head, DATA frames of a few bytes or of padding. What is left is scanned for here:
//!
//! - **Floods** (CVE-2019-9512 and kin, rapid reset): PING and SETTINGS that must be answered, empty frames,
//!   priorities, window updates, resets. A peer has an allowance (`allowance`) for them, which requests, responses and
//!   sent bytes refill.
//! - **Heads**: the library drops a fragment of `:path`, a `:scheme` beside `Host`, pseudo-fields of trailers and
//!   interim responses without a word. `head_block` finds them in the compressed heads (HPACK), without decompressing.
//!
//! A head that must be refused is changed by a byte or a bit, so that the library finds it malformed: it resets the
//! stream, as section 8.1.1 says, and the connection goes on. No change alters the size of an entry of the
//! compression's table, so other heads are read as they were sent. Where the byte to be changed has gone to the library
//! already, as in a head that arrives in pieces, the connection ends.

mod allowance;
mod boundaries;
mod head_block;
mod field;
mod huffman;
mod interim;
mod scanner;

pub use interim::ANSWERED;
pub use scanner::FrameScanner;

/// Reason to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer has exceeded its allowance of idle frames.
    #[error("too many frames that ask for nothing")]
    Flood,
    /// A head is malformed, and a part of it has gone to the library.
    #[error("a head that came in pieces is malformed")]
    Malformed,
}

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
