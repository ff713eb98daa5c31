//! Handing the journal over to another process, and taking it back when that comes to nothing.
//!
//! - After [`Journal::hand_over`], the lines of this process go to a spool, and the journal is complete without them:
//!   another process that gets the lock may continue it. Nothing waits: requests go on.
//! - [`Journal::take_back`] appends the spool to the journal, whose lines are numbered as if nothing had happened. The
//!   other process must not have written to the journal.
//! - After [`Journal::leave`], the journal belongs to the other process, which merges the spool
//!   ([`super::predecessor`]).

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::Arc;

use super::journal::Journal;
use super::mode::Event;
use super::open::{self, BackgroundThreads, JournalThread};
use super::refusals::flusher;
use super::spool::{Spool, SpoolHeader};
use super::writer::JournalWriter;
use crate::audit::format::version::VERSION;
use crate::audit::index::indexer::Indexer;
use domain::identity::OrgId;
use domain::key::KeyId;

impl Journal {
    /// Writes everything, sends what comes from now on to a spool, and returns a copy of the lock's
    /// file. Blocks for a write.
    ///
    /// # Errors
    /// When the journal cannot be written, or is closed; it goes on as before then.
    pub fn hand_over(&self) -> io::Result<File> {
        let mut running = self.handle.running.lock();
        let threads = running.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let lock = threads.lock.as_ref().ok_or(io::ErrorKind::NotConnected)?.try_clone()?;
        let background = threads.background.take().ok_or(io::ErrorKind::NotConnected)?;
        let writer = &self.handle.writer;
        // Refusals that were counted become records, and none is counted from now on. One that is being counted holds
        // the lock of its shard, which the last flush takes.
        writer.apply(Event::HandedOver, None);
        let mut indexer = background.stop(writer)?;
        indexer.close_database();
        let diverted = divert(writer);
        match diverted {
            Ok(()) => threads.indexer = Some(indexer),
            Err(_) => {
                writer.apply(Event::TakenBack, None);
                threads.background = Some(open::start_background(writer, indexer, Vec::new())?);
            }
        }
        diverted.map(|()| lock)
    }

    /// Takes the journal back: nothing has come of the hand-over.
    ///
    /// # Errors
    /// When the spool cannot be appended to the journal. Lines go to the spool then, which the next start merges.
    pub fn take_back(&self) -> io::Result<()> {
        let mut running = self.handle.running.lock();
        let threads = running.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let writer = &self.handle.writer;
        {
            let mut segment = writer.lock_segment();
            writer.flush(&mut segment)?;
            segment.take_back(&writer.settings)?;
            writer.apply(Event::TakenBack, None);
        }
        if let Some(indexer) = threads.indexer.take() {
            threads.background = Some(open::start_background(writer, indexer, Vec::new())?);
        }
        Ok(())
    }

    /// Returns whether nothing was appended to the journal since [`Journal::hand_over`]. Otherwise the log
    /// says what was found.
    pub fn is_untouched(&self) -> bool {
        let writer = &self.handle.writer;
        let checked = writer.lock_segment().check_untouched(&writer.settings);
        if let Err(reason) = &checked {
            tracing::error!(%reason, "the audit journal cannot be taken back: it is the other process's now");
        }
        checked.is_ok()
    }

    /// Leaves the journal to the process that has a copy of the lock's file.
    pub fn leave(&self) {
        let mut running = self.handle.running.lock();
        if let Some(threads) = running.as_mut() {
            threads.indexer = None;
            threads.lock = None;
        }
    }

    /// Holds a guard for each admitted use that a predecessor still serves, until the use ends: one of its organization
    /// and, unless a session made it, its key. Returns their number. Call before the first use of this process.
    pub fn hold_for_predecessor(
        &self,
        guard: impl FnMut(OrgId, Option<KeyId>) -> Option<Box<dyn Debug + Send>>,
    ) -> usize {
        self.handle.writer.predecessor_uses.hold(&self.handle.writer.pending, guard)
    }
}

