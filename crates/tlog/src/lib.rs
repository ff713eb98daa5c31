//! A transparency log (RFC 9162, C2SP): an append-only Merkle tree, and signed checkpoints that prove what was in it.
//! It knows no files, no journal and no gateway, and has no I/O.
//!
//! - [`hash`]: hashes of leaves and nodes; [`range`]: a run of leaves as a few hashes; [`proof`]: the parts of
//!   inclusion and consistency proofs.
//! - [`key`], [`note`]: keys and signed notes (C2SP signed-note, tlog-cosignature); [`checkpoint`]: their text
//!   (C2SP tlog-checkpoint).

pub mod hash;
pub mod range;
pub mod proof;
pub mod key;
pub mod note;
pub mod checkpoint;

/// The example of the README is compiled and run with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
