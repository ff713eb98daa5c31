//! The file being written, and the writing of batches to it.
//!
//! - A batch is written whole or not at all: after a failure the file is cut back to its last good byte, before anything
//!   else is written.
//! - Whoever holds the output writes for all: what was appended meanwhile goes out with the next write.
//! - A new segment begins between two batches, when the last has made the old one large or old enough.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::audit::format::segment;
use crate::audit::settings::{Durability, Settings};
use crate::audit::write::pending::{Batch, Fate, Pending, Phase};
use crate::clock::{self, Micros};
use crate::metrics::AuditMetrics;

/// What the journal's handles and its committer share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) metrics: AuditMetrics,
    /// Locked after `output` where both are.
    pub(crate) pending: Mutex<Pending>,
    /// Wakes the committer: something is pending, or urgent, or it is over.
    pub(crate) wake: Condvar,
    pub(crate) output: Mutex<Output>,
    /// The last write failed.
    pub(crate) failing: AtomicBool,
    /// A sync has failed.
    pub(crate) poisoned: AtomicBool,
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Output {
    /// None before the first segment.
    pub(crate) file: Option<File>,
    pub(crate) number: u64,
    /// Bytes written and good.
    pub(crate) length: u64,
    pub(crate) created: Micros,
    /// Lines beyond the header; a segment without any is not closed.
    pub(crate) has_events: bool,
    /// There may be something beyond `length`.
    pub(crate) dirty: bool,
    /// The buffer that the next batch is exchanged for.
    spare: Vec<u8>,
}

/// A buffer that has grown beyond this is given back when its batch is written.
const SPARE: usize = 1 << 20;

impl Shared {
    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("nothing panics while it holds the pending lines")
    }

    pub(crate) fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().expect("nothing panics while it holds the output")
    }

    /// Writes all that is pending, and begins a new segment when one is due; as durable as configured when it returns.
    pub(crate) fn flush(&self, output: &mut Output) -> io::Result<()> {
        while let Some((batch, rotate)) = self.take(output) {
            if let Err(error) = output.write(&self.settings, &batch) {
                self.failed(output, &batch, &error);
                return Err(error);
            }
            if self.settings.durability == Durability::Synced {
                self.sync(output, &batch)?;
            }
            self.written(output, batch);
            if !rotate {
                break;
            }
        }
        Ok(())
    }

    /// The next batch: what is pending; and whether the header of a new segment waits to be written after it. That
    /// header is appended in the moment in which nothing is pending, so that it says what is open where it stands.
    fn take(&self, output: &mut Output) -> Option<(Batch, bool)> {
        let mut pending = self.pending();
        if pending.is_empty() && pending.phase == Phase::Running && output.is_due(&self.settings, 0) {
            pending.begin_segment(&self.settings.gateway, clock::now());
        }
        (pending.phase != Phase::Poisoned && !pending.is_empty()).then_some(())?;
        let batch = pending.take(mem::take(&mut output.spare));
        let due = !batch.header && output.is_due(&self.settings, batch.lines.len() as u64);
        let rotate = due && pending.phase == Phase::Running;
        if rotate {
            pending.begin_segment(&self.settings.gateway, clock::now());
        }
        Some((batch, rotate))
    }

    fn written(&self, output: &mut Output, mut batch: Batch) {
        self.heal();
        self.metrics.backlog.sub(batch.events);
        self.metrics.written.inc_by(batch.attempts);
        batch.ticket.resolve(Fate::Written);
        batch.lines.clear();
        batch.lines.shrink_to(SPARE);
        output.spare = batch.lines;
    }

    /// Writing works.
    pub(crate) fn heal(&self) {
        if self.failing.load(Ordering::Relaxed) && self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(path = %self.settings.path.display(), "the audit journal can be written again");
        }
    }

    /// Tells the committer that something is pending, if it sleeps.
    pub(crate) fn wake_committer(&self, pending: &mut Pending) {
        if mem::take(&mut pending.asleep) {
            self.wake.notify_one();
        }
    }

    fn failed(&self, output: &mut Output, batch: &Batch, error: &io::Error) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, path = %self.settings.path.display(), "the audit journal cannot be written");
        }
        {
            let mut pending = self.pending();
            pending.put_back(batch);
            self.metrics.backlog.set(pending.events);
        }
        self.metrics.dropped.inc_by(batch.attempts);
        batch.ticket.resolve(Fate::Failed);
        output.spare = Vec::new();
    }

    /// Syncs what was just written. A failure is final: the kernel may have dropped the pages and forgotten the error.
    fn sync(&self, output: &Output, batch: &Batch) -> io::Result<()> {
        let directory = if batch.header { segment::sync_directory(&self.settings.path) } else { Ok(()) };
        directory.and_then(|()| output.sync()).inspect_err(|error| self.poison(batch, error))
    }

    fn poison(&self, batch: &Batch, error: &io::Error) {
        tracing::error!(%error, path = %self.settings.path.display(),
            "the audit journal could not be synced: it takes no records until a restart");
        self.poisoned.store(true, Ordering::Relaxed);
        let mut pending = self.pending();
        pending.phase = Phase::Poisoned;
        let waiting = pending.take(Vec::new());
        drop(pending);
        batch.ticket.resolve(Fate::Failed);
        waiting.ticket.resolve(Fate::Failed);
    }
}

