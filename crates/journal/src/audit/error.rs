//! Errors of writing the journal.

use std::path::PathBuf;

use tlog::key::InvalidKey;

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
    /// The directory does not exist, and cannot be made.
    #[error("{path}: the directory cannot be made; check the cause, or make it as root for the user of the gateway")]
    Directory {
        /// The journal's directory.
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
    /// The file of the key that signs checkpoints has no such key.
    #[error("{path}: this private key of checkpoints {source}; `keygate audit key new` makes one")]
    Key {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: InvalidKey,
    },
    /// The key that signs checkpoints has another name than the configured origin.
    #[error("{path}: the key's name is `{name}`, and `origin` is another one")]
    Origin {
        /// The file of the key.
        path: PathBuf,
        /// Name of the key.
        name: String,
    },
}
