//! Position of a reader that follows the journal across restarts.

use serde::{Deserialize, Serialize};

use super::segment::Point;

/// Position of a reader that follows the journal. Everything before it was read.
///
/// - It names the last line before it, so that a journal that has lost its end meanwhile, and has grown again, is
///   noticed: after a loss of power, or when a backup of the directory was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in the segment, in bytes.
    pub offset: u64,
    /// Number of the last line before it, over all segments; 0 at the beginning.
    pub line: u64,
    /// Offset of that line in the same segment; equal to `offset` when it is in an earlier one.
    pub last_line: u64,
    /// CRC-32 of that line.
    pub checksum: u32,
}

impl StreamPosition {
    /// The beginning of every journal.
    pub const START: Self = Self { segment: 0, offset: 0, line: 0, last_line: 0, checksum: 0 };

    pub(crate) fn point(&self) -> Point {
        Point { segment: self.segment, offset: self.offset }
    }

    /// Returns whether it is before another one, in the order in which the journal is written.
    pub fn is_before(&self, other: &Self) -> bool {
        self.point() < other.point()
    }

    /// Returns whether this line, with its line feed, is the last one before it.
    pub fn has_read(&self, line: &[u8]) -> bool {
        line.strip_suffix(b"\n").is_some_and(|line| crc32fast::hash(line) == self.checksum)
    }

    /// The beginning of a segment, after the same lines.
    pub(crate) fn at_segment(self, segment: u64) -> Self {
        Self { segment, offset: 0, last_line: 0, checksum: 0, ..self }
    }
}