impl Output {
    /// The segment to go on with; number 0 and no file when there is none yet.
    pub(crate) fn new(file: Option<File>, number: u64, length: u64, created: Micros, has_events: bool) -> Self {
        Self { file, number, length, created, has_events, dirty: false, spare: Vec::new() }
    }

    fn write(&mut self, settings: &Settings, batch: &Batch) -> io::Result<()> {
        if batch.header {
            return self.write_new(settings, batch);
        }
        self.clean()?;
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        if let Err(error) = file.write_all_at(&batch.lines, self.length) {
            self.dirty = true;
            self.clean().unwrap_or_else(|error| tracing::debug!(%error, "the segment cannot be cut back yet"));
            return Err(error);
        }
        self.length += batch.lines.len() as u64;
        self.has_events = true;
        Ok(())
    }

    /// Writes a batch that begins a segment. The old one is closed only when the new one is good.
    fn write_new(&mut self, settings: &Settings, batch: &Batch) -> io::Result<()> {
        self.clean()?;
        let number = self.number + 1;
        let file = segment::create(&settings.path, number)?;
        if let Err(error) = file.write_all_at(&batch.lines, 0) {
            // It holds nothing that counts: recovery passes over a segment without a good line.
            let removed = std::fs::remove_file(segment::path(&settings.path, number));
            removed.unwrap_or_else(|error| tracing::debug!(%error, "the new segment cannot be removed"));
            return Err(error);
        }
        let length = batch.lines.len() as u64;
        *self = Self::new(Some(file), number, length, clock::now(), batch.events > 1);
        Ok(())
    }

    /// Cuts the file back to its last good byte, when there may be more.
    fn clean(&mut self) -> io::Result<()> {
        if let (true, Some(file)) = (self.dirty, &self.file) {
            file.set_len(self.length)?;
            self.dirty = false;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Whether there is room: writes a page beyond the end and cuts it off again.
    pub(crate) fn probe(&mut self) -> io::Result<()> {
        self.clean()?;
        let Some(file) = &self.file else { return Ok(()) };
        self.dirty = true;
        file.write_all_at(&[b' '; 4096], self.length)?;
        self.clean()
    }

    /// Whether this segment is to be closed once so many bytes more are in it.
    pub(crate) fn is_due(&self, settings: &Settings, more: u64) -> bool {
        let old = || clock::now() >= self.created.after(settings.segment_age);
        (self.has_events || more > 0) && (self.length + more >= settings.segment_size || old())
    }
}
