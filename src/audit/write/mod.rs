//! Writing the journal.
//!
//! - [`journal`]: the handle [`journal::Journal`] and its open uses.
//! - [`pending`]: lines that are not yet written, and uses that are open, under one short lock.
//! - [`writer`]: writes batches of pending lines to the active segment.
//! - [`committer`]: the thread that writes outcomes, and everything when `synced`.
//! - [`maintenance`]: the thread that rotates by age, seals, indexes and removes segments.
//! - [`open`] and [`recovery`]: start of a journal: lock, state after the last gateway, threads.

pub(crate) mod journal;
mod open;
mod recovery;
mod pending;
mod writer;
mod committer;
mod maintenance;
mod retention;
mod unknown_key_limiter;
