//! The journal's handle, and the open uses it hands out.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::audit::error::{OpenError, Unavailable};
use crate::audit::format::event::{Open, OutcomeEvent, UseEvent};
use crate::audit::format::frame;
use crate::audit::format::record::{Outcome, Use, UseEnd};
use crate::audit::format::segment;
use crate::audit::read::replay::{self, ReplayEntry};
use crate::audit::settings::{Durability, OnUnavailable, Settings};
use crate::audit::write::open::{self, Running};
use crate::audit::write::pending::{Fate, Pending, Phase, Ticket};
use crate::audit::write::unknown_key_limiter::Limiter;
use crate::audit::write::writer::Shared;
use crate::clock::{self, Micros};
use crate::metrics::AuditMetrics;

/// The journal; clones share it.
///
/// - When [`Journal::begin`] has returned, the use is as durable as configured, and ends exactly once in the journal: by
///   [`AuditEntry::close`], by the entry's drop, or as aborted when the journal is opened again.
/// - Only one process writes a journal.
#[derive(Clone, Debug)]
pub struct Journal {
    handle: Arc<Handle>,
}

/// What the clones share. The last one's drop writes out everything and ends the threads.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    attempts: Mutex<Limiter>,
    running: Mutex<Option<Running>>,
}

/// An open use. Dropped without [`AuditEntry::close`], it is recorded as aborted.
#[derive(Debug)]
pub struct AuditEntry {
    journal: Journal,
    /// None when the use was dropped instead of recorded, or has ended.
    open: Option<Open>,
}

impl Journal {
    /// Opens the journal in a directory, which is created when missing; closes what its last writer left open as
    /// aborted.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when another process writes it, [`OpenError::Io`] when the file system says no.
    pub fn open(settings: Settings, metrics: AuditMetrics) -> Result<Self, OpenError> {
        let path = settings.path.clone();
        let failed = |source| OpenError::Io { path: path.clone(), source };
        segment::create_directory(&path).map_err(failed)?;
        let lock = open::lock(&path)?;
        let attempts = Mutex::new(Limiter::new(settings.unknown_per_second));
        let (shared, end) = open::resume(settings, metrics).map_err(failed)?;
        let shared = Arc::new(shared);
        let running = Mutex::new(Some(open::start(&shared, end, lock).map_err(failed)?));
        Ok(Self { handle: Arc::new(Handle { shared, attempts, running }) })
    }

    /// The numbered uses at or after a time, from the segments; for the replay at start. A clock that was set back while
    /// no gateway ran can hide uses from it.
    ///
    /// # Errors
    /// [`OpenError::Io`] when the segments cannot be read.
    pub fn uses_since(&self, since: Micros) -> Result<Vec<ReplayEntry>, OpenError> {
        let shared = &self.handle.shared;
        let path = &shared.settings.path;
        // What fails here stays pending; it was told to whoever waits for it.
        let _ = shared.flush(&mut shared.output());
        replay::since(path, since).map_err(|source| OpenError::Io { path: path.clone(), source })
    }

    /// Records the beginning of a use; returns when it is as durable as configured. The request may then be forwarded.
    /// Dropping the future before it returns records the use as aborted.
    ///
    /// # Errors
    /// [`Unavailable`] when it cannot be written and requests are refused then, or when the journal is closed.
    pub async fn begin(&self, opening: &Use<'_>) -> Result<AuditEntry, Unavailable> {
        let open = Open::of(opening);
        let ticket = frame::with_body(&UseEvent::opening(opening), |body| self.append(|p| p.begin(body, open)));
        let mut entry = AuditEntry { journal: self.clone(), open: Some(open) };
        if self.resolved(ticket).await == Fate::Failed {
            entry.open = None;
            self.not_recorded()?;
        }
        Ok(entry)
    }

