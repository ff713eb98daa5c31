//! `keygate state export` and `keygate state import`: the whole state as a file of JSON lines, through the running
//! gateway or, when none runs, on the stores.

mod counts;
mod export;
mod import;
mod progress;
mod transfer;

use std::path::PathBuf;

pub(super) use counts::show_counts;
pub(super) use export::export;
pub(super) use import::import;

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
