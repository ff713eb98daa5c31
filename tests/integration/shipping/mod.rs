//! Shipping of the audit: what sinks get of a journal, across failures and restarts.

mod checkpoints;
mod older_journal;
mod postgresql;
mod schema;
mod sinks;
mod usage;
mod stream;
mod retention;
mod partitions;
mod refused;
mod stop;
mod kinds;
mod throughput;
