//! Writing the journal.
//!
//! - [`journal`]: the handle [`journal::Journal`] and its open uses.
//! - [`condition`]: whether it records requests, and whether they reach the disk.
//! - [`left_changes`]: changes by management without an outcome, whose process was killed.
//! - [`append`]: appending of lines by requests, and waiting until they are written; requests that are ready together
//!   share one write.
//! - [`pending`]: lines that are not written yet and uses that are open, under one short lock; [`completion`]: the
//!   result of a batch for those who wait for it.
//! - [`position`]: how far the journal has come, for those who replay it.
//! - [`tap`]: access for programs that follow the journal in this process.
//! - [`mode`]: the journal's mode, as a state machine: running, no room, handed over, sync failed, closed.
//! - [`batch_steps`]: the order in which a batch is written, synced and acknowledged, as a state machine;
//!   [`write_batch`]: performs it.
//! - [`writer`]: writes batches of pending lines to the [`active_segment`], whose space is allocated in advance
//!   ([`allocation`]).
//! - [`committer`]: the thread that writes outcomes, and everything when `synced`.
//! - [`timed_sync`]: the thread that syncs each second when uses are only `written`.
//! - [`refusals`]: refusals of known keys, which are coalesced.
//! - [`maintenance`]: the thread that rotates by age, compresses ([`compression`]), seals and indexes closed segments,
//!   watches the [`free_space`] and, by [`retention`], removes segments: the old ones by several clocks
//!   ([`age_limit`]), those that sinks have not taken later ([`needed_segments`]).
//! - [`checkpoints`]: the thread that hashes lines and signs checkpoints of the [`journal_tree`] by the [`signer`]'s
//!   key, which [`witness`]es cosign.
//! - [`handover`]: handing the journal over to another process; [`spool`]: the lines that come afterwards;
//!   [`predecessor`]: takes these into the journal; [`use_guards`]: guards that are held until its uses end.
//! - [`open`], [`recovery`] and [`newest_record`]: opening: lock, state that the last gateway left, threads;
//!   [`damaged_tail`] and [`torn_tail`]: what is behind its last good line.

mod sync;
pub(crate) mod journal;
mod condition;
mod left_changes;
mod append;
pub(crate) mod position;
pub(crate) mod tap;
mod handle;
mod open;
mod torn_tail;
mod damaged_tail;
pub(crate) mod recovery;
mod newest_record;
mod handover;
pub(crate) mod spool;
mod use_guards;
mod predecessor;
pub(crate) mod completion;
pub(crate) mod pending;
pub(crate) mod mode;
pub(crate) mod batch_steps;
mod write_batch;
mod allocation;
mod active_segment;
mod writer;
pub(crate) mod committer;
mod timed_sync;
mod compression;
mod maintenance;
mod age_limit;
mod retention;
mod journal_tree;
mod witness;
pub(super) mod signer;
mod checkpoints;
mod needed_segments;
mod free_space;
pub(crate) mod refusals;
