//! A batch: lines that are written together; and the changes by management that wait for the next one.

use std::sync::Arc;

use crate::audit::format::frame::Line;
use crate::audit::index::live_index::PlacedEvent;
use crate::audit::write::completion::{BatchCompletion, BatchResult};
use domain::clock::Micros;

/// Bytes by which a line may grow when it gets its number.
const NUMBER_LENGTH: usize = 20;

/// Lines that are written together: filled by those who append, under the lock of the pending lines; then taken by the
/// thread that writes them, which completes the batch once. Dropped before that, it would leave requests
/// waiting for ever.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) lines: Vec<u8>,
    /// The events among the lines that the index needs.
    pub(crate) indexed: Vec<PlacedEvent>,
    /// The number of the first line.
    pub(super) first: u64,
    /// Time of its event.
    pub(super) first_time: Micros,
    /// Number of the lines.
    pub(crate) events: i64,
    /// True when the lines begin with a header, and so with a new segment.
    pub(crate) header: bool,
    /// Attempts with unknown keys among the lines. Nothing waits for them; they are counted when the batch completes.
    pub(crate) attempts: u64,
    /// Offset at which the lines of changes by management begin, once the batch is taken.
    pub(super) changes_from: usize,
    /// Shared by all who wait for a line.
    pub(crate) completion: Arc<BatchCompletion>,
    /// The completion of the changes, once the batch is taken; `None` without changes.
    pub(super) change_completion: Option<Arc<BatchCompletion>>,
}

/// Parts of a complete batch that a later one takes: empty buffers, which keep their capacity, and the completion.
#[derive(Debug, Default)]
pub struct SpareBuffers {
    pub(crate) lines: Vec<u8>,
    pub(crate) indexed: Vec<PlacedEvent>,
    /// That of a batch that is complete; shared with those who wait for its lines, until they have seen it.
    pub(crate) completion: Option<Arc<BatchCompletion>>,
}

impl Batch {
    /// An empty batch, whose first line gets this number.
    pub(super) fn new(first: u64, spare: SpareBuffers) -> Self {
        let SpareBuffers { lines, indexed, completion } = spare;
        // Not from the default, which would allocate a completion.
        Self {
            lines,
            indexed,
            first,
            first_time: Micros::default(),
            events: 0,
            header: false,
            attempts: 0,
            changes_from: 0,
            completion: BatchCompletion::renew(completion),
            change_completion: None,
        }
    }

    /// The lines, in the order of their numbers.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Tells all who wait for a line of this batch.
    pub fn complete(&self, result: BatchResult) {
        self.completion.complete(result);
        self.change_completion.iter().for_each(|completion| completion.complete(result));
    }
}

/// Pending lines of changes by management, numbered 0.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    pub(super) lines: Vec<u8>,
    count: usize,
    /// Shared by those who wait for one of them; the batch that takes the lines completes it.
    pub(super) completion: Option<Arc<BatchCompletion>>,
}

impl PendingChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the lines with their numbers, at most.
    pub(super) fn size(&self) -> usize {
        self.lines.len() + self.count * NUMBER_LENGTH
    }

    pub(super) fn push(&mut self, line: &impl Line) {
        line.write_line(0, &mut self.lines);
        self.count += 1;
    }

    /// Appends the changes that came later.
    pub(super) fn append(&mut self, later: Self) {
        self.lines.extend_from_slice(&later.lines);
        self.count += later.count;
        self.completion = later.completion;
    }
}
