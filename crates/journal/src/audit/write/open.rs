//! Opening a journal: takes the lock, closes what the last gateway left open, and starts the threads.

use std::fs::{File, TryLockError};
use std::io;
use std::mem;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::active_segment::{ActiveSegment, RecoveredSegment};
use super::pending::PendingLines;
use super::predecessor::{self, Predecessor};
use super::recovery::{self, RecoveredJournal};
use super::refusals::coalescer::RefusalCoalescer;
use super::refusals::flusher;
use super::signer::CheckpointSigner;
use super::use_guards::UseGuards;
use super::writer::JournalWriter;
use super::{checkpoints, committer, damaged_tail, free_space, maintenance, newest_record, timed_sync};
use crate::audit::error::OpenError;
use crate::audit::format::frame;
use crate::audit::format::segment::{LOCK, Point};
use crate::audit::format::segment_event::Damaged;
use crate::audit::index::indexer::Indexer;
use crate::audit::index::live_index::LiveIndex;
use crate::audit::settings::{Durability, Settings};
use domain::clock;
use platform::disk;
use platform::metrics::AuditMetrics;

/// Number of attempts to take the lock, 50 ms apart: `audit verify` holds it for an instant to see whether a gateway
/// does.
const LOCK_ATTEMPTS: u32 = 20;

/// Threads and lock of a journal that is not closed. Taken out of its handle, they are stopped.
#[derive(Debug)]
pub(crate) struct RunningThreads {
    /// None while another process has the journal.
    pub(crate) background: Option<BackgroundThreads>,
    /// The index, while the threads that keep it do not run and may run again.
    pub(crate) indexer: Option<Indexer>,
    /// Ends when the journal is closed.
    pub(crate) committer: JournalThread<()>,
    /// `None` when every use is synced.
    pub(crate) timed_sync: Option<JournalThread<()>>,
    /// Held until all threads have ended. None once it was left to another process. Dropped, it lets another process
    /// in.
    pub(crate) lock: Option<File>,
}

/// Threads that only the process that has the journal runs.
#[derive(Debug)]
pub(crate) struct BackgroundThreads {
    pub(crate) maintenance: JournalThread<Indexer>,
    /// Writes the records of coalesced refusals. Ends when these are closed.
    pub(crate) refusals: JournalThread<()>,
    /// Appends the lines of predecessors. `None` without a predecessor.
    pub(crate) follower: Option<JournalThread<()>>,
    /// Signs checkpoints. `None` without a key.
    pub(crate) checkpoints: Option<JournalThread<()>>,
}

