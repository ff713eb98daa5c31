//! The writing handle of a journal, and the open uses that it hands out.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use super::append::AppendedLine;
use super::completion::BatchResult;
use super::handle::Handle;
use super::mode::Mode;
use super::open;
use super::refusals::coalescer::Disposition;
use super::signer;
use crate::audit::error::{OpenError, Unavailable};
use crate::audit::format::encode::{ChangeLine, UseLine};
use crate::audit::format::event::{OpenUse, OutcomeEvent};
use crate::audit::format::prepared::PreparedFields;
use crate::audit::format::record::{ChangeUse, Outcome, Settled, Use, UseEnd};
use crate::audit::format::segment;
use crate::audit::index::IndexedUse;
use crate::audit::read::reader::Reader;
use crate::audit::read::replay::{self, Replay, ReplayStart};
use crate::audit::settings::Settings;
use domain::clock::{self, Micros};
use domain::quota::{ArrivalTime, Gcra};
use platform::metrics::AuditMetrics;

/// The journal of this process; clones share it.
///
/// - When [`Journal::begin`] has returned, the use is as durable as configured, and it gets exactly one outcome in the
///   journal: from [`AuditEntry::close`], from the drop of the entry, or from the next start.
/// - Only one process writes a journal.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(crate) handle: Arc<Handle>,
}

/// An open use. Dropped without [`AuditEntry::close`], it is recorded as aborted, and a change as in doubt.
#[derive(Debug)]
pub struct AuditEntry {
    journal: Journal,
    /// `None` when the use goes unrecorded, as configured, and after its end.
    open: Option<OpenEntry>,
    /// A change by management: its lines may use the reserve.
    is_change: bool,
}

/// Id and time of an open use.
#[derive(Clone, Copy, Debug)]
struct OpenEntry {
    id: Uuid,
    time: Micros,
}

impl Journal {
    /// Opens the journal in a directory, which is created when missing. Uses that the last writer left open are closed
    /// as aborted.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when another process writes the journal, [`OpenError::Directory`] when the directory cannot
    /// be made, [`OpenError::Io`] when the file system fails otherwise.
    pub fn open(settings: Settings, metrics: AuditMetrics) -> Result<Self, OpenError> {
        let path = settings.path.clone();
        segment::create_directory(&path).map_err(|source| OpenError::Directory { path: path.clone(), source })?;
        Self::open_locked(settings, metrics, open::lock_directory(&path)?)
    }

    /// As [`Journal::open`], with the lock that a predecessor has handed over ([`Journal::hand_over`]). The uses that
    /// it still serves stay open.
    ///
    /// # Errors
    /// As [`Journal::open`]; also when the lock is that of another journal.
    pub fn open_with_lock(settings: Settings, metrics: AuditMetrics, lock: File) -> Result<Self, OpenError> {
        let lock = open::adopt_lock(&settings.path, lock)?;
        Self::open_locked(settings, metrics, lock)
    }

    fn open_locked(settings: Settings, metrics: AuditMetrics, lock: File) -> Result<Self, OpenError> {
        let path = settings.path.clone();
        let failed = |source| OpenError::Io { path: path.clone(), source };
        let (per_second, addresses) = (settings.unknown_per_second, settings.addresses);
        let unknown_key_limit = Gcra::new(per_second, Duration::from_secs(1), per_second);
        let signer = signer::load(&settings)?;
        let (writer, indexer, predecessors) = open::resume_journal(settings, metrics, signer).map_err(failed)?;
        let writer = Arc::new(writer);
        let threads = open::start_threads(&writer, indexer, predecessors, lock).map_err(failed)?;
        let running = Mutex::new(Some(threads));
        let unknown_keys = ArrivalTime::default();
        Ok(Self { handle: Arc::new(Handle { writer, unknown_key_limit, unknown_keys, addresses, running }) })
    }

    /// Reads the numbered uses from a start on, and what came back of budgets, for the replay at start. Given by its
    /// time alone, uses may be missing when the clock was set back while no gateway ran.
    ///
    /// # Errors
    /// [`OpenError::Io`] when the segments cannot be read.
    pub fn uses_since(&self, start: impl Into<ReplayStart>) -> Result<Replay, OpenError> {
        self.handle.write_pending();
        let writer = &self.handle.writer;
        let path = &writer.settings.path;
        let next = writer.lock_pending().next;
        replay::numbered_uses(path, start.into(), next).map_err(|source| OpenError::Io { path: path.clone(), source })
    }

    /// The directory of its segments.
    pub(crate) fn directory(&self) -> &Path {
        &self.handle.writer.settings.path
    }

    /// Name of this gateway in its records.
    pub fn gateway(&self) -> &str {
        &self.handle.writer.settings.gateway
    }

