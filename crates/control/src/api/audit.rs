//! Records of the audit: requests, changes, activity and usage, with the filters of `keygate usage` and
//! `keygate audit list`.

use std::str::FromStr;

use super::call::Call;
use super::{Answer, csv, input};
use crate::json_input::{time, use_filter};
use crate::management;
use crate::management::{ACTIONS, ChangeEntry, ChangeFilter, ManagementError, UsageRequest, UsageScope, UseFilter};
use crate::request::ControlRequest;
use journal::audit::{BillingPeriod, Filter, RecordKind, UsageBy, UsageRange};

pub(super) async fn show_usage(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let management = call.management();
    let request = usage(call.request, management::has_fleet(management))?;
    Ok(Answer::new(&management::show_usage(management, call.actor, request, call.now()).await?))
}

pub(super) async fn show_overview(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let (org, range) = (call.org()?, range(call.request)?);
    Ok(Answer::new(&management::show_overview(call.management(), call.actor, &org, range, call.now()).await?))
}

pub(super) async fn show_key_usage(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let (key, range) = (call.key()?, range(call.request)?);
    Ok(Answer::new(&management::show_key_usage(call.management(), call.actor, key, range, call.now()).await?))
}

/// The range that a query asks for; a day by default.
pub(crate) fn range(request: &ControlRequest) -> Result<UsageRange, ManagementError> {
    let Some(name) = request.parameter("range") else { return Ok(UsageRange::Day) };
    UsageRange::from_name(name).ok_or_else(|| {
        let names = UsageRange::ALL.map(UsageRange::name).join(", ");
        ManagementError::InvalidQuery(format!("`range` must be one of {names}"))
    })
}

pub(super) async fn list_records(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let filter = records(call.request)?;
    let org = call.request.parameter("org");
    Ok(Answer::new(
        &management::list_records(call.management(), call.actor, org, filter, &call.page()?, call.now()).await?,
    ))
}

pub(super) async fn list_uses(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let key = call.key()?;
    let action = parsed(call.request, "action", "the name of a route, or METHOD /path")?;
    let filter = UseFilter { action, ..use_filter(call.request)? };
    Ok(Answer::new(
        &management::list_uses(call.management(), call.actor, key, filter, &call.page()?, call.now()).await?,
    ))
}

pub(super) async fn list_changes(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let (org, filter) = (call.org()?, changes(call.request)?);
    let page = call.page()?;
    Ok(Answer::new(&management::list_changes(call.management(), call.actor, &org, &filter, &page, call.now()).await?))
}

/// All changes of the list as one file, for a spreadsheet.
pub(super) async fn list_changes_as_csv(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let (org, changes) = all_changes(call, "csv").await?;
    Ok(Answer::other(csv::MEDIA_TYPE, csv::render_changes(&changes)).saved_as(&format!("changes-{org}.csv")))
}

/// All changes of the list, a JSON object on each line.
pub(super) async fn list_changes_as_ndjson(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let (org, changes) = all_changes(call, "ndjson").await?;
    let line = |change| serde_json::to_string(change).expect("names and numbers are JSON") + "\n";
    let lines: String = changes.iter().map(line).collect();
    Ok(Answer::other("application/x-ndjson", lines).saved_as(&format!("changes-{org}.ndjson")))
}

async fn all_changes(call: &Call<'_>, form: &str) -> Result<(String, Vec<ChangeEntry>), ManagementError> {
    let (org, filter) = (call.org()?, changes(call.request)?);
    let found = management::export_changes(call.management(), call.actor, &org, &filter, form, call.now()).await?;
    Ok((org, found))
}