/// Writes everything, and sends what comes from now on to a spool.
fn divert(writer: &Arc<JournalWriter>) -> io::Result<()> {
    let mut segment = writer.lock_segment();
    writer.flush(&mut segment)?;
    writer.note_sync(segment.sync())?;
    segment.discard_next(&writer.settings);
    let mut spool = Spool::create(&writer.settings.path, segment.number)?;
    let pending = writer.lock_pending();
    let header = SpoolHeader { version: VERSION, open: pending.unfinished_uses() };
    let takes_lines = pending.mode.get().takes_lines();
    let begun = if takes_lines { spool.begin(&header) } else { Err(io::ErrorKind::NotConnected.into()) };
    drop(pending);
    if let Err(error) = begun {
        spool.remove();
        return Err(error);
    }
    // Nothing was written since the flush: the segment is locked.
    segment.divert(spool);
    Ok(())
}

impl BackgroundThreads {
    /// Stops the threads, which write what they have, and returns the index.
    pub(crate) fn stop(self, writer: &JournalWriter) -> io::Result<Indexer> {
        // These end first: they append records, seals and the lines of a predecessor.
        writer.refusals.close();
        self.refusals.stop()?;
        let indexer = self.maintenance.stop()?;
        self.follower.map(JournalThread::stop).transpose()?;
        // A refusal that was being counted when the thread ended.
        flusher::flush_all(writer);
        // The last one: its checkpoint covers what the others have written.
        self.checkpoints.map(JournalThread::stop).transpose()?;
        Ok(indexer)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use tempfile::TempDir;

    use super::*;
    use crate::audit::Reader;
    use crate::audit::format::segment;
    use crate::audit::settings::{Durability, Settings};
    use crate::audit::write::journal::tests::{END, opening, settings};
    use platform::metrics::Metrics;

    const USES: u64 = 50;

    async fn journal_with_uses(settings: &Settings) -> Journal {
        let journal = Journal::open(settings.clone(), Metrics::new().audit).unwrap();
        for _ in 0..USES {
            journal.begin(&opening()).await.unwrap().close(END);
        }
        journal
    }

    /// A journal in each state in which the file of its open segment was opened in another way.
    async fn journals(directory: &TempDir) -> Vec<(&'static str, Journal)> {
        let state = |name: &str, segment_size| Settings {
            path: directory.path().join(name),
            segment_size,
            ..settings(directory, Durability::Written)
        };
        let new = journal_with_uses(&state("new", 1 << 20)).await;
        let rotated = journal_with_uses(&state("rotated", 2000)).await;
        assert!(rotated.handle.writer.lock_segment().number > 1);
        let recovered = state("recovered", 1 << 20);
        journal_with_uses(&recovered).await.close().await;
        let recovered = Journal::open(recovered, Metrics::new().audit).unwrap();
        vec![("new", new), ("rotated", rotated), ("recovered", recovered)]
    }

    #[tokio::test]
    async fn journal_that_nobody_has_continued_is_taken_back_in_every_state() {
        let directory = TempDir::new().unwrap();
        for (name, journal) in journals(&directory).await {
            let lock = journal.hand_over().unwrap();
            journal.begin(&opening()).await.unwrap().close(END);
            assert!(journal.is_untouched(), "{name}");
            journal.take_back().unwrap();
            drop(lock);
            journal.close().await;
            let report = Reader::open(&directory.path().join(name)).unwrap().verify().unwrap();
            assert_eq!((report.records, report.problems), (USES + 1, vec![]), "{name}");
        }
    }

    #[tokio::test]
    async fn journal_that_another_process_has_continued_is_touched_in_every_state() {
        let directory = TempDir::new().unwrap();
        for (name, journal) in journals(&directory).await {
            let _lock = journal.hand_over().unwrap();
            let (number, end) = {
                let segment = journal.handle.writer.lock_segment();
                (segment.number, segment.length)
            };
            let path = segment::path(&directory.path().join(name), number);
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(b"{", end).unwrap();
            assert!(!journal.is_untouched(), "{name}: a byte was appended");
            file.write_all_at(b"\0", end).unwrap();
            assert!(journal.is_untouched(), "{name}: it is allocated space again");
            File::create(segment::path(&directory.path().join(name), number + 1)).unwrap();
            assert!(!journal.is_untouched(), "{name}: the next segment was begun");
        }
    }
}