    /// Opens a reader of this journal. It has the index of the open segment.
    ///
    /// # Errors
    /// If the directory may not be read.
    pub fn reader(&self) -> io::Result<Reader> {
        let writer = &self.handle.writer;
        Ok(Reader::open(&writer.settings.path)?.with_live_index(Arc::clone(&writer.live_index)))
    }

    /// Records the beginning of a use. When it returns, the use is as durable as configured, and the request may be
    /// forwarded. Dropping the future before it returns records the use as aborted.
    ///
    /// # Errors
    /// [`Unavailable`] when the use cannot be written and such requests are refused, or when the journal is closed.
    pub fn begin<'a>(&'a self, opening: &Use<'_>) -> impl Future<Output = Result<AuditEntry, Unavailable>> + use<'a> {
        let appended = self.handle.with_shown_address(opening, |opening| self.append_use(opening, None));
        self.wait_begun(AuditEntry::new(self, opening, false), appended)
    }

    /// As [`Journal::begin`], with the fields that the last use of the same connection has left.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub fn begin_prepared<'a>(
        &'a self,
        opening: &Use<'_>,
        prepared: &PreparedFields,
    ) -> impl Future<Output = Result<AuditEntry, Unavailable>> + use<'a> {
        let appended = self.handle.with_shown_address(opening, |opening| self.append_use(opening, Some(prepared)));
        self.wait_begun(AuditEntry::new(self, opening, false), appended)
    }

    /// Records the beginning of a change by management, as [`Journal::begin`] does, and also while the disk is full:
    /// its lines may use the reserve of the journal. The last half of the reserve is for changes that withdraw
    /// something, such as revocations.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub async fn begin_change(&self, change: &ChangeUse<'_>, withdraws: bool) -> Result<AuditEntry, Unavailable> {
        let may_write = withdraws || self.handle.writer.mode.get() != Mode::ReserveScarce;
        let append = || {
            self.handle.with_shown_address(&change.opening, |opening| {
                let change = ChangeUse { opening: opening.clone(), ..change.clone() };
                let line = ChangeLine::new(&change);
                self.handle.writer.append(|pending| pending.append_change(&line, OpenUse::from_use(opening)))
            })
        };
        let appended = if may_write { append() } else { None };
        self.wait_begun(AuditEntry::new(self, &change.opening, true), appended).await
    }

    /// Waits until the beginning of a use is written. The entry exists before the first await, so that a dropped future
    /// closes the use.
    #[allow(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
    fn wait_begun(
        &self,
        mut entry: AuditEntry,
        appended: Option<AppendedLine>,
    ) -> impl Future<Output = Result<AuditEntry, Unavailable>> {
        async move {
            if self.handle.writer.wait_written(appended).await == BatchResult::Failed {
                entry.open = None;
                self.handle.writer.refuse_unless_unrecorded()?;
            }
            Ok(entry)
        }
    }

    /// Records a use that ended where it began. Returns false when it goes unrecorded, as configured.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub async fn record(&self, opening: &Use<'_>, end: UseEnd) -> Result<bool, Unavailable> {
        let completion = self.handle.with_shown_address(opening, |opening| {
            let line = UseLine::of_record(opening, end);
            let indexed = IndexedUse::from_use(opening, end);
            self.handle.writer.append(|pending| pending.append_record(&line, indexed))
        });
        match self.handle.writer.wait_written(completion).await {
            BatchResult::Written => Ok(true),
            BatchResult::Failed => self.handle.writer.refuse_unless_unrecorded().map(|()| false),
        }
    }

    /// Records a refusal of a known key or session: as a record of its own, or counted in a record of several. When it
    /// returns, a kill of the process does not lose it. Returns false when it goes unrecorded, as configured.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub async fn record_refusal(&self, opening: &Use<'_>, end: UseEnd) -> Result<bool, Unavailable> {
        let writer = &self.handle.writer;
        match self.handle.with_shown_address(opening, |opening| writer.refusals.count(opening, end)) {
            Disposition::Single => self.record(opening, end).await,
            Disposition::Counted => {
                writer.metrics.written.inc();
                writer.metrics.coalesced.inc();
                Ok(true)
            }
        }
    }

    /// Records an attempt with an unknown key, at the bounded rate. It never waits and never fails; attempts that are
    /// not recorded are counted. Returns whether this one is recorded.
    pub fn record_unknown_key(&self, opening: &Use<'_>, end: UseEnd) -> bool {
        let writer = &self.handle.writer;
        let within_rate = self.handle.unknown_key_limit.count(&self.handle.unknown_keys, opening.time).is_ok();
        if !within_rate {
            writer.metrics.suppressed.inc();
            return false;
        }
        let mut pending = writer.lock_pending();
        let is_appended = self.handle.with_shown_address(opening, |opening| {
            let line = UseLine::of_record(opening, end);
            pending.append_attempt(&line, IndexedUse::from_use(opening, end))
        });
        if is_appended {
            writer.metrics.backlog.inc();
            writer.wake_committer(&mut pending);
        } else {
            writer.metrics.dropped.inc();
        }
        is_appended
    }

    /// Writes all lines, syncs and closes the journal. Later calls return [`Unavailable`]; uses that are still open are
    /// closed as aborted by the next start.
    pub async fn close(&self) {
        let handle = Arc::clone(&self.handle);
        let closed = tokio::task::spawn_blocking(move || handle.stop()).await;
        closed.unwrap_or_else(|error| tracing::error!(%error, "closing the audit journal failed"));
    }

    fn append_use(&self, opening: &Use<'_>, prepared: Option<&PreparedFields>) -> Option<AppendedLine> {
        let (line, open) = (UseLine::of_use(opening, prepared), OpenUse::from_use(opening));
        self.handle.writer.append(|pending| pending.append_use(&line, open))
    }
}

