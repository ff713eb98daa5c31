//! The sink in PostgreSQL: the table of the records, and the position of each journal.
//!
//! - [`record_table`]: batches and positions; [`rows`]: rows of the table; [`schema`]: tables and migrations;
//!   [`partitions`]: the days of the records; [`copy_format`]: rows for COPY;
//!   [`checkpoint_table`]: checkpoints of the journals.

mod checkpoint_table;
mod copy_format;
mod partitions;
mod record_table;
mod rows;
mod schema;

pub(super) use record_table::RecordTable;
pub use schema::SCHEMA;
