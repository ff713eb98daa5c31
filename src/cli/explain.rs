//! `keygate explain`: explains why a key is refused, by its current state and its last decisions in the journal.

use anyhow::anyhow;
use serde::Serialize;

use super::audit::{self, note_status, page, show_records};
use super::key_id::KeyIdParser;
use super::show::{self, Format};
use super::{CliError, control, output};
use crate::config::Config;
use ::control::admin::{Operation, Reply};
use ::control::management::Explanation;
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Filter, Outcome, Record, RecordKind, ViewPage, ViewStatus};

/// Number of decisions to show.
const DECISIONS: usize = 10;

/// Arguments of `keygate explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Key id: the nine characters after sk_live_
    #[arg(value_parser = KeyIdParser)]
    key_id: KeyId,
    #[command(flatten)]
    format: Format,
}

impl Args {
    pub(super) fn run(self, config: &Config) -> Result<(), CliError> {
        let reply = control::perform(config, &Operation::Explain { key: self.key_id })?;
        let Reply::Explanation { mut explanation } = reply else {
            return Err(anyhow!("the gateway answered something else").into());
        };
        let filter = Filter { key: Some(self.key_id), kind: Some(RecordKind::Request), ..Filter::default() };
        let ViewPage { records: decisions, status, .. } = page(&audit::open(config)?, &filter, DECISIONS)?;
        if let Some(expired) = decisions.iter().find(|record| record.outcome == Outcome::Refused(Refusal::Expired)) {
            let last = output::seconds(expired.last());
            explanation.verdict +=
                &format!("; requests with the replaced secret are refused (401), the last one at {last}");
        }
        if self.format.json {
            let view = status.as_ref();
            return Ok(output::json(&ExplanationOutput { explanation: &explanation, decisions: &decisions, view })?);
        }
        show::explanation(&explanation)?;
        output::line("")?;
        show_records(&decisions)?;
        note_status(status.as_ref());
        Ok(())
    }
}

/// JSON form of an explanation.
#[derive(Serialize)]
struct ExplanationOutput<'a> {
    explanation: &'a Explanation,
    decisions: &'a [Record],
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<&'a ViewStatus>,
}
