//! Writing of pending lines to the active segment, in batches.
//!
//! - The thread that holds the active segment writes for all: lines appended meanwhile go out with the next write.
//! - A new segment begins between two batches, when the last one has made the old segment large or old enough.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::active_segment::ActiveSegment;
use super::allocation::{self, Purpose};
use super::completion::{BatchCompletion, BatchResult};
use super::mode::{Action, Event, SharedMode};
use super::pending::{Batch, PendingLines, SpareBuffers};
use super::refusals::coalescer::RefusalCoalescer;
use super::signer::CheckpointSigner;
use super::use_guards::UseGuards;
use crate::audit::format::segment::Point;
use crate::audit::index::live_index::LiveIndex;
use crate::audit::settings::{Durability, Settings};
use domain::clock;
use platform::metrics::AuditMetrics;

/// Closed segments that may wait for an idle core.
const MAX_WAITING: usize = 2;

/// Writer of a journal, shared by its handles and its threads. Dropped with the last of them, after the committer has
/// written what was pending.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    pub(crate) settings: Settings,
    pub(crate) metrics: AuditMetrics,
    /// Read without a lock; [`JournalWriter::apply`] changes it.
    pub(crate) mode: SharedMode,
    /// Locked after `segment` where both are locked, and for no longer than an append.
    pub(crate) pending: Mutex<PendingLines>,
    /// Wakes the committer: lines are pending, a sync is requested, or the journal is closed.
    pub(crate) wake: Condvar,
    /// Locked by the thread that writes, for as long as it writes. Dropped, the file stays as it is.
    pub(crate) segment: Mutex<ActiveSegment>,
    /// The index of the open segment.
    pub(crate) live_index: Arc<LiveIndex>,
    /// Refusals that are counted and not written yet.
    pub(crate) refusals: RefusalCoalescer,
    /// A sync outside of a batch has failed while uses are only written; this is final ([`JournalWriter::note_sync`]).
    pub(crate) timed_sync_failed: AtomicBool,
    /// There is less free space than the low-water mark. Set by the maintenance.
    pub(crate) low_on_space: AtomicBool,
    /// Set by the shippers, read by retention. The first segment that a sink has not taken: 0 until their positions are
    /// known, `u64::MAX` when no sink needs any.
    pub(crate) needed_from: AtomicU64,
    /// Guards of uses that a predecessor still serves. Each is dropped when its use ends.
    pub(crate) predecessor_uses: UseGuards,
    /// The end of what a timed sync has brought to disk; read by the checkpoint thread.
    pub(crate) synced: Mutex<Point>,
    /// The oldest segment whose lines are to be hashed for checkpoints, and which stays until they are. Set by the
    /// checkpoint thread, read by retention.
    pub(crate) first_unhashed: AtomicU64,
    /// `None` without checkpoints.
    pub(crate) checkpoints: Option<CheckpointSigner>,
}

/// Result of taking a batch.
enum NextBatch {
    /// No lines are pending.
    None,
    /// A batch, and whether the header of a new segment waits to be written after it.
    Taken(Batch, bool),
    /// Space for this many bytes must be allocated first; with a header, in the next segment.
    NeedsRoom { header: bool, bytes: u64 },
    /// The next segment must be created first.
    NeedsSegment,
}