    /// Records a use that ended where it began: a refusal, or a change made by management.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub async fn record(&self, opening: &Use<'_>, end: UseEnd) -> Result<(), Unavailable> {
        let ticket = frame::with_body(&UseEvent::whole(opening, end), |body| self.append(|p| p.append(body)));
        match self.resolved(ticket).await {
            Fate::Written => Ok(()),
            Fate::Failed => self.not_recorded(),
        }
    }

    /// Records an attempt with an unknown key, at the bounded rate. Never waits, never fails: it counts what it drops.
    pub fn record_unknown_key(&self, opening: &Use<'_>, end: UseEnd) {
        let shared = &self.handle.shared;
        let admitted = self.handle.attempts.lock().expect("the limiter does not panic").admit(opening.time);
        if !admitted {
            return shared.metrics.suppressed.inc();
        }
        let mut pending = shared.pending();
        if frame::with_body(&UseEvent::whole(opening, end), |body| pending.attempt(body)) {
            shared.metrics.backlog.inc();
            shared.wake_committer(&mut pending);
        } else {
            shared.metrics.dropped.inc();
        }
    }

    /// Whether requests are let through now: uses can be recorded, or are dropped as configured. Takes no lock; a
    /// journal that is closed says so when it is asked to record.
    pub fn accepts_requests(&self) -> bool {
        let shared = &self.handle.shared;
        let works = !shared.failing.load(Ordering::Relaxed) && !shared.poisoned.load(Ordering::Relaxed);
        works || shared.settings.on_unavailable == OnUnavailable::Drop
    }

    /// Whether uses can be recorded now.
    pub fn is_available(&self) -> bool {
        let shared = &self.handle.shared;
        !shared.failing.load(Ordering::Relaxed) && shared.pending().phase == Phase::Running
    }

    /// Writes out everything, syncs and closes. Later calls answer [`Unavailable`]; uses still open are recorded as
    /// aborted when the journal is opened again.
    pub async fn close(&self) {
        let handle = Arc::clone(&self.handle);
        let closed = tokio::task::spawn_blocking(move || handle.stop()).await;
        closed.unwrap_or_else(|error| tracing::error!(%error, "the audit journal was not closed well"));
    }

    /// Appends a line by `append`; with `synced`, calls the committer for it.
    fn append(&self, append: impl FnOnce(&mut Pending) -> Option<Arc<Ticket>>) -> Option<Arc<Ticket>> {
        let shared = &self.handle.shared;
        let mut pending = shared.pending();
        let ticket = append(&mut pending)?;
        shared.metrics.backlog.inc();
        if shared.settings.durability == Durability::Synced && !pending.urgent {
            pending.urgent = true;
            shared.wake.notify_one();
        }
        Some(ticket)
    }

    /// What became of an appended line. With `written`, the first to come writes for all who appended meanwhile.
    async fn resolved(&self, ticket: Option<Arc<Ticket>>) -> Fate {
        let Some(ticket) = ticket else { return Fate::Failed };
        let shared = &self.handle.shared;
        let fate = match shared.settings.durability {
            Durability::Synced => ticket.resolved().await,
            Durability::Written => shared.written_by_now(&ticket),
        };
        if fate == Fate::Written {
            shared.metrics.written.inc();
        }
        fate
    }

    /// A record could not be written: refuse the request, or go on without.
    fn not_recorded(&self) -> Result<(), Unavailable> {
        let shared = &self.handle.shared;
        let closed = shared.pending().phase == Phase::Closed;
        if closed || shared.settings.on_unavailable == OnUnavailable::Refuse {
            shared.metrics.refused.inc();
            return Err(Unavailable);
        }
        shared.metrics.dropped.inc();
        Ok(())
    }

    fn end(&self, outcome: &OutcomeEvent) {
        let shared = &self.handle.shared;
        frame::with_body(outcome, |body| {
            let mut pending = shared.pending();
            let before = pending.events;
            if !pending.end(body, outcome.id) {
                shared.metrics.dropped.inc();
            }
            shared.metrics.backlog.add(pending.events - before);
            shared.wake_committer(&mut pending);
        });
    }
}

impl Shared {
    fn written_by_now(&self, ticket: &Ticket) -> Fate {
        let mut output = self.output();
        ticket.fate().unwrap_or_else(|| {
            // The failure reaches everyone it concerns by their ticket.
            let _ = self.flush(&mut output);
            ticket.fate().unwrap_or(Fate::Failed)
        })
    }
}

impl AuditEntry {
    /// Records the outcome.
    pub fn close(mut self, end: UseEnd) {
        if let Some(open) = self.open.take() {
            self.journal.end(&open.ended(end));
        }
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let duration_us = Some(clock::now().since(open.time));
            self.journal.end(&OutcomeEvent { duration_us, ..open.aborted(Outcome::Aborted) });
        }
    }
}

