//! Records of the audit: requests, changes, activity and usage, with the filters of `keygate usage` and
//! `keygate audit list`.

use std::str::FromStr;

use super::call::Call;
use super::{Answer, input};
use crate::json_input::use_filter;
use crate::management;
use crate::management::{ManagementError, UsageRequest, UsageScope, UseFilter};
use crate::request::ControlRequest;
use domain::clock::Micros;
use journal::audit::{BillingPeriod, Filter, RecordKind, UsageBy};

pub(super) async fn show_usage(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let management = call.management();
    let request = usage(call.request, management::has_fleet(management))?;
    Ok(Answer::new(&management::show_usage(management, call.actor, request, call.now()).await?))
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
    let filter = use_filter(call.request)?;
    Ok(Answer::new(
        &management::list_uses(call.management(), call.actor, key, filter, &call.page()?, call.now()).await?,
    ))
}

pub(super) async fn list_changes(call: &Call<'_>) -> Result<Answer, ManagementError> {
    Ok(Answer::new(
        &management::list_changes(call.management(), call.actor, &call.org()?, &call.page()?, call.now()).await?,
    ))
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
    let UseFilter { outcome, refused } = use_filter(request)?;
    Ok(Filter {
        key: parsed(request, "key", "the id of a key")?,
        user: parsed(request, "user", "the id of a user")?,
        subject: parsed(request, "subject", "the id of a user")?,
        token: parsed(request, "token", "the id of a token")?,
        org: None,
        since: time(request, "since")?,
        until: time(request, "until")?,
        id: parsed(request, "id", "the id of a request")?,
        outcome,
        kind: choice(request, "kind", &kinds)?,
        refused,
        covers: None,
    })
}

fn time(request: &ControlRequest, name: &str) -> Result<Option<Micros>, ManagementError> {
    parsed(request, name, "an RFC 3339 time, such as 2026-01-31T12:00:00Z")
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