impl AuditEntry {
    fn new(journal: &Journal, opening: &Use<'_>, is_change: bool) -> Self {
        let open = OpenEntry { id: opening.id, time: opening.time };
        Self { journal: journal.clone(), open: Some(open), is_change }
    }

    /// Returns whether the use has a record; false when it goes unrecorded, as configured.
    pub fn is_recorded(&self) -> bool {
        self.open.is_some()
    }

    /// Records the outcome.
    pub fn close(mut self, end: UseEnd) {
        if let Some(open) = self.open.take() {
            self.journal.handle.writer.append_outcome(&OutcomeEvent::new(open.id, end), self.is_change);
        }
    }

    /// Records the outcome, and what it settled of a budget.
    pub fn close_settled(mut self, end: UseEnd, settled: Settled) {
        if let Some(open) = self.open.take() {
            let outcome = OutcomeEvent { settled: Some(settled), ..OutcomeEvent::new(open.id, end) };
            self.journal.handle.writer.append_outcome(&outcome, self.is_change);
        }
    }

    /// Records the outcome of a change by management. When it returns, the outcome is as durable as configured, unless
    /// the journal has no room.
    pub async fn close_change(mut self, end: UseEnd) {
        if let Some(open) = self.open.take() {
            self.journal.handle.writer.end_change(&OutcomeEvent::new(open.id, end)).await;
        }
    }
}

impl Drop for AuditEntry {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let duration_us = Some(clock::now().since(open.time));
            // A change that was begun may be made all the same.
            let outcome = if self.is_change { Outcome::InDoubt } else { Outcome::Aborted };
            let outcome = OutcomeEvent { duration_us, ..OutcomeEvent::bare(open.id, outcome) };
            self.journal.handle.writer.append_outcome(&outcome, self.is_change);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::FutureExt as _;
    use tempfile::TempDir;
    use uuid::Uuid;

    use super::*;
    use crate::audit::settings::{Durability, OnUnavailable, RefusalRecords};
    use crate::audit::{LowWater, Reader};
    use domain::budget::Cost;
    use domain::identity::AuthMethod;
    use platform::metrics::Metrics;

    pub(crate) const END: UseEnd =
        UseEnd { outcome: Outcome::Completed, status: Some(200), duration_us: 1, request_bytes: 0, response_bytes: 0 };

    pub(crate) fn settings(directory: &TempDir, durability: Durability) -> Settings {
        Settings {
            path: directory.path().to_owned(),
            durability,
            on_unavailable: OnUnavailable::Refuse,
            segment_size: 1 << 20,
            segment_age: Duration::from_secs(3600),
            retention_age: None,
            retention_size: None,
            retention_by_volume: false,
            retention_unshipped: 0,
            low_water: LowWater::Percent(10),
            unknown_per_second: 1,
            addresses: crate::audit::Addresses::Full,
            refusals: RefusalRecords::Coalesced,
            gateway: "gw".into(),
            checkpoints: None,
        }
    }

