//! Timed sync (fsync): brings the journal to disk once a second while uses are only written before their requests are
//! forwarded.
//!
//! - The loss of power takes the lines of about the last second, instead of those that the kernel keeps for half a
//!   minute. The state counts the tokens of these uses from the journal, so it bounds also how many tokens come back.
//! - It runs on a thread of its own: no request waits for it, and nothing is synced while nothing is written.
//! - A failed sync is not repeated (the kernel may have dropped the pages). From then on the journal is no longer what
//!   the state can count from, and the state writes its usage back each second.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::writer::JournalWriter;
use crate::audit::format::segment::{self, Point};
use crate::files;

/// Pause between two syncs.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the sender of `stop` is dropped, or until a sync fails.
pub(crate) fn run(writer: &JournalWriter, stop: &Receiver<()>) {
    let mut timed_sync = TimedSync::new(writer);
    while stop.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        // Another thread may have met the failure: what the kernel has dropped, no later sync would bring to disk.
        if writer.has_failed_sync() || writer.note_sync(timed_sync.sync_new_lines(File::sync_data)).is_err() {
            return;
        }
    }
}

/// The part of a journal that is on disk.
struct TimedSync<'a> {
    writer: &'a JournalWriter,
    synced: Point,
}

impl<'a> TimedSync<'a> {
    /// Begins with the active segment as a whole: a killed gateway may have written its lines.
    fn new(writer: &'a JournalWriter) -> Self {
        Self { writer, synced: Point { segment: writer.lock_segment().number, offset: 0 } }
    }

    /// Brings what was written since the last call to disk by `sync`, if there is something.
    fn sync_new_lines(&mut self, sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let (file, end) = {
            let segment = self.writer.lock_segment();
            let end = Point { segment: segment.number, offset: segment.length };
            if end == self.synced {
                return Ok(());
            }
            // Requests write on while the copy is synced.
            (segment.current_file().map(File::try_clone).transpose()?, end)
        };
        let directory = &self.writer.settings.path;
        for closed in self.synced.segment.max(1)..end.segment {
            sync_closed(directory, closed, &sync)?;
        }
        if self.synced.segment < end.segment {
            files::sync_directory(directory)?;
        }
        file.as_ref().map_or(Ok(()), sync)?;
        self.synced = end;
        *self.writer.synced.lock() = end;
        Ok(())
    }
}

/// Syncs a segment that was closed since the last time. One that is compressed is on disk.
pub(crate) fn sync_closed(directory: &Path, number: u64, sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    files::if_found(File::open(segment::path(directory, number)))?.as_ref().map_or(Ok(()), sync)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::audit::write::journal::tests::{END, opening, settings};
    use crate::audit::{Durability, Journal, Settings};
    use platform::metrics::Metrics;

    #[tokio::test]
    async fn each_written_line_is_synced_once_whatever_segment_it_is_in() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { segment_size: 1000, ..settings(&directory, Durability::Written) };
        let journal = Journal::open(settings, Metrics::new().audit).unwrap();
        let writer = &journal.handle.writer;
        // Segments that are compressed are synced by that.
        for number in 1..20 {
            std::fs::create_dir(directory.path().join(format!("{number:010}.jsonl.zst.tmp"))).unwrap();
        }
        let inode = |number| segment::path(directory.path(), number).metadata().unwrap().ino();
        let synced = RefCell::new(Vec::new());
        let sync = |file: &File| {
            synced.borrow_mut().push(file.metadata().unwrap().ino());
            Ok(())
        };
        let mut timed_sync = TimedSync::new(writer);
        timed_sync.sync_new_lines(sync).unwrap();
        assert_eq!(synced.take(), [inode(1)]);
        timed_sync.sync_new_lines(sync).unwrap();
        assert_eq!(synced.take(), [0; 0], "nothing was written");
        let entry = journal.begin(&opening()).await.unwrap();
        timed_sync.sync_new_lines(sync).unwrap();
        assert_eq!(synced.take(), [inode(1)]);
        entry.close(END);
        while writer.lock_segment().number < 4 {
            journal.begin(&opening()).await.unwrap().close(END);
        }
        timed_sync.sync_new_lines(sync).unwrap();
        assert_eq!(synced.take(), (1..=timed_sync.synced.segment).map(inode).collect::<Vec<_>>());
        journal.begin(&opening()).await.unwrap().close(END);
        timed_sync.sync_new_lines(|_| Err(io::ErrorKind::Other.into())).unwrap_err();
        journal.close().await;
    }

    #[tokio::test]
    async fn state_cannot_count_from_a_journal_that_is_not_synced() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(settings(&directory, Durability::Written), Metrics::new().audit).unwrap();
        let position = journal.position_probe();
        assert!(position().is_some());
        let failed = journal.handle.writer.note_sync(Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err() && position().is_none());
        assert!(journal.has_failed_sync() && journal.accepts_requests(), "requests go on, and the gateway says so");
        assert_eq!(journal.handle.writer.metrics.sync_failures.get(), 1);
        // Another thread met the failure: no sync after it would bring back what the kernel has dropped.
        let (_stop, stopped) = std::sync::mpsc::channel();
        run(&journal.handle.writer, &stopped);
        journal.close().await;
    }
}
