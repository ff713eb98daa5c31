//! `keygate explain`: explains why a key is refused, by its current state and its last decisions in the journal.

use serde::Serialize;

use super::audit::{self, note_status, page, show_records};
use super::call::Call;
use super::installation::Installation;
use super::key_target::TargetArgs;
use super::remote::{self, RemoteArgs, RemoteServer};
use super::show::{self, Format};
use super::{CliError, control, output};
use ::control::management::Explanation;
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Filter, Outcome, Record, RecordKind, ViewPage, ViewStatus};

/// Number of decisions to show.
const DECISIONS: usize = 10;
/// Bytes of the journal that are read at most for a refusal before these: many requests may have been admitted since.
const MAX_READ: u64 = 64 << 20;
/// Note in place of the decisions.
const NO_DECISIONS: &str = "the last decisions are not shown: the configuration has errors; see `keygate check`";

/// Arguments of `keygate explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

impl Args {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        let target = self.target.read()?;
        let mut explanation: Explanation = control::with_server(installation, async |server| {
            let key = target.resolve(server).await?;
            server.perform(&Call::get(&["keys", &key.to_string(), "explain"])).await
        })?;
        let key = explanation.key.id;
        let last = match installation.remote() {
            Some(server) => LastDecisions::fetch(server, key),
            None => LastDecisions::read(installation, key)?,
        };
        let decisions = last.as_ref().map_or(&[][..], |last| &last.records);
        let view = last.as_ref().and_then(|last| last.status.as_ref());
        let last_of = |refusal| decisions.iter().find(|record| record.outcome == Outcome::Refused(refusal));
        if let Some(expired) = last_of(Refusal::Expired) {
            let at = output::seconds(expired.last());
            explanation.verdict +=
                &format!("; requests with the replaced secret are refused (401), the last one at {at}");
        }
        let last_refusal = last.as_ref().and_then(LastDecisions::refusal);
        let by_address = last_refusal.filter(|refusal| refusal.outcome == Outcome::Refused(Refusal::AddressRefused));
        if let Some(refused) = by_address.filter(|_| !explanation.key.policy.networks.is_empty()) {
            let ip = refused.ip.map(|ip| format!(" {ip}")).unwrap_or_default();
            let at = output::seconds(refused.last());
            explanation.verdict += &format!("; the last request from another address{ip} was refused at {at}");
        }
        if self.format.json {
            return Ok(output::json(&ExplanationOutput { explanation: &explanation, last_refusal, decisions, view })?);
        }
        show::explanation(&explanation, last_refusal)?;
        if last.is_some() {
            output::line("")?;
            show_records(decisions)?;
        }
        note_status(view);
        Ok(())
    }
}

/// The last decisions about a key, and its last refusal.
struct LastDecisions {
    records: Vec<Record>,
    status: Option<ViewStatus>,
    /// None among the records that were read.
    refusal: Option<Record>,
}

impl LastDecisions {
    /// Reads them from the files of the journal, whose place only a valid configuration tells; none without one.
    fn read(installation: &Installation, key: KeyId) -> Result<Option<Self>, CliError> {
        let Ok(config) = installation.config() else {
            output::note(NO_DECISIONS);
            return Ok(None);
        };
        let audit = audit::open(&config)?;
        let filter = Filter { key: Some(key), kind: Some(RecordKind::Request), ..Filter::default() };
        let refusals = audit.list(&Filter { refused: Some(true), ..filter }, 1, None, MAX_READ)?;
        let refusal = refusals.records.into_iter().next();
        let ViewPage { records, status, .. } = page(&audit, &filter, DECISIONS)?;
        Ok(Some(Self { records, status, refusal }))
    }

    /// The same of a gateway elsewhere; none where its audit cannot be read.
    fn fetch(server: &RemoteServer, key: KeyId) -> Option<Self> {
        let filter = Filter { key: Some(key), kind: Some(RecordKind::Request), ..Filter::default() };
        let read = || {
            let (refusals, _) = remote::records(server, &Filter { refused: Some(true), ..filter }, 1)?;
            let (records, status) = remote::records(server, &filter, DECISIONS)?;
            Ok::<_, CliError>(Self { records, status, refusal: refusals.into_iter().next() })
        };
        read()
            .map_err(|error| output::note(format_args!("the last decisions are not shown: {:#}", error.into_cause())))
            .ok()
    }

    /// The last refusal. The list of decisions may be the later one.
    fn refusal(&self) -> Option<&Record> {
        let mut shown = self.records.iter();
        shown.find(|record| record.outcome.is_refusal()).or(self.refusal.as_ref())
    }
}

/// JSON form of an explanation.
#[derive(Serialize)]
struct ExplanationOutput<'a> {
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refusal: Option<&'a Record>,
    decisions: &'a [Record],
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<&'a ViewStatus>,
}