    pub(crate) fn opening() -> Use<'static> {
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
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        }
    }

    fn replace_file(journal: &Journal, path: &str) -> File {
        let file = File::options().write(true).open(path).unwrap();
        journal.handle.writer.lock_segment().file.replace(file).unwrap()
    }

    #[tokio::test]
    async fn failed_writes_lose_and_duplicate_no_outcome() {
        let directory = TempDir::new().unwrap();
        let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        let open = journal.begin(&opening()).await.unwrap();
        // A device without free space, which cannot be truncated either.
        let good = replace_file(&journal, "/dev/full");
        open.close(END);
        assert!(journal.begin(&opening()).await.is_err());
        assert!(!journal.is_available());
        journal.handle.writer.lock_segment().file = Some(good);
        journal.begin(&opening()).await.unwrap().close(END);
        assert!(journal.is_available());
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.events, report.problem_count), (2, 5, 0));
    }

    /// A segment may become due just when the journal is closed: its file is there then, and nothing is in it.
    #[tokio::test]
    async fn segment_that_was_prepared_and_not_begun_is_gone_after_the_close() {
        let directory = TempDir::new().unwrap();
        let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        journal.begin(&opening()).await.unwrap().close(END);
        let writer = &journal.handle.writer;
        writer.lock_segment().prepare_next(&writer.settings).unwrap();
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.segments, report.records, report.problems), (1, 1, vec![]));
    }

    #[test]
    fn uses_that_are_ready_together_share_one_write() {
        let directory = TempDir::new().unwrap();
        let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        let alone = journal.begin(&opening()).now_or_never().expect("waits for no other use").unwrap();
        let openings: Vec<Use<'_>> = (0..10).map(|_| opening()).collect();
        let mut begun: Vec<_> = openings.iter().map(|opening| Box::pin(journal.begin(opening))).collect();
        // All of them are polled before one of them is polled again, as in one turn of an event loop.
        assert!(begun.iter_mut().all(|begun| begun.now_or_never().is_none()));
        let first = begun.remove(0).now_or_never().expect("writes").unwrap();
        assert!(journal.handle.writer.lock_pending().is_empty(), "the lines of all are written");
        let others: Vec<_> =
            begun.into_iter().map(|begun| begun.now_or_never().expect("is written").unwrap()).collect();
        assert_eq!(others.len(), 9);
        drop((alone, first, others));
        journal.handle.stop();
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.problem_count), (11, 0));
    }

    #[test]
    fn lines_of_a_dropped_future_are_written() {
        let directory = TempDir::new().unwrap();
        let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        let _open = journal.begin(&opening()).now_or_never().unwrap().unwrap();
        assert!(journal.record(&opening(), END).now_or_never().is_none(), "waits for others of its turn");
        // The record was appended, and nothing polls its future again.
        while !journal.handle.writer.lock_pending().is_empty() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn segment_grows_old_by_the_times_of_its_events() {
        // Longer than the age of a segment.
        let long = Duration::from_secs(2 * 3600);
        let late = Use { time: clock::now().after(long), ..opening() };
        let long_end = UseEnd { duration_us: long.as_micros() as u64, ..END };
        for (event, end, is_due) in [(opening(), long_end, true), (late, END, true), (opening(), END, false)] {
            let directory = TempDir::new().unwrap();
            let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
            journal.begin(&event).await.unwrap().close(end);
            // The outcome is written with the next use at the latest.
            journal.begin(&opening()).await.unwrap();
            assert_eq!(journal.handle.writer.lock_segment().number > 1, is_due, "{end:?}");
            journal.close().await;
        }
    }

    #[tokio::test]
    async fn failed_sync_stops_the_journal_until_a_restart() {
        let directory = TempDir::new().unwrap();
        let settings = settings(&directory, Durability::Synced);
        let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
        let open = journal.begin(&opening()).await.unwrap();
        let before = journal.tap().end();
        // A device that accepts every write and fails every sync.
        let good = replace_file(&journal, "/dev/null");
        assert!(journal.begin(&opening()).await.is_err());
        journal.handle.writer.lock_segment().file = Some(good);
        open.close(END);
        assert!(!journal.is_available());
        assert_eq!(journal.tap().end(), before, "sinks get no line that may not be on disk");
        assert!(journal.begin(&opening()).await.is_err(), "the sync is not repeated");
        journal.close().await;
        let journal = Journal::open(settings, Metrics::new().audit).unwrap();
        journal.begin(&opening()).await.unwrap().close(END);
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.problem_count), (2, 0));
    }

    #[tokio::test]
    async fn segment_is_continued_until_the_next_one_can_be_created() {
        let directory = TempDir::new().unwrap();
        let settings = Settings { segment_size: 2000, ..settings(&directory, Durability::Written) };
        let journal = Journal::open(settings, Metrics::new().audit).unwrap();
        // A directory has the name of the next segment.
        let blocked = segment::path(directory.path(), 2);
        std::fs::create_dir(&blocked).unwrap();
        for _ in 0..50 {
            journal.begin(&opening()).await.unwrap().close(END);
        }
        assert!(journal.is_available() && journal.handle.writer.lock_segment().number == 1);
        std::fs::remove_dir(&blocked).unwrap();
        let mut uses = 50;
        while journal.handle.writer.lock_segment().number == 1 {
            journal.begin(&opening()).await.unwrap().close(END);
            tokio::time::sleep(Duration::from_millis(10)).await;
            uses += 1;
        }
        journal.close().await;
        let report = Reader::open(directory.path()).unwrap().verify().unwrap();
        assert_eq!((report.records, report.problems), (uses, vec![]));
    }
}
