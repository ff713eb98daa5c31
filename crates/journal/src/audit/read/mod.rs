//! Reading the journal, while a gateway writes it and while none does.
//!
//! - [`reader`]: the handle [`reader::Reader`]: listing and export, by time ([`time_order`]).
//! - [`join`]: joins each use with its outcome.
//! - [`stop`]: stops reads whose callers are gone.
//! - [`follower`]: follows a growing journal; [`stream`]: does so from a position on, across restarts, and with the
//!   checkpoints in it ([`journal_checkpoint`]); [`record_join`]: joins its lines.
//! - [`activity`]: requests and refusals of keys by the hour, and their last uses.
//! - [`range_usage`]: usage of an organization or a key in a range of time, by the index.
//! - [`verify`]: checks the integrity of a journal; [`verify_report`]: what it found; [`beginning`]: what was removed.
//! - [`verify_derived`]: checks what was derived from it, too: indexes, and its own checkpoints.
//! - [`verify_tree`]: checks a journal against checkpoints, of which there are [`copies`]; [`prove`]: proves
//!   that a record is in it; [`check_proof`]: checks such a proof without the journal.
//! - [`metering`]: usage by organization, key or route, day by day or month by month.
//! - [`replay`]: numbered uses, for the state at start.

pub(crate) mod reader;
pub(crate) mod cursor;
mod join;
mod time_order;
pub(crate) mod stop;
pub(crate) mod follower;
pub(crate) mod journal_checkpoint;
pub(crate) mod record_join;
pub(crate) mod stream;
pub(crate) mod activity;
pub(crate) mod range_usage;
pub(crate) mod metering;
pub(crate) mod beginning;
pub(crate) mod verify_report;
pub(crate) mod copies;
pub(crate) mod verify_tree;
pub(crate) mod verify;
pub(crate) mod verify_derived;
pub(crate) mod prove;
pub(crate) mod check_proof;
pub(crate) mod replay;
