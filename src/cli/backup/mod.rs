//! `keygate state export`, `import` and `verify`: the whole state as a file of JSON lines, through the running gateway
//! or, when none runs, on the stores.

mod export;
mod import;
mod journaled;
mod parts;
mod transfer;
mod verify;

use std::path::PathBuf;

pub(super) use export::{export, read_state};
pub(super) use import::import;
pub(super) use verify::{read_file, verify};

/// Arguments of `keygate state export`.
#[derive(Debug, clap::Args)]
pub(super) struct ExportArgs {
    /// File to write, with mode 0600; it appears under this name when it is complete. Default: standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Arguments of `keygate state import`.
#[derive(Debug, clap::Args)]
pub(super) struct ImportArgs {
    /// File that `keygate state export` wrote; `-` for standard input, which is not checked before it is imported
    file: PathBuf,
}

/// Arguments of `keygate state verify`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// File that `keygate state export` wrote
    #[arg(required_unless_present = "journal", conflicts_with = "journal")]
    file: Option<PathBuf>,
    /// A later export to compare it with. Default: the state of the configuration, as it is now
    other: Option<PathBuf>,
    /// Name the revocations, removals and suspensions of the audit that the state lacks, as after a restore
    #[arg(long)]
    journal: bool,
}
