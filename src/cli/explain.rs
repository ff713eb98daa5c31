//! `keygate explain`: explains why a key is refused, by its current state and its last decisions in the journal. The id
//! of a request stands for the key of that request. Where its refusal may have been folded into a record with a count,
//! the key of that record is a candidate, which the command says.

use anyhow::anyhow;
use serde::Serialize;

use super::audit::{self, RecordList, note_status, page, show_list, show_records};
use super::call::Call;
use super::installation::Installation;
use super::key_record::{decision_text, events, insert_responsible, limit, owner};
use super::key_target::{KeyTarget, TargetArgs};
use super::output::{joined, or_dash, seconds, word};
use super::plan_flags::limits_origin;
use super::remote::{self, RemoteArgs, RemoteServer};
use super::show::{Fields, Format, time};
use super::{CliError, ExitStatus, control, org, output};
use ::control::management::policy_text::policy_fields;
use ::control::management::{Explanation, Key, KeyStatus, User};
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Filter, MissingRecord, Outcome, Record, RecordKind, ViewPage, ViewStatus};

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
        let request = find_request(installation, &target)?;
        let mut explanation: Explanation = control::with_server(installation, async |server| {
            let key = match &request {
                None => target.resolve(server).await?,
                Some(request) => match key_of(request) {
                    Some(key) => key,
                    None => return Err(unexplained(request, self.format)),
                },
            };
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
            let request = request.as_ref().map(RecordList::new);
            return Ok(output::json(&ExplanationOutput {
                request,
                explanation: &explanation,
                last_refusal,
                decisions,
                view,
            })?);
        }
        if let Some(request) = &request {
            show_list(request, self.format)?;
            if request.records.is_empty() {
                output::note(format_args!(
                    "this is what is known of key {key}; the request may have had no key at all"
                ));
            }
            output::line("")?;
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

/// The record of the request that a target names, or the explanation why there is none; `None` when it names a key.
fn find_request(installation: &Installation, target: &KeyTarget) -> Result<Option<ViewPage>, CliError> {
    let Some(id) = target.request_id() else { return Ok(None) };
    // Keys of another system may look like ids of requests.
    if control::with_server(installation, async |server| target.is_whole_key(server).await)? {
        return Ok(None);
    }
    let filter = Filter { id: Some(id), ..Filter::default() };
    let found = match installation.remote() {
        Some(server) => remote::records(server, &filter, 1)?,
        None => page(&audit::open(&installation.config()?)?, &filter, 1)?,
    };
    Ok(Some(found))
}

/// The key of a request: that of its record, or of all records that may stand for it.
fn key_of(request: &ViewPage) -> Option<KeyId> {
    match request.records.first() {
        Some(record) => record.key_id,
        None => request.missing.as_ref().and_then(MissingRecord::key),
    }
}

/// Shows a request that is not of one key, and returns the error of the command.
fn unexplained(request: &ViewPage, format: Format) -> CliError {
    let error = anyhow!("the audit does not say of which key this request was");
    show_list(request, format).err().unwrap_or_else(|| CliError::new(ExitStatus::Failed, error))
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
        ("limit", format!("{} {}", limit(&key.limits), limits_origin(&key.limits))),
        ("bucket", of_bucket(format!("{} of {} tokens", standing.remaining, standing.burst))),
        ("next token", of_bucket(standing.next_token.map_or("available now".into(), seconds))),
        ("full", of_bucket(standing.full.map_or("now".into(), seconds))),
        ("in flight", format!("{of_key}{} of {}, of the whole organization", standing.in_flight, standing.concurrent)),
        ("requests", key.uses.to_string()),
        ("last used", time(key.last_used)),
        ("last refusal", or_dash(refusal.map(refusal_text))),
    ]);
    if let Some(budget) = &standing.quota {
        let text = format!("{} of {} spent, until {}", budget.used, budget.units, seconds(budget.end));
        let place = fields.iter().position(|(name, _)| *name == "in flight").unwrap_or(fields.len());
        fields.insert(place, ("quota", of_bucket(text)));
    }
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
            let refusals = remote::records(server, &Filter { refused: Some(true), ..filter }, 1)?.records;
            let ViewPage { records, status, .. } = remote::records(server, &filter, DECISIONS)?;
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
    /// The request whose id was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<RecordList<'a>>,
    #[serde(flatten)]
    explanation: &'a Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_refusal: Option<&'a Record>,
    decisions: &'a [Record],
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<&'a ViewStatus>,
}
