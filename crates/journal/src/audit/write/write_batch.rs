//! Writing of one batch to the active segment: performs the steps of [`BatchSteps`].

use std::io;
use std::mem;
use std::sync::Arc;

use super::active_segment::ActiveSegment;
use super::batch_steps::{BatchAction, BatchSteps};
use super::completion::BatchResult;
use super::mode::Event;
use super::pending::{Batch, SpareBuffers};
use super::writer::JournalWriter;
use crate::audit::format::segment::Point;
use crate::files;

/// Capacity in bytes that a buffer keeps after its batch was written; more is given back.
const SPARE_CAPACITY: usize = 1 << 20;
/// Events of the index for which room is kept: those of about as many bytes.
const SPARE_EVENTS: usize = 1 << 13;

impl JournalWriter {
    /// Performs the steps of a batch.
    pub(super) fn write_batch(
        &self,
        segment: &mut ActiveSegment,
        mut batch: Batch,
        is_in_reserve: bool,
    ) -> io::Result<()> {
        let (mut steps, mut actions) = BatchSteps::begin(self.settings.durability, is_in_reserve);
        let mut result = Ok(());
        while let [action, rest @ ..] = actions {
            actions = rest;
            match action {
                BatchAction::Write => {
                    result = segment.write_batch(&self.settings, &batch);
                    actions = steps.step(result.is_ok());
                }
                BatchAction::Sync => {
                    result = self.sync_batch(segment, &batch);
                    actions = steps.step(result.is_ok());
                }
                // The load alone decides in the usual case, so that no request writes to a shared cache line.
                BatchAction::ChangeMode(Event::Written) => self.clear_write_failure(),
                BatchAction::ChangeMode(event) => self.apply(*event, result.as_ref().err()),
                BatchAction::Restore => self.restore_batch(&batch),
                BatchAction::WithdrawUnsynced => segment.withdraw_unsynced(&batch),
                BatchAction::Complete(BatchResult::Written) => self.complete_batch(segment, &mut batch),
                BatchAction::Complete(BatchResult::Failed) => {
                    batch.complete(BatchResult::Failed);
                    segment.spare = SpareBuffers::default();
                }
            }
        }
        result
    }

    fn complete_batch(&self, segment: &mut ActiveSegment, batch: &mut Batch) {
        let length = batch.lines.len() as u64;
        let at = Point { segment: segment.number, offset: segment.length - length };
        // Before those who wait are told: what has been answered is counted.
        self.live_index.add_batch(at, length, &batch.indexed);
        self.metrics.backlog.sub(batch.events);
        self.metrics.written.inc_by(batch.attempts);
        batch.complete(BatchResult::Written);
        batch.lines.clear();
        batch.lines.shrink_to(SPARE_CAPACITY);
        batch.indexed.clear();
        batch.indexed.shrink_to(SPARE_EVENTS);
        segment.spare = SpareBuffers {
            lines: mem::take(&mut batch.lines),
            indexed: mem::take(&mut batch.indexed),
            completion: Some(Arc::clone(&batch.completion)),
        };
    }

    /// Takes a batch back that could not be written.
    pub(super) fn restore_batch(&self, batch: &Batch) {
        let mut pending = self.lock_pending();
        pending.restore_failed_batch(batch);
        self.metrics.backlog.set(pending.events());
        self.metrics.dropped.inc_by(batch.attempts);
    }

    /// Syncs the batch that was just written. A failure is final: the kernel may have dropped the pages and forgotten
    /// the error, so a second sync could succeed without the data being on disk.
    fn sync_batch(&self, segment: &ActiveSegment, batch: &Batch) -> io::Result<()> {
        let directory = if batch.header { files::sync_directory(&self.settings.path) } else { Ok(()) };
        directory.and_then(|()| segment.sync()).inspect_err(|_| self.metrics.sync_failures.inc())
    }
}
