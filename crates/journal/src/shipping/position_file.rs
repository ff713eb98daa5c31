//! File with the position of a sink.
//!
//! It is replaced as a whole, and on the disk before the next batch is read: after a crash it is
//! the old or the new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::audit::{StreamPosition, journal_id};
use crate::files;

/// File with the position of a sink.
#[derive(Debug)]
pub(super) struct PositionFile {
    path: PathBuf,
}

impl PositionFile {
    pub(super) fn new(journal: &Path, sink: &str) -> Self {
        Self { path: journal_id::ship_directory(journal).join(format!("{sink}.json")) }
    }

    /// Reads the position; the beginning of the journal when there is none, or it cannot be read.
    pub(super) fn read(&self) -> StreamPosition {
        let read = fs::read(&self.path).and_then(|text| Ok(serde_json::from_slice(&text)?));
        read.unwrap_or_else(|error: io::Error| {
            if error.kind() != io::ErrorKind::NotFound {
                // Records come again then, which loses nothing.
                tracing::warn!(%error, path = %self.path.display(),
                    "cannot read the position of an audit sink; shipping from the beginning of the journal");
            }
            StreamPosition::START
        })
    }

    /// Replaces the position; it is on the disk when this returns.
    pub(super) fn write(&self, position: &StreamPosition) -> io::Result<()> {
        files::replace(&self.path, &serde_json::to_vec(position)?)
    }

    /// Replaces the position, which survives the end of the process, and perhaps not that of the machine.
    pub(super) fn write_unsynced(&self, position: &StreamPosition) -> io::Result<()> {
        files::replace_unsynced(&self.path, &serde_json::to_vec(position)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_survives_and_a_damaged_one_is_the_beginning() {
        let journal = tempfile::tempdir().unwrap();
        fs::create_dir(journal_id::ship_directory(journal.path())).unwrap();
        let file = PositionFile::new(journal.path(), "files");
        assert_eq!(file.read(), StreamPosition::START);
        let position = StreamPosition { segment: 3, offset: 400, line: 70, last_line: 300, checksum: 9 };
        file.write(&position).unwrap();
        assert_eq!(file.read(), position);
        fs::write(&file.path, b"{\"segment\":").unwrap();
        assert_eq!(file.read(), StreamPosition::START);
    }
}
