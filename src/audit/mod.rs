//! The audit journal: exactly one record per use of a key, also when the client vanishes; none is lost when the process
//! is killed.

use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Micros;
use crate::key::KeyId;
use crate::metrics::AuditMetrics;

mod record;

pub use record::{End, Outcome, Record, Use};

/// How the journal is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of the segments and the index; created when missing, mode 0700.
    pub path: PathBuf,
    /// What a use event must have survived before its request is forwarded.
    pub durability: Durability,
    /// What to do with requests when the journal cannot be written.
    pub on_unavailable: OnUnavailable,
    /// A segment is closed when it has grown to this many bytes.
    pub segment_size: u64,
    /// A segment is closed when it is this old.
    pub segment_age: Duration,
    /// Closed segments older than this are removed; none: never.
    pub retention_age: Option<Duration>,
    /// The oldest closed segments are removed while all together are larger than this many bytes; none: never.
    pub retention_size: Option<u64>,
    /// Attempts with unknown keys recorded per second at most; the rest is only counted.
    pub unknown_per_second: u32,
    /// The name of this gateway in its records.
    pub gateway: String,
}

/// What a use event must have survived before its request is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process: it is in the kernel.
    Written,
    /// The death of the machine: fdatasync, group commit.
    Synced,
}

/// What to do with requests when the journal cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnavailable {
    /// 503 `audit_unavailable`, and not ready.
    Refuse,
    /// Go on, and count what was not recorded.
    Drop,
}

/// The journal cannot take the record.
#[derive(Debug, thiserror::Error)]
#[error("the audit journal cannot be written")]
pub struct Unavailable;

/// Why the journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system said no.
    #[error("{path}: cannot be opened")]
    Io {
        /// What could not be opened.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A use of a key that the journal holds, for the replay at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The key.
    pub key: KeyId,
    /// When.
    pub time: Micros,
    /// The number of the use.
    pub number: u64,
}

/// The journal; clones share it.
#[derive(Clone, Debug)]
pub struct Journal;

/// An open use. Dropped without [`Entry::close`], it is recorded as aborted.
#[derive(Debug)]
pub struct Entry;

#[allow(unused_variables, clippy::unused_async, missing_docs)]
impl Journal {
    pub fn open(settings: Settings, metrics: AuditMetrics) -> Result<Self, OpenError> {
        unimplemented!()
    }
    /// The numbered uses at or after a time, from the segments; for the replay at start.
    pub fn uses_since(&self, since: Micros) -> Result<Vec<Seen>, OpenError> {
        unimplemented!()
    }
    /// Records the beginning of a use; returns when it is as durable as configured. The request may then be forwarded.
    pub async fn begin(&self, opening: &Use<'_>) -> Result<Entry, Unavailable> {
        unimplemented!()
    }
    /// Records a use that ended where it began: a refusal, or a change made by management.
    pub async fn record(&self, opening: &Use<'_>, end: End) -> Result<(), Unavailable> {
        unimplemented!()
    }
    /// Records an attempt with an unknown key, at the bounded rate. Never waits, never fails: it counts what it drops.
    pub fn attempt(&self, opening: &Use<'_>, end: End) {
        unimplemented!()
    }
    /// Whether uses can be recorded now.
    pub fn available(&self) -> bool {
        unimplemented!()
    }
    /// Writes out everything, syncs and closes. Later calls answer [`Unavailable`].
    pub async fn close(&self) {
        unimplemented!()
    }
}

#[allow(unused_variables, missing_docs)]
impl Entry {
    /// Records the outcome.
    pub fn close(self, end: End) {
        unimplemented!()
    }
}
