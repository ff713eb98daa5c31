//! The audit journal: exactly one record per use of a key, also when the client vanishes; none is lost when the process
//! is killed.
//!
//! A journal is a directory of append-only segments `NNNNNNNNNN.jsonl`, a line per event: a *use* before its request is
//! forwarded, its *outcome* after the last byte, or both in one *record* for what ended where it began. A segment begins
//! with a *header* that lists the uses open at that moment; closed segments are *sealed* by their SHA-256 in a later one.
//!
//! - **Durable first.** [`Journal::begin`] returns when the use is in the kernel (`written`) or on the disk (`synced`).
//! - **Exactly one end.** An outcome is appended only while its use is open; what a dead gateway left open is closed as
//!   `aborted` by the next [`Journal::open`]. A kill loses at most the outcomes of its last 10 ms, whose records are then
//!   `aborted`; never a record.
//! - **No hop.** With `written` the request's own thread writes, for all who came in meanwhile; with `synced` a committer
//!   thread writes and syncs for all.
//! - **No gap.** Lines are numbered over all segments, and each carries a checksum: [`Reader::verify`] finds what was
//!   torn, changed, taken out or put in.
//! - **Full disk.** What could not be written is cut off again, its requests are refused or go on unrecorded, as
//!   configured, and the next one tries anew. Outcomes are kept until there is room.
//! - **Failed sync.** It is never tried again: the kernel may have dropped the pages. The journal takes nothing more until
//!   a restart. Uses refused because of it may be in the file; the restart closes them as `aborted`.
//!
//! What is read from requests is capped and escaped before it is written, so that a terminal may show it.

use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Micros;
use crate::identity::UserId;
use crate::key::KeyId;

mod record;
mod event;
mod frame;
mod escape;

// Writing.
mod journal;
mod startup;
mod pending;
mod writer;
mod committer;
mod keeper;
mod segment;
mod seal;
mod retention;
mod recovery;
mod limiter;

// Reading.
mod reader;
mod join;
mod tally;
mod activity;
mod follow;
mod uses;
mod index;
mod verify;

pub use activity::{ACTIVITY_HOURS, HourlyActivity, KeyActivity, LastUse};
pub use follow::Follower;
pub use journal::{AuditEntry, Journal};
pub use reader::{Filter, InvalidJournalCursor, JournalCursor, Reader, RecordPage};
pub use record::{Outcome, Record, Use, UseEnd};
pub use verify::{Defect, VerifyReport};

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
    /// Another process writes this journal.
    #[error("{path}: locked by another process that writes this journal")]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
}

/// The credential with which a numbered use was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// This key.
    Key(KeyId),
    /// A session of this user.
    Session(UserId),
}

/// A numbered use that the journal holds, for the replay at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayEntry {
    /// The key or session user.
    pub by: UsedBy,
    /// When.
    pub time: Micros,
    /// The number of the use.
    pub number: u64,
}