/// A thread of a journal. Dropped, it is told to end, and nothing waits for it.
#[derive(Debug)]
pub(crate) struct JournalThread<T> {
    /// Dropping it tells the thread to end.
    stop: Sender<()>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> JournalThread<T> {
    fn start(
        writer: &Arc<JournalWriter>,
        name: &str,
        run: impl FnOnce(&Arc<JournalWriter>, &Receiver<()>) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let writer = Arc::clone(writer);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&writer, &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Tells the thread to end, and waits for that.
    pub(crate) fn stop(self) -> io::Result<T> {
        drop(self.stop);
        self.thread.join().map_err(|_| io::Error::other("a thread of the audit journal has panicked"))
    }
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

/// The lock of a journal that another process has handed over with its open file.
pub(crate) fn adopt_lock(directory: &Path, file: File) -> Result<File, OpenError> {
    let path = directory.join(LOCK);
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let handed = file.metadata().map(identity);
    let own = std::fs::metadata(&path).map(identity);
    match (handed, own) {
        (Ok(handed), Ok(own)) if handed == own => Ok(file),
        (Err(source), _) | (_, Err(source)) => Err(OpenError::Io { path, source }),
        _ => Err(OpenError::InUse { path }),
    }
}

/// Continues the journal where it ends: closes the open uses as aborted, and begins a new segment when the last one
/// belongs to a gateway of another name. Returns the writer and the index.
pub(crate) fn resume_journal(
    settings: Settings,
    metrics: AuditMetrics,
    checkpoints: Option<CheckpointSigner>,
) -> io::Result<(JournalWriter, Indexer, Vec<Predecessor>)> {
    let mut found = recovery::recover(&settings.path)?;
    let mut predecessors = Predecessor::find_all(&settings.path)?;
    let segment = mem::take(&mut found.segment);
    let damaged = mem::take(&mut found.damaged);
    let mut indexer = Indexer::new(&settings.path, segment.end(), settings.segment_size);
    let active = indexer.recover(segment.end(), !found.open.is_empty())?;
    // The gateway's name is in the header, so it must be the same for all records of a segment.
    let needs_segment = segment.file.is_none() || found.gateway != settings.gateway;
    let mut pending = first_lines(found, &damaged, &segment, needs_segment.then_some(&settings.gateway))?;
    append_spooled(&mut pending, &mut predecessors, &settings.path)?;
    let (refusals, left) = RefusalCoalescer::open(&settings.path, settings.refusals, pending.mode.clone());
    let writer = JournalWriter {
        settings,
        metrics,
        mode: pending.mode.clone(),
        pending: Mutex::new(pending),
        wake: Condvar::new(),
        synced: Mutex::new(Point { segment: segment.number, offset: 0 }),
        segment: Mutex::new(ActiveSegment::new(segment)),
        live_index: Arc::new(LiveIndex::new(active)),
        refusals,
        timed_sync_failed: AtomicBool::new(false),
        low_on_space: AtomicBool::new(false),
        needed_from: AtomicU64::new(0),
        predecessor_uses: UseGuards::default(),
        first_unhashed: AtomicU64::new(u64::MAX),
        checkpoints,
    };
    write_first_lines(&writer, needs_segment, &damaged, &mut indexer)?;
    flusher::recover(&writer, left)?;
    writer.metrics.backlog.set(writer.lock_pending().events());
    free_space::check(&writer);
    let running = remove_ended(predecessors, &writer);
    Ok((writer, indexer, running))
}

/// Counts the files of damaged lines. The damage of these segments is told by lines of the journal: the indexes that
/// the last gateway left are no longer needed to tell it.
fn note_damage(writer: &JournalWriter, damaged: &[Damaged<'_>], indexer: &mut Indexer) {
    let is_written = writer.lock_pending().is_empty();
    for damaged in damaged.iter().filter(|_| is_written) {
        indexer.remove_segments(damaged.segment..damaged.segment + 1);
    }
    damaged_tail::count_files(writer);
}

/// Removes the spools of predecessors that have ended, and returns the others.
fn remove_ended(predecessors: Vec<Predecessor>, writer: &JournalWriter) -> Vec<Predecessor> {
    let is_written = writer.lock_pending().is_empty();
    let (running, ended): (Vec<_>, Vec<_>) = predecessors.into_iter().partition(|predecessor| predecessor.is_alive);
    // Lines that could not be written are read again at the next start.
    ended.iter().filter(|_| is_written).for_each(|predecessor| predecessor.remove(writer));
    running
}

/// Appends what predecessors have written, and closes the uses of all that have ended.
fn append_spooled(pending: &mut PendingLines, predecessors: &mut [Predecessor], directory: &Path) -> io::Result<()> {
    for predecessor in &mut *predecessors {
        let merged = predecessor.find_merged(directory)?;
        predecessor.merge(pending, &merged);
    }
    let keeps_open = |id| predecessors.iter().any(|predecessor| predecessor.keeps_open(id));
    let aborted = pending.abort_open_uses(keeps_open);
    if aborted > 0 {
        tracing::warn!(requests = aborted, "recorded as aborted the requests that the last gateway left open");
    }
    Ok(())
}

/// The first lines of this gateway: the header of a segment that begins for it, after the last one.
fn first_lines(
    found: RecoveredJournal,
    damaged: &[Damaged<'_>],
    last: &RecoveredSegment,
    new_segment_of: Option<&String>,
) -> io::Result<PendingLines> {
    let mut pending = found.into_pending(last.number);
    pending.newest = newest_record::read_time(last)?;
    // Before all other lines: whenever there is room for them, none gets into the segment of another gateway.
    if let Some(gateway) = new_segment_of {
        pending.begin_segment(gateway, clock::now());
    }
    for damaged in damaged {
        frame::with_serialized(damaged, |body| pending.append_line(&body));
    }
    Ok(pending)
}

/// Writes the first lines. A full disk is no error: the journal starts all the same, refuses or drops uses as
/// configured, and writes what is pending when there is room.
fn write_first_lines(
    writer: &JournalWriter,
    needs_segment: bool,
    damaged: &[Damaged<'_>],
    indexer: &mut Indexer,
) -> io::Result<()> {
    let mut segment = writer.lock_segment();
    let mut written = writer.flush(&mut segment);
    let is_full = written.as_ref().is_err_and(disk::is_out_of_space);
    if is_full && needs_segment {
        // The last segment takes no more lines: the space behind its end is for the next one.
        segment.retire();
        written = writer.flush(&mut segment);
    }
    written.or_else(|error| if disk::is_out_of_space(&error) { Ok(()) } else { Err(error) })?;
    // The gateway is not ready then, until the maintenance thread finds space.
    if segment.is_out_of_space() {
        writer.set_write_failure(&io::ErrorKind::StorageFull.into());
    }
    note_damage(writer, damaged, indexer);
    Ok(())
}

/// Starts the threads of a journal.
pub(crate) fn start_threads(
    writer: &Arc<JournalWriter>,
    indexer: Indexer,
    predecessors: Vec<Predecessor>,
    lock: File,
) -> io::Result<RunningThreads> {
    let committer = JournalThread::start(writer, "audit-commit", |writer, _| committer::run(writer))?;
    let background = Some(start_background(writer, indexer, predecessors)?);
    let start_sync = || JournalThread::start(writer, "audit-sync", |writer, stop| timed_sync::run(writer, stop));
    let timed_sync = (writer.settings.durability == Durability::Written).then(start_sync).transpose()?;
    Ok(RunningThreads { background, indexer: None, committer, timed_sync, lock: Some(lock) })
}

/// Starts the threads that only the process that has the journal runs.
pub(crate) fn start_background(
    writer: &Arc<JournalWriter>,
    indexer: Indexer,
    predecessors: Vec<Predecessor>,
) -> io::Result<BackgroundThreads> {
    writer.refusals.reopen();
    if writer.checkpoints.is_some() {
        // Until it is known which segments are to be hashed, none is removed.
        writer.first_unhashed.store(0, Ordering::Relaxed);
    }
    let maintain = move |writer: &Arc<JournalWriter>, stop: &Receiver<()>| maintenance::run(writer, indexer, stop);
    let has_predecessor = !predecessors.is_empty();
    let follow = move |writer: &Arc<JournalWriter>, stop: &Receiver<()>| {
        predecessor::follow(writer, predecessors, stop);
    };
    let sign = |writer: &Arc<JournalWriter>, stop: &Receiver<()>| {
        writer.checkpoints.iter().for_each(|signer| checkpoints::run(writer, signer, stop));
    };
    Ok(BackgroundThreads {
        maintenance: JournalThread::start(writer, "audit-maintain", maintain)?,
        refusals: JournalThread::start(writer, "audit-refusals", |writer, _| flusher::run(writer))?,
        follower: has_predecessor.then(|| JournalThread::start(writer, "audit-follow", follow)).transpose()?,
        checkpoints: writer
            .checkpoints
            .is_some()
            .then(|| JournalThread::start(writer, "audit-tree", sign))
            .transpose()?,
    })
}
