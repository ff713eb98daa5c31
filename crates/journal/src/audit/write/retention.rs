//! Retention: removes closed segments that are too old or, together, too large.
//!
//! - Sizes are those of the files: a compressed segment has that of the compressed file.
//!   All else in the directory counts, too, up to half of the limit. Ages are judged by several clocks, twice
//!   ([`super::age_limit`]).
//! - Segments are removed from the oldest on, never one after one that stays: what is left has no gap.
//! - A segment stays until it is sealed, and hashed for checkpoints. An open use keeps none: its beginning is written
//!   again, to the active segment.
//! - Segments that a sink has not taken stay, up to a size of their own ([`super::needed_segments`]).
//! - Each removal is recorded before the file is removed, with its reason and the digest of the segment; both are on
//!   disk by then. `audit verify` reports segments that are missing without such a record. Each is logged.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use super::age_limit::{AgeLimit, Look};
use super::allocation::Purpose;
use super::free_space;
use super::needed_segments::NeededSegments;
use super::pending::PendingLines;
use super::writer::JournalWriter;
use crate::audit::format::event::UseEvent;
use crate::audit::format::line::{self, EventKind};
use crate::audit::format::segment::{self, Point, SegmentFile};
use crate::audit::format::segment_event::{Expired, ExpiryReason, Seal};
use crate::audit::format::source::SegmentSource;
use crate::audit::format::{decode, frame, pieces, seal};
use crate::audit::index::indexer::Indexer;
use crate::files;
use domain::clock::{self, Micros};
use platform::disk::VolumeSpace;
use platform::idle_class;

/// Bytes of the beginning of a use, about.
const USE_LENGTH: u64 = 256;
/// Size of all segments together below which retention by size does not pause for open uses.
const MIN_SIZE: u64 = 1 << 20;
/// Missing segments that are recorded at a time.
const MAX_MISSING: u64 = 100;
/// Error of a reading that has given up.
const GIVEN_UP: io::ErrorKind = io::ErrorKind::TimedOut;
/// Bytes of segments that are removed in one round, so that sealing and indexing go on between rounds.
const BYTES_PER_ROUND: u64 = 1 << 30;

/// Removes expired segments and their index. `end` is the end of the journal; `space` is that of the volume, if known.
pub(crate) fn remove_expired(
    writer: &JournalWriter,
    end: Point,
    space: Option<VolumeSpace>,
    (indexer, ages): (&mut Indexer, &mut AgeLimit),
) -> io::Result<()> {
    let current = end.segment;
    let segments = segment::list_files(&writer.settings.path)?;
    let other = free_space::other_files(&writer.settings.path, &segments)?;
    let required = oldest_unsealed(writer).min(current).min(writer.first_unhashed.load(Ordering::Relaxed));
    let look = look(writer);
    let first_young = writer.settings.retention_age.map_or(0, |age| ages.first_kept(&segments, age, look));
    let limits = RetentionLimits::new(writer, (&segments, other), space, first_young);
    let first = writer.lock_pending().segments.first;
    let needed = NeededSegments::new(writer, &segments);
    let mut bytes = 0;
    for (segment, reason) in needed.keep(select_expired(&segments, required, limits)) {
        if segment.number >= first && bytes < BYTES_PER_ROUND {
            record_removal(writer, segment.number, reason)?;
            if reason == ExpiryReason::Age {
                ages.note_removal();
            }
            log_removal(writer, &segment, reason, look);
            needed.report_removal(writer, segment.number);
            bytes += segment.size;
        }
    }
    remove_recorded(writer, &segments, required.min(end.segment), indexer)
}

/// Reads the clocks.
fn look(writer: &JournalWriter) -> Look {
    let newest = writer.lock_pending().newest;
    Look { clock: clock::now(), wall: Micros::wall(), newest, steady: clock::steady() }
}

fn log_removal(writer: &JournalWriter, segment: &SegmentFile, reason: ExpiryReason, look: Look) {
    tracing::info!(segment = segment.number, ?reason, bytes = segment.size, age_seconds = look.age(segment).as_secs(),
        path = %writer.settings.path.display(), "removing an audit segment (audit.retention)");
}

/// The oldest segment without a seal.
fn oldest_unsealed(writer: &JournalWriter) -> u64 {
    writer.lock_pending().segments.unsealed.iter().copied().min().unwrap_or(u64::MAX)
}

/// Appends the record of a removal, and the beginnings of the uses that are open and begin in the segment.
fn record_removal(writer: &JournalWriter, number: u64, reason: ExpiryReason) -> io::Result<()> {
    let directory = &writer.settings.path;
    let open: FxHashSet<u128> = {
        let pending = writer.lock_pending();
        pending.open.iter().filter(|(_, open)| open.segment == number).map(|(id, _)| *id).collect()
    };
    let read = |proceed: &dyn Fn() -> bool| read_removed(directory, number, &open, proceed);
    let hurries = || writer.is_hurried();
    let removed = idle_class::run("audit-remove", writer.settings.segment_size, || true, hurries, read)?;
    let Removed { next, digest, open } = removed.expect("it goes on until it is done");
    open.iter().for_each(|line| carry_use(writer, line, number));
    let mut pending = writer.lock_pending();
    let before = pending.events();
    // Segments before this one that are neither there nor recorded were removed by something else.
    for missing in pending.segments.first.max(number.saturating_sub(MAX_MISSING))..number {
        append_expired(&mut pending, &Expired::new(missing, ExpiryReason::Missing, clock::now()));
    }
    let (lines, sha256) = digest.map_or((None, None), |seal| (Some(seal.lines), Some(seal.sha256)));
    append_expired(&mut pending, &Expired { lines, sha256, next, ..Expired::new(number, reason, clock::now()) });
    writer.metrics.backlog.add(pending.events() - before);
    Ok(())
}