impl JournalWriter {
    pub(crate) fn lock_pending(&self) -> MutexGuard<'_, PendingLines> {
        self.pending.lock()
    }

    /// True when more closed segments wait to be packed than may wait for an idle core.
    pub(crate) fn is_hurried(&self) -> bool {
        self.lock_pending().segments.unsealed.len() > MAX_WAITING
    }

    pub(crate) fn lock_segment(&self) -> MutexGuard<'_, ActiveSegment> {
        self.segment.lock()
    }

    /// Writes all pending lines, and begins a new segment when one is due. When it returns, the lines are as durable as
    /// configured.
    ///
    /// # Errors
    /// When not all lines could be written. Changes by management may have been written nevertheless, into the reserve.
    pub(crate) fn flush(&self, segment: &mut ActiveSegment) -> io::Result<()> {
        self.flush_for_purpose(segment, Purpose::Use)
    }

    /// As [`JournalWriter::flush`], and may use that part of the reserve that is for the purpose.
    pub(crate) fn flush_for_purpose(&self, segment: &mut ActiveSegment, purpose: Purpose) -> io::Result<()> {
        loop {
            let taken = self.take_batch(segment, purpose);
            let Some((batch, rotate)) = taken.inspect_err(|error| self.write_changes(segment, error))? else {
                return Ok(());
            };
            self.write_batch(segment, batch, false)?;
            // The second round writes the header of the new segment, which waits already.
            if !rotate {
                return Ok(());
            }
        }
    }

    /// Writes the changes by management into the reserve, as there is no room for other lines. Those who wait for other
    /// lines are told so.
    fn write_changes(&self, segment: &mut ActiveSegment, error: &io::Error) {
        self.set_write_failure(error);
        let without_room = {
            let mut pending = self.lock_pending();
            let without_room = pending.take_changes();
            let taken = without_room.changes.as_ref().map_or(0, |batch| batch.events);
            self.metrics.backlog.set(pending.events() + taken);
            without_room
        };
        self.metrics.dropped.inc_by(without_room.refused.attempts);
        without_room.refused.complete(BatchResult::Failed);
        let Some(batch) = without_room.changes else { return };
        // A failure reaches those who wait through the completion of the batch.
        if segment.room(batch.header, Purpose::Change) >= batch.lines.len() as u64 {
            let _ = self.write_batch(segment, batch, true);
        } else {
            self.restore_batch(&batch);
            batch.complete(BatchResult::Failed);
        }
        let is_scarce = segment.room(false, Purpose::Change) < allocation::RESERVE / 2;
        self.apply(Event::ReserveUsed { is_scarce }, None);
    }

    /// Writes the pending lines, unless another thread has written those of `completion` while this one waited for the
    /// segment.
    pub(crate) fn flush_for(&self, completion: &BatchCompletion) -> BatchResult {
        if let Some(result) = completion.result() {
            return result;
        }
        let mut segment = self.lock_segment();
        completion.result().unwrap_or_else(|| {
            // An error reaches everyone whose lines it concerns through the completion.
            let _ = self.flush(&mut segment);
            completion.result().unwrap_or(BatchResult::Failed)
        })
    }

    /// Takes the next batch, for which there is room, and tells whether the header of a new segment waits to be written
    /// after it.
    fn take_batch(&self, segment: &mut ActiveSegment, purpose: Purpose) -> io::Result<Option<(Batch, bool)>> {
        loop {
            // Files are created and extended without the lock of the pending lines, so that others
            // can append meanwhile.
            match self.try_take_batch(segment, purpose) {
                NextBatch::None => return Ok(None),
                NextBatch::Taken(batch, rotate) => return Ok(Some((batch, rotate))),
                NextBatch::NeedsRoom { header, bytes } => segment.reserve(&self.settings, header, bytes)?,
                // On failure, which is logged, the present segment is continued for a while.
                NextBatch::NeedsSegment => drop(segment.prepare_next(&self.settings)),
            }
        }
    }

    /// Takes the next batch if there is room for it.
    ///
    /// The header is appended at the moment at which no lines are pending, so that it lists the uses that are open at
    /// its position.
    fn try_take_batch(&self, segment: &mut ActiveSegment, purpose: Purpose) -> NextBatch {
        let mut pending = self.lock_pending();
        let mode = self.mode.get();
        // A batch with a header begins a segment itself, and is not followed by another header.
        let due = mode.takes_lines()
            && !pending.has_header()
            && segment.is_rotation_due(&self.settings, pending.size(), pending.time);
        if due && !segment.has_next() {
            return NextBatch::NeedsSegment;
        }
        // Rotation by age, without traffic.
        if due && pending.is_empty() {
            self.begin_segment(&mut pending);
        }
        if mode.sync_failed() || pending.is_empty() {
            return NextBatch::None;
        }
        if segment.room(pending.has_header(), purpose) < pending.size() {
            return NextBatch::NeedsRoom { header: pending.has_header(), bytes: pending.size() };
        }
        let batch = pending.take_batch(mem::take(&mut segment.spare));
        let rotate = due && !batch.header;
        if rotate {
            self.begin_segment(&mut pending);
        }
        NextBatch::Taken(batch, rotate)
    }

    /// Begins a new segment, whose header is a pending line as others are.
    fn begin_segment(&self, pending: &mut PendingLines) {
        pending.begin_segment(&self.settings.gateway, clock::now());
        self.metrics.backlog.inc();
    }

    /// Notes that writing works again.
    pub(crate) fn clear_write_failure(&self) {
        if self.mode.get().write_fails() {
            self.apply(Event::Written, None);
        }
    }

    /// Wakes the committer, if it sleeps.
    pub(crate) fn wake_committer(&self, pending: &mut PendingLines) {
        if mem::take(&mut pending.committer_asleep) {
            self.wake.notify_one();
        }
    }

    /// Notes that writing fails.
    pub(crate) fn set_write_failure(&self, error: &io::Error) {
        if !self.mode.get().write_fails() {
            self.apply(Event::WriteFailed, Some(error));
        }
    }

    /// Notes the result of a sync (fsync) outside of a batch. A failure is final, whichever thread meets it: the kernel
    /// reports it once and may have dropped the pages, so that a later sync succeeds without them.
    pub(crate) fn note_sync(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|error| {
            self.metrics.sync_failures.inc();
            if self.settings.durability == Durability::Synced {
                self.apply(Event::SyncFailed, Some(error));
            } else if !self.timed_sync_failed.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, path = %self.settings.path.display(),
                    "the audit journal cannot be synced and is not synced any more; the loss of power may take all \
                     records since the last sync; check the disk, then restart");
            }
        })
    }

    /// Returns whether a sync has failed, so that it is not known which records are on disk.
    pub(crate) fn has_failed_sync(&self) -> bool {
        self.timed_sync_failed.load(Ordering::Relaxed) || self.mode.get().sync_failed()
    }

    /// Makes the transition of an event, and performs its actions. `error` is the reason of a failure.
    pub(crate) fn apply(&self, event: Event, error: Option<&io::Error>) {
        let mut pending = self.lock_pending();
        let mut waiting = None;
        for action in pending.change_mode(event) {
            let error = error.map(tracing::field::display);
            let path = self.settings.path.display();
            match action {
                Action::LogFailure => tracing::error!(error, %path,
                    "the audit journal cannot be written; check the disk's free space and the directory's permissions"),
                Action::LogRecovery => tracing::info!(%path, "the audit journal can be written again"),
                Action::LogSyncFailure => tracing::error!(error, %path,
                    "the audit journal could not be synced and takes no records any more; check the disk, then \
                     restart"),
                Action::FailPending => waiting = Some(pending.take_batch(SpareBuffers::default())),
                Action::WakeCommitter => drop(self.wake.notify_one()),
            }
        }
        drop(pending);
        if let Some(waiting) = waiting {
            waiting.complete(BatchResult::Failed);
        }
    }
}
