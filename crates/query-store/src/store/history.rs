//! Bound of an organization's *history*: its ended row versions, which live snapshots keep or which garbage
//! collection has yet to delete.
//!
//! - The history is counted in bytes, in the organization's row: each transaction that ends a row version adds its
//!   cost (`ROW_OVERHEAD`), and the one that deletes it subtracts the same. So the bound holds exactly, at any time.
//! - Half of the bound is left to writers: from there on no new snapshot is registered, because every snapshot makes
//!   later edits and deletions keep one row version more. Sequences of pages that have begun go on.
//! - At the bound, edits and deletions are refused. New queries, first pages without a successor and all reads never
//!   are.
//! - Cursors are promised for their whole lifetime, so no snapshot is given up early to make room.

/// Bytes that a row version counts beside its name and text: the other columns and its entries in the indexes,
/// rounded up, so that many short row versions cannot make a page scan without bound either. The schema of PostgreSQL
/// has the same number.
pub(super) const ROW_OVERHEAD: u64 = 512;

/// Default bound: a thousand snapshots of a megabyte that was edited completely between them.
pub const DEFAULT_MAX_HISTORY: u64 = 1 << 30;

/// Bound of the history of each organization, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimit(pub u64);

/// The history of an organization would exceed its limit; the operation had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryFull;

impl HistoryLimit {
    /// The bound as the stores compare it.
    pub(super) fn bytes(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// History from which on no new snapshot is registered.
    pub(super) fn bytes_for_snapshots(self) -> i64 {
        self.bytes() / 2
    }
}

impl Default for HistoryLimit {
    fn default() -> Self {
        Self(DEFAULT_MAX_HISTORY)
    }
}
