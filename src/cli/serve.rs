//! `keygate serve`: the gateway itself.

use crate::config::Config;

pub(super) fn run(_config: Config) -> anyhow::Result<()> {
    anyhow::bail!("this command is not there yet")
}
