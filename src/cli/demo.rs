//! `keygate demo`: everything on this machine, to be tried out.

use std::net::SocketAddr;
use std::path::PathBuf;

/// What can be chosen.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the gateway listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(super) listen: SocketAddr,
    /// Where to keep the demo's state; default: a new temporary directory
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

pub(super) fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("this command is not there yet")
}
