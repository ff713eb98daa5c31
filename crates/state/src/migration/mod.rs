//! Migration: export and import of a state as a file, which move it between any two variants, also while gateways serve
//! from the target.
//!
//! - [`import()`] takes records from a file ([`mod@file`]) into any state. Absent records are created. Of those that
//!   are there, revocations, removals and suspensions are taken over; every other difference is a conflict, which is
//!   reported and changes nothing. So an old file brings no revoked key back and fills no bucket.
//! - Organizations come first, then the users of each, then its federation rules and keys, and management tokens last.
//! - A batch is looked up on the target, and what is missing is written by one script, unless another writer was
//!   faster. So an import that was interrupted anywhere is completed by another one.
//! - [`compare()`] finds what one file has and another one lacks or has otherwise: with an export of the target, the
//!   proof that a move was complete.

mod report;
mod retry;
mod difference;
mod found;
mod look_up;
mod batch;
mod import;
mod compare;
pub mod file;

pub use compare::{Comparison, Records, compare};
pub use import::import;
pub use report::{Count, Finding, LeftOut, Mismatch, Record, Report};
pub use retry::MigrationError;
