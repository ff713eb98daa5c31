//! The journal that a view reads.

use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::audit::journal_id;
use crate::audit::read::reader::Reader;
use crate::audit::write::journal::Journal;

/// The journal of this gateway.
#[derive(Clone, Debug)]
pub(super) enum JournalSource {
    /// This process writes it, and has the index of its open segment.
    Journal(Journal),
    /// It is in this directory; another process may write it.
    Directory(PathBuf),
}

impl JournalSource {
    /// The journal in a directory, which must be readable.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        Reader::open(directory)?;
        Ok(Self::Directory(directory.to_owned()))
    }

    pub(super) fn reader(&self) -> io::Result<Reader> {
        match self {
            Self::Journal(journal) => journal.reader(),
            Self::Directory(directory) => Reader::open(directory),
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
