//! Position of the journal: for those who replay its uses, and write down what they have counted
//! before a part of it goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::journal::Journal;

/// Position of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// Number of the segment that is written. Segments before it are closed, and may be removed.
    pub segment: u64,
    /// Number of the next line, over all segments.
    pub line: u64,
    /// Uses that could not be recorded since the start. They were refused or dropped after they were decided.
    pub lost: u64,
}

impl Journal {
    /// Returns a function that reads the position of the journal; none while uses cannot be recorded or synced. It does
    /// not keep the journal open.
    pub fn position_probe(&self) -> impl Fn() -> Option<JournalPosition> + Send + use<> {
        let handle = Arc::downgrade(&self.handle);
        move || {
            let handle = handle.upgrade()?;
            // Lines that are not synced each second may be gone after the loss of power, and with
            // them the uses to count.
            let mode = handle.writer.mode.get();
            let is_synced = !handle.writer.timed_sync_failed.load(Ordering::Relaxed);
            let metrics = &handle.writer.metrics;
            let lost = metrics.refused.get() + metrics.dropped.get();
            let pending = handle.writer.lock_pending();
            // A closed journal has every use up to its end.
            let works = is_synced && !mode.write_fails() && !mode.sync_failed();
            works.then_some(JournalPosition { segment: pending.segments.current, line: pending.next, lost })
        }
    }
}
