//! Writing of pending lines to the active segment, in batches.
//!
//! - The thread that holds the active segment writes for all: lines appended meanwhile go out with the next write.
//! - A new segment begins between two batches, when the last one has made the old segment large or old enough.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use super::active_segment::ActiveSegment;
use super::completion::{BatchCompletion, BatchResult};
use super::pending::{Batch, JournalStatus, PendingLines};
use crate::audit::format::segment;
use crate::audit::settings::{Durability, Settings};
use crate::clock;
use crate::metrics::AuditMetrics;

/// Capacity in bytes that a buffer keeps after its batch was written; more is given back.
const SPARE_CAPACITY: usize = 1 << 20;

/// Writer of a journal, shared by its handles and its threads.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    pub(crate) settings: Settings,
    pub(crate) metrics: AuditMetrics,
    /// Locked after `segment` where both are locked.
    pub(crate) pending: Mutex<PendingLines>,
    /// Wakes the committer: lines are pending, a sync is requested, or the journal is closed.
    pub(crate) wake: Condvar,
    pub(crate) segment: Mutex<ActiveSegment>,
    /// The last write failed.
    pub(crate) write_failed: AtomicBool,
    /// A sync has failed; this is final.
    pub(crate) sync_failed: AtomicBool,
}

impl JournalWriter {
    pub(crate) fn lock_pending(&self) -> MutexGuard<'_, PendingLines> {
        self.pending.lock().expect("nothing panics while it holds the pending lines")
    }

    pub(crate) fn lock_segment(&self) -> MutexGuard<'_, ActiveSegment> {
        self.segment.lock().expect("nothing panics while it holds the active segment")
    }

    /// Writes all pending lines, and begins a new segment when one is due. When it returns, the lines are as durable as
    /// configured.
    pub(crate) fn flush(&self, segment: &mut ActiveSegment) -> io::Result<()> {
        while let Some((batch, rotate)) = self.take_batch(segment) {
            if let Err(error) = segment.write_batch(&self.settings, &batch) {
                self.fail_batch(segment, &batch, &error);
                return Err(error);
            }
            if self.settings.durability == Durability::Synced {
                self.sync_batch(segment, &batch)?;
            }
            self.complete_batch(segment, batch);
            // The second round writes the header of the new segment, which waits already.
            if !rotate {
                break;
            }
        }
        Ok(())
    }

    /// Writes the pending lines, unless another thread has written those of `completion` while this one waited for the
    /// segment.
    pub(crate) fn flush_for(&self, completion: &BatchCompletion) -> BatchResult {
        let mut segment = self.lock_segment();
        completion.result().unwrap_or_else(|| {
            // An error reaches everyone whose lines it concerns through the completion.
            let _ = self.flush(&mut segment);
            completion.result().unwrap_or(BatchResult::Failed)
        })
    }

    /// Takes the next batch, and tells whether the header of a new segment waits to be written after it.
    ///
    /// The header is appended at the moment at which no lines are pending, so that it lists the uses that are open at
    /// its position.
    fn take_batch(&self, segment: &mut ActiveSegment) -> Option<(Batch, bool)> {
        let mut pending = self.lock_pending();
        // Rotation by age, without traffic.
        if pending.is_empty() && pending.status == JournalStatus::Running && segment.is_rotation_due(&self.settings, 0)
        {
            pending.begin_segment(&self.settings.gateway, clock::now());
        }
        (pending.status != JournalStatus::SyncFailed && !pending.is_empty()).then_some(())?;
        let batch = pending.take_batch(mem::take(&mut segment.spare));
        // A batch with a header begins a segment itself, and is not followed by another header.
        let due = !batch.header && segment.is_rotation_due(&self.settings, batch.lines.len() as u64);
        let rotate = due && pending.status == JournalStatus::Running;
        if rotate {
            pending.begin_segment(&self.settings.gateway, clock::now());
        }
        Some((batch, rotate))
    }

    fn complete_batch(&self, segment: &mut ActiveSegment, mut batch: Batch) {
        self.clear_write_failure();
        self.metrics.backlog.sub(batch.events);
        self.metrics.written.inc_by(batch.attempts);
        batch.completion.complete(BatchResult::Written);
        batch.lines.clear();
        batch.lines.shrink_to(SPARE_CAPACITY);
        segment.spare = batch.lines;
    }

    /// Notes that writing works again.
    pub(crate) fn clear_write_failure(&self) {
        // The load alone decides in the usual case, so that no request writes to a shared cache line.
        if self.write_failed.load(Ordering::Relaxed) && self.write_failed.swap(false, Ordering::Relaxed) {
            tracing::info!(path = %self.settings.path.display(), "the audit journal can be written again");
        }
    }

    /// Wakes the committer, if it sleeps.
    pub(crate) fn wake_committer(&self, pending: &mut PendingLines) {
        if mem::take(&mut pending.committer_asleep) {
            self.wake.notify_one();
        }
    }

    fn fail_batch(&self, segment: &mut ActiveSegment, batch: &Batch, error: &io::Error) {
        // Logged once per outage, not per request.
        if !self.write_failed.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, path = %self.settings.path.display(),
                "the audit journal cannot be written; check the disk's free space and the directory's permissions");
        }
        {
            let mut pending = self.lock_pending();
            pending.restore_failed_batch(batch);
            self.metrics.backlog.set(pending.events);
        }
        self.metrics.dropped.inc_by(batch.attempts);
        batch.completion.complete(BatchResult::Failed);
        segment.spare = Vec::new();
    }

    /// Syncs the batch that was just written. A failure is final: the kernel may have dropped the pages and forgotten
    /// the error, so a second sync could succeed without the data being on disk.
    fn sync_batch(&self, segment: &ActiveSegment, batch: &Batch) -> io::Result<()> {
        let directory = if batch.header { segment::sync_directory(&self.settings.path) } else { Ok(()) };
        directory.and_then(|()| segment.sync()).inspect_err(|error| self.fail_permanently(batch, error))
    }

    fn fail_permanently(&self, batch: &Batch, error: &io::Error) {
        tracing::error!(%error, path = %self.settings.path.display(),
            "the audit journal could not be synced and takes no records any more; check the disk, then restart");
        self.sync_failed.store(true, Ordering::Relaxed);
        let mut pending = self.lock_pending();
        pending.status = JournalStatus::SyncFailed;
        let waiting = pending.take_batch(Vec::new());
        drop(pending);
        batch.completion.complete(BatchResult::Failed);
        waiting.completion.complete(BatchResult::Failed);
    }
}