/// Facts to record of a segment that is removed.
struct Removed {
    /// Number of the line behind it.
    next: Option<u64>,
    digest: Option<Seal<'static>>,
    /// Lines of the uses that begin in it and are open.
    open: Vec<Vec<u8>>,
}

/// Reads a segment that is to be removed, and the lines of these uses that begin in it; `None` when `proceed` said no.
fn read_removed(
    directory: &Path,
    number: u64,
    open: &FxHashSet<u128>,
    proceed: &dyn Fn() -> bool,
) -> io::Result<Option<Removed>> {
    let (mut next, mut lines, mut carried) = (None, 0, Vec::new());
    let each = |_, line: &[u8]| {
        lines += 1;
        let begins = matches!(line::event_kind(line), Some(EventKind::Use | EventKind::Carried));
        // Every number is read, because the last line's is wanted; a removal is rare.
        next = frame::verify_line(line).map(|n| n + 1).or(next);
        if line::event_id(line).is_some_and(|id| begins && open.contains(&id)) {
            carried.push(line.to_vec());
        }
    };
    // A damaged segment goes like any other: one that stayed would keep all later ones.
    match files::if_intact(read_lines(directory, number, each, proceed)) {
        // A disk can fail with the same error.
        Err(error) if error.kind() == GIVEN_UP && !proceed() => return Ok(None),
        read => read?,
    };
    let digest = seal::compute(directory, number, Some(lines))?;
    Ok(Some(Removed { next, digest, open: carried }))
}

/// Calls `each` with the lines of a segment and their offsets; fails with [`GIVEN_UP`] when `proceed` said no.
fn read_lines(
    directory: &Path,
    number: u64,
    each: impl FnMut(u64, &[u8]),
    proceed: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut source = SegmentSource::open(directory, number)?.ok_or(io::ErrorKind::NotFound)?;
    let read_at = |out: &mut [u8], at| if proceed() { source.read_at(out, at) } else { Err(GIVEN_UP.into()) };
    pieces::for_each_line(read_at, each).map(drop)
}

/// Appends the beginning of a use again, unless its line is damaged.
fn carry_use(writer: &JournalWriter, line: &[u8], number: u64) {
    let Some(begun) = decode::verified_use(line) else { return };
    let id = begun.id;
    let carried = UseEvent { e: EventKind::Carried, from: Some(number), ..begun };
    if frame::with_serialized(&carried, |body| writer.lock_pending().append_carried(&body, id)) {
        writer.metrics.backlog.inc();
    }
}

fn append_expired(pending: &mut PendingLines, expired: &Expired<'_>) {
    frame::with_serialized(expired, |body| pending.append_expired(&body, expired.segment));
}

/// Removes the segments whose removal is recorded, once the records are on disk. A segment that a crash has
/// left over is among them.
fn remove_recorded(
    writer: &JournalWriter,
    segments: &[SegmentFile],
    required: u64,
    indexer: &mut Indexer,
) -> io::Result<()> {
    let first = writer.lock_pending().segments.first.min(required);
    let recorded: Vec<u64> = segments.iter().map(|segment| segment.number).filter(|number| *number < first).collect();
    let Some(last) = recorded.last() else { return Ok(()) };
    write_records(writer)?;
    // The usage of keys outlives the segments. If it cannot be stored, as on a full disk, making room goes first.
    if !indexer.has_counted(*last) {
        tracing::debug!(segment = last, "removing audit segments whose usage could not be stored");
    }
    recorded.iter().try_for_each(|number| segment::remove(&writer.settings.path, *number))?;
    indexer.remove_segments(0..last + 1);
    Ok(())
}

/// Writes and syncs all pending lines. Removing a segment makes room, so these lines may use a part of the reserve.
fn write_records(writer: &JournalWriter) -> io::Result<()> {
    let file = {
        let mut segment = writer.lock_segment();
        writer.flush_for_purpose(&mut segment, Purpose::Removal)?;
        // After a failed sync nothing is written any more.
        if writer.mode.get().sync_failed() {
            return Err(io::ErrorKind::Other.into());
        }
        segment.file.as_ref().map(File::try_clone).transpose()?
    };
    // Requests write on meanwhile.
    writer.note_sync(file.map_or(Ok(()), |file| file.sync_data()))
}