/// The filter of a list of changes.
pub(crate) fn changes(request: &ControlRequest) -> Result<ChangeFilter, ManagementError> {
    let action = |name: &str| match ACTIONS.iter().find(|(known, _)| *known == name) {
        Some((known, _)) => Ok(*known),
        None => Err(ManagementError::InvalidQuery("`action` is not an operation, such as key.create".into())),
    };
    let by = request.parameter("by");
    if by.is_some_and(str::is_empty) {
        return Err(ManagementError::InvalidQuery("`by` is empty; give a user, or leave it out".into()));
    }
    let UseFilter { outcome, since, until, .. } = use_filter(request)?;
    Ok(ChangeFilter {
        by: by.unwrap_or_default().to_owned(),
        token: parsed(request, "token", "the id of a token")?,
        key: parsed(request, "key", "the id of a key")?,
        action: request.parameter("action").map(action).transpose()?,
        outcome,
        since,
        until,
    })
}

pub(super) async fn show_activity(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let keys = input::key_list(call.request)?;
    Ok(Answer::new(&management::key_activity(call.management(), call.actor, &call.org()?, keys, call.now()).await?))
}

/// The usage that a query asks for, at a gateway that reads the records of all gateways or not.
fn usage(request: &ControlRequest, has_fleet: bool) -> Result<UsageRequest, ManagementError> {
    let by = [("org", UsageBy::Org), ("key", UsageBy::Key), ("route", UsageBy::Route)];
    let per = [("day", BillingPeriod::Day), ("month", BillingPeriod::Month)];
    let scope = [("fleet", UsageScope::Fleet), ("gateway", UsageScope::Gateway)];
    let by = choice(request, "by", &by)?;
    let scope = choice(request, "scope", &scope)?;
    if scope == Some(UsageScope::Fleet) && !has_fleet {
        return Err(ManagementError::InvalidQuery(
            "`scope` is fleet, and `audit.ship` of this gateway has no PostgreSQL".into(),
        ));
    }
    let since = time(request, "since")?;
    let until = time(request, "until")?;
    if since.zip(until).is_some_and(|(since, until)| since >= until) {
        return Err(ManagementError::InvalidQuery("`since` is not before `until`; no use can match".into()));
    }
    Ok(UsageRequest {
        by: by.ok_or_else(|| ManagementError::InvalidQuery("give `by`: org, key or route".into()))?,
        per: choice(request, "per", &per)?.unwrap_or(BillingPeriod::Day),
        since,
        until,
        by_gateway: parsed(request, "by_gateway", "true or false")?.unwrap_or(false),
        org: request.parameter("org").map(str::to_owned),
        scope,
    })
}

/// The filter of a list of records, without its organization.
fn records(request: &ControlRequest) -> Result<Filter, ManagementError> {
    let kinds = [("request", RecordKind::Request), ("change", RecordKind::Change)];
    let UseFilter { outcome, action: _, refused, since, until } = use_filter(request)?;
    Ok(Filter {
        key: parsed(request, "key", "the id of a key")?,
        user: parsed(request, "user", "the id of a user")?,
        subject: parsed(request, "subject", "the id of a user")?,
        token: parsed(request, "token", "the id of a token")?,
        org: None,
        since,
        until,
        id: parsed(request, "id", "the id of a request")?,
        action: None,
        outcome,
        kind: choice(request, "kind", &kinds)?,
        refused,
        covers: None,
    })
}

fn parsed<T: FromStr>(request: &ControlRequest, name: &str, what: &str) -> Result<Option<T>, ManagementError> {
    let parse =
        |text: &str| text.parse().map_err(|_| ManagementError::InvalidQuery(format!("`{name}` must be {what}")));
    request.parameter(name).map(parse).transpose()
}

fn choice<T: Copy>(request: &ControlRequest, name: &str, values: &[(&str, T)]) -> Result<Option<T>, ManagementError> {
    let Some(text) = request.parameter(name) else { return Ok(None) };
    let found = values.iter().find(|(value, _)| *value == text).map(|(_, value)| *value);
    let names = || values.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(Some).ok_or_else(|| ManagementError::InvalidQuery(format!("`{name}` must be one of {}", names())))
}
