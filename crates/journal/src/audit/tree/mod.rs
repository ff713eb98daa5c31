//! The Merkle tree of a journal: an append-only tree over its lines, by which old checkpoints prove that nothing
//! before them has changed.
//!
//! The leaves are the lines of all segments in their order, without their newlines. Hashes, proofs, keys and signed
//! checkpoints are those of the crate [`tlog`], which knows no journal. The files here tie them to segments.
//!
//! - [`lines`]: reading of the lines; [`nodes_file`]: the hashes of closed segments, which outlive the segments;
//!   [`nodes`]: hashes of any part of the tree; [`published`]: the files of the latest checkpoint.

pub(crate) mod lines;
pub(crate) mod nodes_file;
pub(crate) mod nodes;
pub(crate) mod published;
