//! Reading the journal, while a gateway writes it and while none does.
//!
//! - [`reader`]: the handle [`reader::Reader`]: listing and export.
//! - [`join`]: joins each use with its outcome.
//! - [`stop`]: stops reads whose callers are gone.
//! - [`follower`]: follows a growing journal.
//! - [`activity`]: requests and refusals of keys by the hour, and their last uses.
//! - [`verify`]: checks the integrity of a journal; [`verify_report`]: what it found; [`beginning`]: what was removed.
//! - [`replay`]: numbered uses, for the state at start.

pub(crate) mod reader;
pub(crate) mod cursor;
mod join;
pub(crate) mod stop;
pub(crate) mod follower;
pub(crate) mod activity;
pub(crate) mod beginning;
pub(crate) mod verify_report;
pub(crate) mod verify;
pub(crate) mod replay;
