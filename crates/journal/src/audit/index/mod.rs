//! The index of a journal: it tells readers which parts of which segments to read, and has the usage of keys.
//!
//! It says in which parts of each segment there are uses of a key, a user or an organization and when these uses
//! began; how often each key was used and refused in each of the last hours; and the last use and the last
//! refusal of each key.
//!
//! - It is derived data: it is rebuilt from the segments when it is lost, damaged, or does not fit them.
//! - The threads that write the journal keep the index of the open segment in memory ([`live_index`]): no line is read
//!   again to be indexed. A killed process lost it, and the next start makes it again from the segment.
//! - When a segment is closed, one transaction adds the parts in which ids occur ([`segment_parts`]) and the usage of
//!   its keys ([`usage_rows`]) to the [`database`]: a crash leaves all of it, or none. After a kill, the segments that
//!   are not in it are read again.
//! - The parts of a segment are compared with its lines by `audit verify` ([`check`]). Damaged ones are made again at
//!   the next start, or by a gateway that runs when their turn to be checked comes.
//! - Readers scan what has no index. Readers in other processes scan the open segment.

mod indexed_use;
pub(crate) mod usage_sums;
mod packed_sums;
pub(crate) mod usage_counts;
pub(crate) mod segment_usage;
pub(crate) mod members;
pub(crate) mod segment_index;
pub(crate) mod live_index;
mod segment_parts;
pub(crate) mod database;
pub(crate) mod usage_rows;
pub(crate) mod check;
pub(crate) mod indexer;
pub(crate) mod lookup;

pub(crate) use indexed_use::{IndexedEvent, IndexedUse};
