//! The records of all gateways, read from PostgreSQL.
//!
//! - Calls block, each up to a deadline. One thread drives the few connections; it ends with the [`Fleet`].
//! - After a failure, PostgreSQL is left alone for some seconds: meanwhile reads fail at once, and a page that reads
//!   several times waits once.
//! - Sums over a range of time are not read from records, of which there may be millions, but from a [`rollup`].
//! - A [`Snapshot`] is one read-only transaction: all that is read in it is of one moment.

mod error;
mod pool;
mod rollup;
mod rows;
mod statement;
mod usage;

pub use error::OpenFleetError;
pub use pool::Fleet;

pub(super) use error::FleetError;
pub(super) use pool::Snapshot;
pub(super) use rollup::{Recent, Rollup};
pub(super) use rows::{HourOfKey, JournalRow, MAX_APPEND_DELAY};
pub(super) use statement::{End, MAX_ROWS, RecordQuery};
