//! A batch: lines that are written together.

use std::sync::Arc;

use crate::audit::index::live_index::PlacedEvent;
use crate::audit::write::completion::{BatchCompletion, BatchResult};

/// Lines that were taken to be written together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) lines: Vec<u8>,
    /// The events among the lines that the index needs.
    pub(crate) indexed: Vec<PlacedEvent>,
    /// The number of the first line.
    pub(super) first: u64,
    pub(crate) events: i64,
    /// True when the lines begin with a header, and so with a new segment.
    pub(crate) header: bool,
    /// Attempts with unknown keys among the events.
    pub(crate) attempts: u64,
    /// Offset at which the lines of changes by management begin.
    pub(super) changes_from: usize,
    pub(super) completion: Arc<BatchCompletion>,
    /// The completion of the changes; `None` without changes.
    pub(super) change_completion: Option<Arc<BatchCompletion>>,
}

/// Empty buffers that keep their capacity from one batch to the next.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers {
    pub(crate) lines: Vec<u8>,
    pub(crate) indexed: Vec<PlacedEvent>,
}

impl Batch {
    /// Tells all who wait for a line of this batch.
    pub(crate) fn complete(&self, result: BatchResult) {
        self.completion.complete(result);
        self.change_completion.iter().for_each(|completion| completion.complete(result));
    }
}
