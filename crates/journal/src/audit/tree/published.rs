//! The files of the latest checkpoint, beside the segments of a journal.
//!
//! `checkpoint` is signed by the gateway; `checkpoint.cosigned` is the latest that a witness has cosigned, with all its
//! signatures. Both are replaced as a whole.

use std::fs;
use std::io;
use std::path::Path;

use crate::files;
use tlog::checkpoint::SignedCheckpoint;

/// Names of the files.
pub(crate) const SIGNED: &str = "checkpoint";
pub(crate) const COSIGNED: &str = "checkpoint.cosigned";

/// The latest checkpoint of a journal, for those who keep copies of it elsewhere: sinks, monitors, auditors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestCheckpoint {
    /// Name of the journal's tree.
    pub origin: String,
    /// Number of lines that it covers.
    pub size: u64,
    /// The signed note.
    pub note: String,
    /// The latest note that witnesses have cosigned, with their signatures. It may cover fewer lines.
    pub cosigned: Option<String>,
}

impl LatestCheckpoint {
    /// Reads the latest checkpoint of the journal in a directory; `None` when there is none.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let Some(signed) = read(directory, SIGNED)? else { return Ok(None) };
        let cosigned =
            read(directory, COSIGNED)?.filter(|cosigned| cosigned.checkpoint.origin == signed.checkpoint.origin);
        Ok(Some(Self {
            note: signed.note.to_string(),
            origin: signed.checkpoint.origin,
            size: signed.checkpoint.size,
            cosigned: cosigned.map(|cosigned| cosigned.note.to_string()),
        }))
    }
}

/// Returns whether the journal in a directory has been signed.
pub(crate) fn exists(directory: &Path) -> bool {
    directory.join(SIGNED).exists()
}

/// Reads a checkpoint; `None` when there is none, or the file has none in it.
pub(crate) fn read(directory: &Path, name: &str) -> io::Result<Option<SignedCheckpoint>> {
    let bytes = files::if_found(fs::read(directory.join(name)))?.unwrap_or_default();
    Ok(str::from_utf8(&bytes).ok().and_then(SignedCheckpoint::parse))
}

/// Replaces a checkpoint. It is not synced: after a power failure an older checkpoint is still valid.
pub(crate) fn write(directory: &Path, name: &str, note: &str) -> io::Result<()> {
    files::replace_unsynced(&directory.join(name), note.as_bytes())
}
