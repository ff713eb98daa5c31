//! The maintenance thread: runs once a second, so that neither requests nor commits wait for its work.
//!
//! A closed segment is compressed, and one that is removed is read, in the idle scheduling class ([`idle_class`]): no
//! request waits for the core. Once more than two segments wait, or one for too long, that is done as all
//! else, and so are small segments.
//!
//! It closes a segment that has become too old, compresses, seals and indexes closed segments, and removes what
//! retention no longer keeps. While writing fails, it tests for free space, so that the gateway becomes ready
//! again without traffic.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use super::active_segment::ActiveSegment;
use super::age_limit::AgeLimit;
use super::writer::JournalWriter;
use super::{compression, damaged_tail, free_space, retention};
use crate::audit::format::segment::{self, Point};
use crate::audit::format::segment_event::Seal;
use crate::audit::format::{frame, seal};
use crate::audit::index::indexer::Indexer;
use domain::clock;
use platform::{disk, idle_class};

/// Pause between two runs.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the sender of `stop` is dropped.
pub(crate) fn run(writer: &JournalWriter, mut indexer: Indexer, stop: &Receiver<()>) -> Indexer {
    let mut ages = AgeLimit::default();
    loop {
        run_once(writer, (&mut indexer, &mut ages), stop);
        if stop.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return indexer;
        }
    }
}

fn run_once(writer: &JournalWriter, (indexer, ages): (&mut Indexer, &mut AgeLimit), stop: &Receiver<()>) {
    // After a failed sync the files are left as they are for the next start.
    if writer.mode.get().sync_failed() {
        return;
    }
    let end = {
        let mut segment = writer.lock_segment();
        rotate_or_probe(writer, &mut segment)
            .unwrap_or_else(|error| tracing::debug!(%error, "the audit journal still cannot be written"));
        Point { segment: segment.number, offset: segment.length }
    };
    // Only a start makes one; the operator may move it away.
    if writer.metrics.damaged_files.get() > 0 {
        damaged_tail::count_files(writer);
    }
    let proceed = || stop.try_recv() == Err(TryRecvError::Empty);
    // Before segments are compressed, which takes longer: it gives back the memory of the keys in them.
    index_closed_segments(writer, indexer, end, &proceed)
        .unwrap_or_else(|error| tracing::debug!(%error, "cannot list the audit segments to index them"));
    seal_closed_segments(writer, end.segment, &proceed);
    let space = free_space::check(writer);
    if let Err(error) = retention::remove_expired(writer, end, space, (indexer, ages)) {
        report_retention_failure(&error);
    }
}

fn index_closed_segments(
    writer: &JournalWriter,
    indexer: &mut Indexer,
    end: Point,
    proceed: &impl Fn() -> bool,
) -> io::Result<()> {
    if !indexer.has_unindexed(end) {
        indexer.recheck();
        indexer.check_and_clean(clock::now());
        return Ok(());
    }
    let segments = segment::list(&writer.settings.path)?;
    indexer.index_closed(&writer.live_index, &segments, end, proceed);
    Ok(())
}

fn report_retention_failure(error: &io::Error) {
    // A full disk was reported by the writer already.
    if disk::is_out_of_space(error) {
        tracing::debug!(%error, "cannot record the removal of expired audit segments yet");
    } else {
        tracing::warn!(%error, "cannot remove expired audit segments; trying again");
    }
}

/// Tests for free space while writing fails, and begins a new segment when the present one is old.
fn rotate_or_probe(writer: &JournalWriter, segment: &mut ActiveSegment) -> io::Result<()> {
    if writer.mode.get().write_fails() {
        segment.probe_space(&writer.settings)?;
        writer.clear_write_failure();
    }
    let now = clock::now();
    writer.lock_pending().advance(now);
    if segment.is_rotation_due(&writer.settings, 0, now) {
        writer.flush(segment)?;
    }
    Ok(())
}

/// Compresses and seals the segments that were closed.
fn seal_closed_segments(writer: &JournalWriter, current: u64, proceed: &impl Fn() -> bool) {
    let mut closed = unsealed_before(writer, current);
    while let Some(number) = closed.first().copied() {
        match compress_in_class(writer, number, proceed) {
            Ok(Some(seal)) => append_seal(writer, number, seal.as_ref()),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, segment = number, "cannot read a closed audit segment to seal it; trying again");
            }
        }
        closed = unsealed_before(writer, current).into_iter().filter(|other| *other > number).collect();
    }
}

/// The closed segments before this one that are not sealed yet. Segments from the current one on may still be written:
/// a header is pending before its segment is the active one.
fn unsealed_before(writer: &JournalWriter, current: u64) -> Vec<u64> {
    let unsealed: Vec<u64> =
        writer.lock_pending().segments.unsealed.iter().copied().filter(|number| *number < current).collect();
    writer.metrics.segments_waiting.set(i64::try_from(unsealed.len()).unwrap_or(i64::MAX));
    unsealed
}

/// Compresses a segment and computes its seal, in the idle class while few segments wait.
fn compress_in_class(
    writer: &JournalWriter,
    number: u64,
    proceed: &impl Fn() -> bool,
) -> io::Result<Option<Option<Seal<'static>>>> {
    let directory = &writer.settings.path;
    let is_oldest = number <= writer.lock_pending().segments.first;
    let work = |proceed: &dyn Fn() -> bool| compress_and_digest(directory, (number, is_oldest), proceed);
    let size = writer.settings.segment_size;
    idle_class::run("audit-compress", size, proceed, || writer.is_hurried(), work)
}

/// Compresses a segment and computes its seal; inside, `None` when the segment was removed. `None` when
/// there was no time, or no room.
fn compress_and_digest(
    directory: &Path,
    (number, is_oldest): (u64, bool),
    proceed: &dyn Fn() -> bool,
) -> io::Result<Option<Option<Seal<'static>>>> {
    let lines = match compression::compress_segment(directory, number, proceed) {
        Ok(Some(lines)) => Some(lines),
        Ok(None) => return Ok(None),
        // It was compressed before the last gateway ended, or was removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // It is tried again when there is room. Retention, which makes room, goes on meanwhile: it removes the oldest
        // segment first, once that is sealed.
        Err(error) if disk::is_out_of_space(&error) && !is_oldest => {
            tracing::debug!(%error, segment = number, "no room to compress a closed audit segment yet");
            return Ok(None);
        }
        // It stays as it is.
        Err(error) => {
            tracing::warn!(%error, segment = number, "cannot compress a closed audit segment; it stays uncompressed");
            None
        }
    };
    seal::compute(directory, number, lines).map(Some)
}

/// Appends the seal of a segment, or forgets a segment that was removed.
fn append_seal(writer: &JournalWriter, number: u64, seal: Option<&Seal<'_>>) {
    let mut pending = writer.lock_pending();
    let before = pending.events();
    if seal.is_none_or(|seal| frame::with_serialized(seal, |body| pending.append_line(&body)).is_some()) {
        pending.segments.unsealed.retain(|unsealed| *unsealed != number);
    }
    writer.metrics.backlog.add(pending.events() - before);
    writer.wake_committer(&mut pending);
}
