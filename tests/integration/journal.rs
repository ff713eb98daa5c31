//! The audit journal over real files: exactly one record per use, whatever happens to the gateway,
//! the disk or the files.

pub mod support;
mod mixed_journal;

mod records;
mod tokens;
mod counting;
mod request_text;
mod segments;
mod space;
mod removal;
mod integrity;
mod recovery;
mod compression;
mod other_version;
pub mod tree;
pub mod checkpoints;
mod tampering;
mod witnesses;
mod full_disk;
mod reading;
mod index;
mod unindexed;
mod activity;
pub mod range_usage;
mod refusals;
pub mod missing;
mod usage;