/// Age and size beyond which segments are removed.
#[derive(Clone, Copy)]
struct RetentionLimits {
    /// The first segment that is not removed because of its age.
    first_young: u64,
    /// Bytes of all segments together. Records do not make way for counts: at least half of what is
    /// configured.
    size: Option<u64>,
    /// The reason to record for a removal by size.
    size_reason: ExpiryReason,
}

impl RetentionLimits {
    /// `other` is the size of the files that belong to no segment.
    fn new(
        writer: &JournalWriter,
        (segments, other): (&[SegmentFile], u64),
        space: Option<VolumeSpace>,
        first_young: u64,
    ) -> Self {
        let settings = &writer.settings;
        let journal = other + segments.iter().map(|segment| segment.size).sum::<u64>();
        let by_volume = space.filter(|_| settings.retention_by_volume);
        let limit =
            by_volume.map(|space| free_space::default_limit(space, journal, settings.low_water.bytes(space.total)));
        let size_reason = if limit.is_some() { ExpiryReason::Volume } else { ExpiryReason::Size };
        let size = settings.retention_size.or(limit);
        let open = writer.lock_pending().open.len();
        let was_paused = writer.metrics.retention_paused.get() != 0;
        let is_paused = size.is_some_and(|size| is_taken_up(size, open, was_paused));
        note_pause(writer, is_paused, open);
        let left = |size: u64| size.saturating_sub(other).max(size / 2);
        Self { first_young, size: size.filter(|_| !is_paused).map(left), size_reason }
    }
}

/// True when the beginnings of open uses take up half of the size that the segments may have together: each removal
/// would write them again, and so go round in circles. Once true, until they take up a tenth less, so that a number
/// that hovers there is not reported again and again.
fn is_taken_up(size: u64, open: usize, was_taken_up: bool) -> bool {
    let half = size.max(MIN_SIZE) / 2;
    open as u64 * USE_LENGTH > if was_taken_up { half - half / 10 } else { half }
}

/// Logs that retention by size pauses, or that it goes on, once for each change.
fn note_pause(writer: &JournalWriter, is_paused: bool, open: usize) {
    let was_paused = writer.metrics.retention_paused.get() != 0;
    writer.metrics.retention_paused.set(i64::from(is_paused));
    let path = writer.settings.path.display();
    if is_paused && !was_paused {
        tracing::warn!(open, %path,
            "retention of the audit journal by size pauses: open requests take up half of the size; raise \
             `audit.retention.size`, or see why so many requests stay open");
    } else if was_paused && !is_paused {
        tracing::info!(open, %path, "retention of the audit journal by size goes on");
    }
}

/// Selects the segments to remove, with the reasons. `segments` are all segments, oldest first; `required` is the
/// oldest one that must stay.
fn select_expired(
    segments: &[SegmentFile],
    required: u64,
    limits: RetentionLimits,
) -> Vec<(SegmentFile, ExpiryReason)> {
    let mut total: u64 = segments.iter().map(|segment| segment.size).sum();
    let mut expired = Vec::new();
    for segment in segments.iter().take_while(|segment| segment.number < required) {
        let too_old = segment.number < limits.first_young;
        let too_large = limits.size.is_some_and(|limit| total > limit);
        // The first segment that stays keeps all later ones.
        if !too_old && !too_large {
            break;
        }
        total -= segment.size;
        expired.push((*segment, if too_old { ExpiryReason::Age } else { limits.size_reason }));
    }
    expired
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn open_uses_take_up_the_size_from_its_half_on() {
        let size = 100 * MIN_SIZE;
        let half = usize::try_from(size / 2 / USE_LENGTH).unwrap();
        assert!(is_taken_up(size, half + 1, false) && !is_taken_up(size, half, false));
        assert!(is_taken_up(size, half, true) && !is_taken_up(size, half * 9 / 10, true));
        assert!(is_taken_up(0, half / 100 + 1, false) && !is_taken_up(0, half / 100, false), "as of 1 MiB");
    }

    #[test]
    fn oldest_segments_are_removed_first_and_required_ones_stay() {
        let of = |number| SegmentFile { number, is_compressed: false, size: 10, modified: SystemTime::UNIX_EPOCH };
        let segments = [of(1), of(2), of(3), of(4)];
        let limits = |first_young, size| RetentionLimits { first_young, size, size_reason: ExpiryReason::Size };
        let select_expired = |required, limits| -> Vec<u64> {
            select_expired(&segments, required, limits).into_iter().map(|(segment, _)| segment.number).collect()
        };
        assert_eq!(select_expired(4, limits(3, None)), [1, 2]);
        assert_eq!(select_expired(2, limits(3, None)), [1]);
        assert_eq!(select_expired(4, limits(0, Some(15))), [1, 2, 3]);
        assert_eq!(select_expired(4, limits(0, Some(25))), [1, 2], "what is removed makes room");
        assert_eq!(select_expired(4, limits(2, Some(25))), [1, 2], "of age and size");
        assert_eq!(select_expired(4, limits(0, Some(40))), [0; 0]);
        assert_eq!(select_expired(1, limits(9, Some(0))), [0; 0]);
        assert_eq!(select_expired(4, limits(0, None)), [0; 0]);
    }
}
