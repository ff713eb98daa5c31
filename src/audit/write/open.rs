//! Opening a journal: takes the lock, closes what the last gateway left open, and starts the threads.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::active_segment::ActiveSegment;
use super::pending::PendingLines;
use super::recovery::{self, RecoveredJournal};
use super::refusals::coalescer::RefusalCoalescer;
use super::refusals::flusher;
use super::writer::JournalWriter;
use super::{committer, free_space, maintenance, retention};
use crate::audit::error::OpenError;
use crate::audit::format::event::OutcomeEvent;
use crate::audit::format::record::Outcome;
use crate::audit::format::segment::{LOCK, Point};
use crate::audit::index::indexer::Indexer;
use crate::audit::index::live_index::LiveIndex;
use crate::audit::index::segment_index;
use crate::audit::settings::Settings;
use crate::clock;
use crate::disk;
use crate::metrics::AuditMetrics;

/// Number of attempts to take the lock, 50 ms apart: `audit verify` holds it for an instant to see whether a gateway
/// does.
const LOCK_ATTEMPTS: u32 = 20;

/// Threads and lock of a journal that is not closed.
#[derive(Debug)]
pub(crate) struct RunningThreads {
    pub(crate) maintenance: JoinHandle<Indexer>,
    /// Dropping this ends the maintenance thread.
    pub(crate) stop_maintenance: Sender<()>,
    pub(crate) committer: JoinHandle<()>,
    /// Writes the records of coalesced refusals.
    pub(crate) refusals: JoinHandle<()>,
    /// Held until all threads have ended.
    pub(crate) lock: File,
}

/// Locks the journal against other writers.
pub(crate) fn lock_directory(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let failed = |source| OpenError::Io { path: path.clone(), source };
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Err(OpenError::InUse { path })
}

/// Continues the journal where it ends: closes the open uses as aborted, and begins a new segment when the last one
/// belongs to a gateway of another name. Returns the writer and the index.
pub(crate) fn resume_journal(settings: Settings, metrics: AuditMetrics) -> io::Result<(JournalWriter, Indexer)> {
    let RecoveredJournal { segment, gateway, next, open, ended, unsealed, first, first_present } =
        recovery::recover(&settings.path)?;
    let end = Point { segment: segment.number, offset: segment.length };
    let indexer = Indexer::new(&settings.path, end, settings.segment_size);
    let live_index = LiveIndex::new(indexer.recover(end, segment_index::owners(open.values()))?);
    // The gateway's name is in the header, so it must be the same for all records of a segment.
    let needs_segment = segment.file.is_none() || gateway != settings.gateway;
    let number = segment.number;
    let mut pending = PendingLines::new(number, next, open, unsealed);
    pending.ended = ended;
    match first {
        Some(first) => pending.first_segment = first,
        // A version that did not record removals has written the journal: what is there now counts as its beginning.
        None => retention::append_baseline(&mut pending, first_present),
    }
    let aborted = pending.close_open_uses(|open| OutcomeEvent::bare(open.id, Outcome::Aborted));
    if aborted > 0 {
        tracing::warn!(uses = aborted, "recorded as aborted the uses that the last gateway left open");
    }
    let (refusals, left) = RefusalCoalescer::open(&settings.path, settings.refusals);
    let writer = JournalWriter {
        settings,
        metrics,
        pending: Mutex::new(pending),
        wake: Condvar::new(),
        segment: Mutex::new(ActiveSegment::new(segment)),
        live_index: Arc::new(live_index),
        refusals,
        write_failed: AtomicBool::new(false),
        sync_failed: AtomicBool::new(false),
        reserve_scarce: AtomicBool::new(false),
        low_on_space: AtomicBool::new(false),
    };
    continue_segment(&writer, number, needs_segment)?;
    flusher::recover(&writer, left)?;
    writer.metrics.backlog.set(writer.lock_pending().events);
    free_space::check(&writer);
    Ok((writer, indexer))
}

/// Writes what is pending, and begins a new segment when one is needed. A full disk is no error: the journal starts all the
/// same, refuses or drops uses as configured, and writes what is pending when there is room.
fn continue_segment(writer: &JournalWriter, number: u64, needs_segment: bool) -> io::Result<()> {
    let mut segment = writer.lock_segment();
    let flushed = writer.flush(&mut segment);
    // Lines of the last gateway that could not be written must not get into a segment of this one.
    let is_blocked = needs_segment && !writer.lock_pending().is_empty();
    flushed.or_else(|error| if disk::is_out_of_space(&error) && !is_blocked { Ok(()) } else { Err(error) })?;
    // The gateway is not ready then, until the maintenance thread finds space.
    if segment.is_out_of_space() {
        writer.set_write_failure(&io::ErrorKind::StorageFull.into());
    }
    // The flush may have begun a new segment already, by size or age.
    if needs_segment && segment.number == number {
        writer.lock_pending().begin_segment(&writer.settings.gateway, clock::now());
        writer.flush(&mut segment).or_else(|error| if disk::is_out_of_space(&error) { Ok(()) } else { Err(error) })?;
    }
    Ok(())
}

/// Starts the threads of a journal.
pub(crate) fn start_threads(writer: &Arc<JournalWriter>, indexer: Indexer, lock: File) -> io::Result<RunningThreads> {
    let (stop_maintenance, stopped) = mpsc::channel();
    let for_committer = Arc::clone(writer);
    let for_maintenance = Arc::clone(writer);
    let for_refusals = Arc::clone(writer);
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let committer = thread("audit-commit").spawn(move || committer::run(&for_committer))?;
    let maintenance = thread("audit-maintain").spawn(move || maintenance::run(&for_maintenance, indexer, &stopped))?;
    let refusals = thread("audit-refusals").spawn(move || flusher::run(&for_refusals))?;
    Ok(RunningThreads { maintenance, stop_maintenance, committer, refusals, lock })
}
