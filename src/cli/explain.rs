//! `keygate explain`: explains why a key is refused, by its current state and its last decisions in the journal.

use anyhow::anyhow;
use serde::Serialize;

use super::audit::{self, note_status, page, show_records};
use super::installation::Installation;
use super::key_id::KeyIdParser;
use super::show::{self, Format};
use super::{CliError, control, output};
use ::control::admin::{Operation, Reply};
use ::control::management::Explanation;
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Filter, Outcome, Record, RecordKind, ViewStatus};

/// Number of decisions to show.
const DECISIONS: usize = 10;
/// Note in place of the decisions.
const NO_DECISIONS: &str = "the last decisions are not shown: the configuration has errors; see `keygate check`";

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
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let reply = control::perform(installation, &Operation::Explain { key: self.key_id })?;
        let Reply::Explanation { mut explanation } = reply else {
            return Err(anyhow!("the gateway answered something else").into());
        };
        let filter = Filter { key: Some(self.key_id), kind: Some(RecordKind::Request), ..Filter::default() };
        // The journal is read from its files, whose place only a valid configuration tells.
        let page = match installation.config() {
            Ok(config) => Some(page(&audit::open(&config)?, &filter, DECISIONS)?),
            Err(_) => {
                output::note(NO_DECISIONS);
                None
            }
        };
        let decisions = page.as_ref().map_or(&[][..], |page| &page.records);
        let view = page.as_ref().and_then(|page| page.status.as_ref());
        if let Some(expired) = decisions.iter().find(|record| record.outcome == Outcome::Refused(Refusal::Expired)) {
            let last = output::seconds(expired.last());
            explanation.verdict +=
                &format!("; requests with the replaced secret are refused (401), the last one at {last}");
        }
        if self.format.json {
            return Ok(output::json(&ExplanationOutput { explanation: &explanation, decisions, view })?);
        }
        show::explanation(&explanation)?;
        if page.is_some() {
            output::line("")?;
            show_records(decisions)?;
        }
        note_status(view);
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
