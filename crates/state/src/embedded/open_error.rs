//! The error of opening the state file.

use std::path::PathBuf;

/// Reason why the state file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds its lock.
    #[error("{0} is in use by another process")]
    Locked(PathBuf),
    /// A file system operation failed.
    #[error("{path}: cannot be opened")]
    Io {
        /// The file that could not be opened.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The directory does not exist, and cannot be made.
    #[error("{path}: the directory cannot be made; check the cause, or make it as root for the user of the gateway")]
    Directory {
        /// The state's directory.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// SQLite failed.
    #[error("{path}: cannot be read as a state file")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: rusqlite::Error,
    },
    /// Another version of keygate wrote it.
    #[error(
        "{path}: has version {found} of the state file, and this keygate reads version {known}; export it with the \
         keygate that wrote it (`keygate state export`), and import that file here into a new one"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that can be read.
        known: i64,
    },
}
