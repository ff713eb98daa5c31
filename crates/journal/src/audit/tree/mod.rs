//! The Merkle tree of a journal: an append-only tree over its lines, by which old checkpoints prove that nothing
//! before them has changed.
//!
//! The leaves are the lines of all segments in their order, without their newlines, hashed as RFC 9162, section 2.1,
//! says. A checkpoint is the number of lines and the root, signed with an Ed25519 key.
//!
//! - [`hash`]: hashes of leaves and nodes; [`range`]: a run of leaves as a few hashes; [`proof`]: the parts of
//!   inclusion and consistency proofs.
//! - [`key`], [`note`]: keys and signed notes (C2SP signed-note); [`checkpoint`]: their text (C2SP tlog-checkpoint).
//! - [`lines`]: reading of the lines; [`nodes_file`]: the hashes of closed segments, which outlive the segments;
//!   [`nodes`]: hashes of any part of the tree; [`published`]: the files of the latest checkpoint.

pub(crate) mod hash;
pub(crate) mod range;
pub(crate) mod proof;
pub(crate) mod key;
pub(crate) mod note;
pub(crate) mod checkpoint;
pub(crate) mod lines;
pub(crate) mod nodes_file;
pub(crate) mod nodes;
pub(crate) mod published;
