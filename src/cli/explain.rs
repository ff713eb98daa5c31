//! `keygate explain`: explains why a key is refused, by its current state and its last decisions in the journal.

use serde::Serialize;

use super::audit::{self, note_status, page, show_records};
use super::call::Call;
use super::installation::Installation;
use super::key_record::{decision_text, events, insert_responsible, limit, owner};
use super::key_target::TargetArgs;
use super::output::{joined, or_dash, seconds, word};
use super::policy_text::policy_fields;
use super::remote::{self, RemoteArgs, RemoteServer};
use super::show::{Fields, Format, origin, time};
use super::{CliError, control, org, output};
use ::control::management::{Explanation, Key, KeyStatus, User};
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
        output::line(&explanation.verdict)?;
        output::line("")?;
        output::fields(&fields(&explanation, last_refusal))?;
        if last.is_some() {
            output::line("")?;
            show_records(decisions, self.format)?;
        }
        note_status(view);
        Ok(())
    }
}

/// The fields of the explanation of a key, with its last refusal.
fn fields(explanation: &Explanation, refusal: Option<&Record>) -> Fields {
    let Explanation { key, user, org, standing, .. } = explanation;
    // The bucket of a key that is refused admits no request, however full it is.
    let is_refused = key.status != KeyStatus::Active;
    let of_bucket = |text: String| if is_refused { "-".to_owned() } else { text };
    let of_key = standing.key.map(|slots| format!("{} of {} of the key; ", slots.in_flight, slots.concurrent));
    let of_key = of_key.unwrap_or_default();
    let refusal_text = |last: &Record| decision_text(last.last(), last.outcome, last.status, last.ip);
    let mut fields = vec![
        ("key", format!("{} `{}`, {}", key.id, key.name, word(key.status))),
        ("user", owner(&user.email, user.id, user.kind)),
        ("permissions", effective_permissions(key, user)),
        ("organization", format!("{} {}, {}", org.name, org.id, org::status(org))),
    ];
    fields.extend(policy_fields(&key.policy).into_iter().filter(|(name, _)| *name != "permissions"));
    fields.extend([
        ("limit", format!("{} {}", limit(&key.limits), origin(key.limits.own))),
        ("bucket", of_bucket(format!("{} of {} tokens", standing.remaining, standing.burst))),
        ("next token", of_bucket(standing.next_token.map_or("available now".into(), seconds))),
        ("full", of_bucket(standing.full.map_or("now".into(), seconds))),
        ("in flight", format!("{of_key}{} of {}, of the whole organization", standing.in_flight, standing.concurrent)),
        ("requests", key.uses.to_string()),
        ("last used", time(key.last_used)),
        ("last refusal", or_dash(refusal.map(refusal_text))),
    ]);
    fields.extend(events(key, "old secret valid until"));
    insert_responsible(&mut fields, user.responsible.as_ref());
    fields
}

/// The permissions that requests with a key have; of a key that has less than its user, both.
fn effective_permissions(key: &Key, user: &User) -> String {
    let effective = joined(key.policy.effective_permissions(&user.permissions));
    match &key.policy.permissions {
        Some(own) => format!("{effective} (of the key: {}; of the user: {})", joined(own), joined(&user.permissions)),
        None => effective,
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