impl Handle {
    /// Takes no more lines, writes out what there is, and gives the lock back. Only the first call does anything.
    fn stop(&self) {
        let Some(running) = self.running.lock().expect("nothing panics while it stops").take() else { return };
        let Running { keeper, stop_keeper, committer, lock } = running;
        drop(stop_keeper);
        let kept = keeper.join();
        {
            let mut pending = self.shared.pending();
            pending.phase = Phase::Closed;
            self.shared.wake.notify_one();
        }
        if committer.join().is_err() || kept.is_err() {
            tracing::error!("a thread of the audit journal has panicked");
        }
        drop(lock);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;
    use crate::audit::Reader;
    use crate::identity::AuthMethod;
    use crate::metrics::Metrics;

    const END: UseEnd =
        UseEnd { outcome: Outcome::Completed, status: Some(200), duration_us: 1, request_bytes: 0, response_bytes: 0 };

    fn settings(directory: &TempDir, durability: Durability) -> Settings {
        Settings {
            path: directory.path().to_owned(),
            durability,
            on_unavailable: OnUnavailable::Refuse,
            segment_size: 1 << 20,
            segment_age: Duration::from_secs(3600),
            retention_age: None,
            retention_size: None,
            unknown_per_second: 1,
            gateway: "gw".into(),
        }
    }

    fn opening() -> Use<'static> {
        Use {
            id: Uuid::now_v7(),
            time: clock::now(),
            number: None,
            key_id: None,
            user_id: None,
            org_id: None,
            auth_method: AuthMethod::ApiKey,
            ip: None,
            user_agent: None,
            action: "a",
            method: "GET",
            path: "/",
            provisional: false,
        }
    }

    fn replace_file(journal: &Journal, path: &str) -> File {
        let file = File::options().write(true).open(path).unwrap();
        journal.handle.shared.output().file.replace(file).unwrap()
    }

    #[tokio::test]
    async fn what_cannot_be_written_or_cut_off_is_neither_lost_nor_doubled() {
        let directory = TempDir::new().unwrap();
        let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        let open = journal.begin(&opening()).await.unwrap();
        // A device without room, and which cannot be truncated either.
        let good = replace_file(&journal, "/dev/full");
        open.close(END);
        assert!(journal.begin(&opening()).await.is_err());
        assert!(!journal.is_available());
        journal.handle.shared.output().file = Some(good);
        journal.begin(&opening()).await.unwrap().close(END);
        assert!(journal.is_available());
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.events, report.problem_count), (2, 5, 0));
    }

    #[tokio::test]
    async fn a_failed_sync_ends_the_journal_until_a_restart() {
        let directory = TempDir::new().unwrap();
        let settings = settings(&directory, Durability::Synced);
        let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
        let open = journal.begin(&opening()).await.unwrap();
        // A device that takes every write and no sync.
        let good = replace_file(&journal, "/dev/null");
        assert!(journal.begin(&opening()).await.is_err());
        journal.handle.shared.output().file = Some(good);
        open.close(END);
        assert!(!journal.is_available());
        assert!(journal.begin(&opening()).await.is_err(), "it is not tried again");
        journal.close().await;
        let journal = Journal::open(settings, Metrics::new().audit).unwrap();
        journal.begin(&opening()).await.unwrap().close(END);
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.problem_count), (2, 0));
    }

    #[tokio::test]
    async fn a_rotation_that_fails_is_made_up_for() {
        let directory = TempDir::new().unwrap();
        let settings = Settings { segment_size: 2000, ..settings(&directory, Durability::Written) };
        let journal = Journal::open(settings, Metrics::new().audit).unwrap();
        let mut begun = 0;
        for _ in 0..4 {
            // A directory stands where the next segment is to be.
            let blocked = {
                let output = journal.handle.shared.output();
                let next = segment::path(directory.path(), output.number + 1);
                std::fs::create_dir(&next).map(|()| next).unwrap()
            };
            let mut open = Vec::new();
            while let Ok(entry) = journal.begin(&opening()).await {
                open.push(entry);
            }
            begun += open.len() as u64 + 1;
            assert!(!open.is_empty() && !journal.is_available());
            open.into_iter().for_each(|entry| entry.close(END));
            std::fs::remove_dir(&blocked).unwrap();
            journal.begin(&opening()).await.unwrap().close(END);
            assert!(journal.is_available());
        }
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.problems), (begun, vec![]));
    }
}
