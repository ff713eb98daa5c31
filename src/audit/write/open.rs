//! Starting a journal: the lock, what the last gateway left, the threads.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::audit::error::OpenError;
use crate::audit::format::record::Outcome;
use crate::audit::format::segment::{self, Point};
use crate::audit::index::Indexer;
use crate::audit::settings::Settings;
use crate::audit::write::committer;
use crate::audit::write::maintenance;
use crate::audit::write::pending::Pending;
use crate::audit::write::recovery::{self, Recovered};
use crate::audit::write::writer::{Output, Shared};
use crate::clock;
use crate::metrics::AuditMetrics;

/// A reader holds the lock for an instant to see whether a gateway does; so try this often, 50 ms apart.
const LOCK_ATTEMPTS: u32 = 20;

/// The threads and the lock of a journal that is not closed.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) keeper: JoinHandle<()>,
    /// The keeper ends when this is dropped.
    pub(crate) stop_keeper: Sender<()>,
    pub(crate) committer: JoinHandle<()>,
    /// Held until both have ended.
    pub(crate) lock: File,
}

/// Locks the journal against other writers.
pub(crate) fn lock(directory: &Path) -> Result<File, OpenError> {
    let path = directory.join(segment::LOCK);
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

/// Goes on where the journal ends: closes what is open as aborted, and begins a segment when this gateway has another
/// name than the last. Gives too where the journal ended before that.
pub(crate) fn resume(settings: Settings, metrics: AuditMetrics) -> io::Result<(Shared, Point)> {
    let Recovered { file, number, length, created, gateway, next, has_events, open, unsealed } =
        recovery::recover(&settings.path)?;
    let begins = file.is_none() || gateway != settings.gateway;
    let mut pending = Pending::new(number, next, open, unsealed);
    let aborted = pending.abort_all(|open| open.aborted(Outcome::Aborted));
    if aborted > 0 {
        tracing::warn!(uses = aborted, "closed the uses that the last gateway left open as aborted");
    }
    let shared = Shared {
        settings,
        metrics,
        pending: Mutex::new(pending),
        wake: Condvar::new(),
        output: Mutex::new(Output::new(file, number, length, created, has_events)),
        failing: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
    };
    {
        let mut output = shared.output();
        shared.flush(&mut output)?;
        if begins && output.number == number {
            shared.pending().begin_segment(&shared.settings.gateway, clock::now());
            shared.flush(&mut output)?;
        }
    }
    shared.metrics.backlog.set(0);
    Ok((shared, (number, length)))
}

/// Starts the threads of a journal that ended at `end` when it was found.
pub(crate) fn start(shared: &Arc<Shared>, end: Point, lock: File) -> io::Result<Running> {
    let indexer = Indexer::new(&shared.settings.path, end);
    let (stop_keeper, stopped) = mpsc::channel();
    let for_committer = Arc::clone(shared);
    let for_keeper = Arc::clone(shared);
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let committer = thread("audit-commit").spawn(move || committer::run(&for_committer))?;
    let keeper = thread("audit-keep").spawn(move || maintenance::run(&for_keeper, indexer, &stopped))?;
    Ok(Running { keeper, stop_keeper, committer, lock })
}
