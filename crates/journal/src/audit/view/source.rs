//! The journal that a view reads.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use crate::audit::format::segment;
use crate::audit::journal_id;
use crate::audit::read::reader::Reader;
use crate::audit::write::committer::MAX_OUTCOME_DELAY;
use crate::audit::write::journal::Journal;

/// Time after which another process has written the outcomes that it had, also on a busy machine.
const WRITTEN_WITHIN: Duration = MAX_OUTCOME_DELAY.saturating_mul(5);

/// The journal of this gateway.
#[derive(Clone, Debug)]
pub(super) enum JournalSource {
    /// This process writes it, and has the index of its open segment.
    Journal(Journal),
    /// It is in this directory; another process may write it.
    Directory(PathBuf),
}

impl JournalSource {
    /// The journal in a directory, which must be readable. Where a gateway writes it, waits until the outcomes are
    /// there that the gateway has now: a request that has ended is not to be shown as in progress.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        Reader::open(directory)?;
        if segment::is_locked(directory) {
            std::thread::sleep(WRITTEN_WITHIN);
        }
        Ok(Self::Directory(directory.to_owned()))
    }

    pub(super) fn reader(&self) -> io::Result<Reader> {
        self.write_pending();
        match self {
            Self::Journal(journal) => journal.reader(),
            Self::Directory(directory) => Reader::open(directory),
        }
    }

    /// Has this process write what it has to its journal, before the files are read.
    pub(super) fn write_pending(&self) {
        if let Self::Journal(journal) = self {
            journal.handle.write_pending();
        }
    }

    /// The directory of its segments.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Journal(journal) => journal.directory(),
            Self::Directory(directory) => directory,
        }
    }

    /// The name under which it is shipped; `None` when it never was.
    pub(super) fn identity(&self) -> io::Result<Option<Uuid>> {
        // A damaged name is replaced when the journal is shipped.
        journal_id::read(self.directory())
    }
}
