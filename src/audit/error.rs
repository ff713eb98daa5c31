//! Errors of writing the journal.

use std::path::PathBuf;

/// The journal cannot take the record.
#[derive(Debug, thiserror::Error)]
#[error("the audit journal cannot be written")]
pub struct Unavailable;

/// The journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or directory of the journal could not be read, created or locked.
    #[error("{path}: cannot be opened")]
    Io {
        /// The journal's directory, or the file in it that failed.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Another process writes this journal.
    #[error("{path}: locked by another process that writes this journal")]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
}
