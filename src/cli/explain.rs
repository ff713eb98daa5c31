//! `keygate explain`: why a key is refused. The state tells where it stands, the journal what was decided last.

use anyhow::Context as _;

use super::audit::{self, records, show_records};
use super::key_id::KeyIdParser;
use super::show::{self, Format};
use super::{Failure, control, output};
use crate::audit::Filter;
use crate::config::Config;
use crate::key::KeyId;
use crate::management::{Operation, Reply};

/// Decisions to show.
const DECISIONS: usize = 10;

/// Which key.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The nine characters after sk_live_
    #[arg(value_parser = KeyIdParser)]
    key_id: KeyId,
    #[command(flatten)]
    format: Format,
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), Failure> {
        let reply = control::perform(config, &Operation::Explain { key: self.key_id })?;
        let filter = Filter { key: Some(self.key_id), ..Filter::default() };
        let decisions = records(&audit::open(config)?, &filter, DECISIONS)?;
        if self.format.json {
            return Ok(output::json(&explained(&reply, &decisions)?)?);
        }
        show::reply(reply, self.format)?;
        output::line("")?;
        Ok(show_records(&decisions)?)
    }
}

fn explained(reply: &Reply, decisions: &[crate::audit::Record]) -> anyhow::Result<serde_json::Value> {
    let mut value = show::untagged(reply)?;
    let object = value.as_object_mut().context("a reply is an object")?;
    object.insert("decisions".to_owned(), serde_json::to_value(decisions)?);
    Ok(value)
}
