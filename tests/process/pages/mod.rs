//! The commands of README.md and of the pages in `docs/`, run as they stand there. `tests/pages/blocks.rs` has the
//! table of all blocks.

mod commands;
mod key_policies;
mod management_api;
mod outputs;
mod checkpoints;
mod coming_from;
mod verification;
