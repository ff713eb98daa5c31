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

mod settings;
mod error;
mod filter;
mod format;
mod write;
mod index;
mod read;

pub use error::{OpenError, Unavailable};
pub use filter::Filter;
pub use format::record::{Outcome, Record, Use, UseEnd};
pub use read::activity::{ACTIVITY_HOURS, HourlyActivity, KeyActivity, LastUse};
pub use read::cursor::{InvalidJournalCursor, JournalCursor};
pub use read::follower::Follower;
pub use read::reader::{Reader, RecordPage};
pub use read::replay::{ReplayEntry, UsedBy};
pub use read::verify::{Defect, VerifyReport};
pub use settings::{Durability, OnUnavailable, Settings};
pub use write::journal::{AuditEntry, Journal};
