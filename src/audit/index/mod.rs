//! The index of a journal: a SQLite database beside the segments that tells readers which blocks to read.
//!
//! It says which blocks of which segments hold uses of a key, a user or an organization and when these uses began; how
//! often each key was used and refused in each of the last hours; and the last use and the last refusal of each key.
//!
//! - It is derived data: it is rebuilt from the segments when it is lost, damaged, or does not fit them.
//! - It covers the journal from its beginning up to a point. That point advances in the same transaction as the rows
//!   before it, and readers scan everything after it. So the index is never wrong, only late: by about a second and a
//!   block.
//! - It is sparse: one row per block and id instead of one per record; one row per key and hour, for 25 hours; one row
//!   per key.

mod indexed_use;
pub(crate) mod usage_counts;
pub(crate) mod database;
mod usage_rows;
mod block_rows;
pub(crate) mod indexer;
pub(crate) mod lookup;

pub(crate) use indexed_use::IndexedUse;
