//! A checkpoint: the keys whose usage is yet to be written back, and the rounds in which that is done.

use std::sync::Arc;

use super::key::KeyRecord;
use super::usage_blocks;
use domain::clock::Micros;

/// Blocks of keys written back in one transaction: changes wait for it, and its pages, 2 MiB, have room in
/// the write-ahead log.
const BLOCKS_PER_ROUND: usize = 500;

/// A checkpoint that is being written.
#[derive(Default)]
pub(super) struct Checkpoint {
    /// Keys to write back; the last rows first, once their rows are known.
    pub(super) pending: Vec<Arc<KeyRecord>>,
    pub(super) is_sorted: bool,
    /// Time at which the keys were taken. Every use that marked its key dirty before is in `pending` or written.
    pub(super) taken_at: Micros,
    /// The number of the journal's next line then, when the journal has every use.
    pub(super) taken_line: Option<u64>,
    /// The last write-back failed, and was logged.
    pub(super) failing: bool,
}

/// Result of one round of writing back.
#[derive(PartialEq)]
pub(super) enum Round {
    Complete,
    More,
    Failed,
}

/// The index of the first key of the next round, which takes the last keys.
pub(super) fn round_start(pending: &[Arc<KeyRecord>]) -> usize {
    let mut blocks =
        pending.chunk_by(|one, next| usage_blocks::block_number(one.row()) == usage_blocks::block_number(next.row()));
    let keys: usize = std::iter::from_fn(|| blocks.next_back()).take(BLOCKS_PER_ROUND).map(<[_]>::len).sum();
    pending.len() - keys
}
