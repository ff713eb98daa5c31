//! The page of one key.

use std::time::Duration;

use super::keys::activity_chart;
use super::{HandlerResult, PageContext, key_id, key_policy, keys, render};
use crate::dashboard::pages::{
    AdmissionFilter, BudgetCell, Gauge, KeyDetails, KeyLimits, KeyPage, LimitUsage, NavEntry, OutcomeText, PlanCell,
    PolicyFacts, RecordSource, ResponsibleCell, Timestamp, UseFilter as PageFilter, UseRow, Verdict, format_count,
    link,
};
use crate::management;
use crate::management::{
    ActivityReport, Explanation, Key, KeyActor, KeyStatus, LimitStatus, ManagementError, Org, UseFilter, UsePage, User,
};
use domain::key::KeyId;
use domain::page::{PageLimit, PageQuery};
use journal::audit::{Outcome, Record};
use platform::settings::WithUnit;

/// Uses on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(20);
/// Refused uses that are shown beside.
const REFUSALS: PageLimit = PageLimit::of(5);

/// Records about a key; each is `None` when it cannot be read.
struct KeyRecords {
    activity: Option<ActivityReport>,
    uses: Option<UsePage>,
    refusals: Option<UsePage>,
}

pub(super) async fn show_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let explanation =
        management::explain_key(context.management, &context.actor, key_id(id)?, context.request.now).await?;
    let records = key_records(context, explanation.key.id).await?;
    render(&key_page(context, explanation, records).await?)
}

async fn key_records(context: &PageContext<'_>, key: KeyId) -> Result<KeyRecords, ManagementError> {
    let refused = UseFilter { refused: Some(true), outcome: None };
    Ok(KeyRecords {
        activity: keys::key_activity(context, vec![key]).await?,
        uses: uses(context, key, use_filter(page_filter(context)), &context.page_query(PAGE_SIZE)).await?,
        refusals: uses(context, key, refused, &PageQuery::first(REFUSALS)).await?,
    })
}

/// Some uses of a key; `None` when the journal cannot be read.
async fn uses(
    context: &PageContext<'_>,
    key: KeyId,
    filter: UseFilter,
    page: &PageQuery,
) -> Result<Option<UsePage>, ManagementError> {
    let uses = management::list_uses(context.management, &context.actor, key, filter, page, context.request.now).await;
    context.if_readable(uses, "the requests with a key")
}

async fn key_page(
    context: &PageContext<'_>,
    explanation: Explanation,
    records: KeyRecords,
) -> Result<KeyPage, ManagementError> {
    let Explanation { verdict, key, user, org, standing } = explanation;
    let KeyRecords { activity, uses, refusals } = records;
    let own_activity = activity.as_ref().and_then(|report| report.keys.get(&key.id));
    let filter = page_filter(context);
    let older = |uses: &Option<UsePage>, filter| {
        let cursor = uses.as_ref().and_then(|uses| uses.page.next.as_ref());
        cursor.map(|cursor| uses_href(context, key.id, filter, cursor))
    };
    let only_refused = PageFilter { admission: AdmissionFilter::Refused, outcome: None };
    let is_revoked = key.status == KeyStatus::Revoked;
    Ok(KeyPage {
        layout: context.layout(NavEntry::Keys).await?,
        key: key_details(context, &key, &user, activity.as_ref()),
        limits: key_limits(&key, &org),
        // The bucket of a revoked key limits no requests any more.
        usage: (!is_revoked)
            .then(|| limit_usage(context, &standing, key_budget(context, &standing, &key, &user, &org))),
        policy: PolicyFacts { concurrent: concurrent(&key), ..key_policy::policy_facts(context, &key.policy) },
        verdict: Verdict { admitted: is_admitted(&key, &standing), sentence: verdict },
        activity: own_activity.map(activity_chart),
        older_refusals: older(&refusals, only_refused),
        refusals: refusals.iter().flat_map(|uses| &uses.page.items).map(|record| use_row(context, record)).collect(),
        newer: context.page_query(PAGE_SIZE).cursor.map(|_| uses_href(context, key.id, filter, "")),
        older: older(&uses, filter),
        filter,
        source: key_source(context, activity.as_ref(), uses.as_ref()),
        uses: uses.map(|uses| uses.page.items.iter().map(|record| use_row(context, record)).collect()),
    })
}

/// The source of the uses, or, without them, of the activity.
fn key_source(
    context: &PageContext<'_>,
    activity: Option<&ActivityReport>,
    uses: Option<&UsePage>,
) -> Option<RecordSource> {
    let of_uses = uses.map(|uses| (&uses.gateway, uses.view.as_ref()));
    let of_activity = activity.map(|report| (&report.gateway, report.view.as_ref()));
    of_uses.or(of_activity).map(|(gateway, view)| keys::record_source(context, gateway, view))
}

fn key_details(context: &PageContext<'_>, key: &Key, user: &User, report: Option<&ActivityReport>) -> KeyDetails {
    KeyDetails {
        id: key.id.to_string(),
        name: key.name.clone(),
        owner: key.email.clone(),
        responsible: user.responsible.as_ref().map(ResponsibleCell::new),
        is_own: key.user == context.user.user.id,
        permissions: key.policy.effective_permissions(&user.permissions).iter().map(ToString::to_string).collect(),
        state: key.status,
        created: context.timestamp(key.created),
        created_by: key.created_by.as_ref().map(KeyActor::label),
        imported: key.imported,
        last_use: keys::last_use(context, key, report),
        refused_attempt: keys::refused_attempt(context, report.and_then(|report| report.keys.get(&key.id))),
        total_uses: key.uses,
        rotated: key.rotated.map(|time| context.timestamp(time)),
        rotated_by: key.rotated_by.as_ref().map(KeyActor::label),
        previous_until: overlap_end(context, key),
        revoked: key.revoked.map(|time| context.timestamp(time)),
        revoked_by: key.revoked_by.as_ref().map(KeyActor::label),
        marks: key.marks.iter().map(|mark| (mark.text(), mark.advice())).collect(),
    }
}

fn page_filter(context: &PageContext<'_>) -> PageFilter {
    let parameter = |name| context.request.parameter(name).unwrap_or_default();
    PageFilter {
        admission: AdmissionFilter::from_name(parameter("show")).unwrap_or(AdmissionFilter::All),
        outcome: OutcomeText::from_name(parameter("outcome")),
    }
}

/// The address of the key's uses from a cursor on; with an empty cursor, of the newest.
fn uses_href(context: &PageContext<'_>, id: KeyId, filter: PageFilter, cursor: &str) -> String {
    let outcome = filter.outcome.map_or("", |outcome| outcome.name);
    let query = [("show", filter.admission.name()), ("outcome", outcome), ("cursor", cursor)];
    format!("{}#requests", link(&format!("{}/keys/{id}", context.base), &query))
}

/// The end of the overlap in which the secret before the last rotation is still valid; `None` when it is over.
pub(super) fn overlap_end(context: &PageContext<'_>, key: &Key) -> Option<Timestamp> {
    key.previous_until.filter(|until| *until > context.request.now).map(|until| context.timestamp(until))
}

fn limit_usage(context: &PageContext<'_>, standing: &LimitStatus, budget: Option<BudgetCell>) -> LimitUsage {
    LimitUsage {
        bucket: Gauge::new(standing.remaining.into(), standing.burst.into()),
        next_request: standing.next_token.map(|time| context.timestamp(time)),
        full: standing.full.map(|time| context.timestamp(time)),
        in_flight: Gauge::new(standing.in_flight.into(), standing.concurrent.into()),
        budget,
    }
}

/// The budget that a key spends: that of its plan, unless the key, its user or its organization has its own.
fn key_budget(
    context: &PageContext<'_>,
    standing: &LimitStatus,
    key: &Key,
    user: &User,
    org: &Org,
) -> Option<BudgetCell> {
    let (status, of) = (standing.quota?, key.limits.quota?.of);
    let is_own = [key.quota, user.quota, org.quota].iter().any(Option::is_some);
    let plan = key.limits.plan.as_ref().filter(|_| !is_own).map(PlanCell::new);
    Some(BudgetCell { spent: Gauge::new(status.used, status.units), of, plan, ends: context.timestamp(status.end) })
}

pub(super) fn use_row(context: &PageContext<'_>, record: &Record) -> UseRow {
    UseRow {
        time: context.timestamp(record.time),
        action: record.action.clone(),
        status: record.status,
        outcome: outcome_text(record),
        ip: ip_text(record),
        user_agent: record.user_agent.clone(),
        count: record.uses(),
    }
}

fn use_filter(filter: PageFilter) -> UseFilter {
    let refused = match filter.admission {
        AdmissionFilter::All => None,
        AdmissionFilter::Admitted => Some(false),
        AdmissionFilter::Refused => Some(true),
    };
    let outcome = filter.outcome.and_then(|outcome| Outcome::from_name(outcome.name));
    UseFilter { refused, outcome }
}

fn outcome_text(record: &Record) -> &'static OutcomeText {
    OutcomeText::from_name(record.outcome.name()).expect("a test finds a text for every outcome")
}

/// The client's address; in a record of several refusals also the number of their other addresses.
fn ip_text(record: &Record) -> String {
    let ip = record.ip.map(|ip| ip.to_string()).unwrap_or_default();
    match record.addresses.unwrap_or(1) {
        0 | 1 => ip,
        addresses => format!("{ip} and {} more", format_count(addresses - 1)),
    }
}

fn key_limits(key: &Key, org: &Org) -> KeyLimits {
    KeyLimits {
        requests: key.limits.requests.into(),
        per: period(key.limits.per),
        burst: key.limits.burst.into(),
        is_strict: key.limits.strict,
        is_own: key.limits.own,
        plan: key.limits.plan.as_ref().map(PlanCell::new),
        concurrent: org.concurrent_in_force.into(),
    }
}

/// The requests in flight of a key: the smaller one of its policy and its plan.
fn concurrent(key: &Key) -> Option<String> {
    let of_plan = key.limits.plan.as_ref().and_then(|plan| plan.concurrent);
    key.policy.concurrent.into_iter().chain(of_plan).min().map(|concurrent| format_count(concurrent.into()))
}

/// The unit of a usual period as a word; any other period as text, such as `2h`.
fn period(time: Duration) -> String {
    match time.as_secs() {
        1 => "second".to_owned(),
        60 => "minute".to_owned(),
        3600 => "hour".to_owned(),
        86_400 => "day".to_owned(),
        _ => WithUnit::Duration(time).to_string(),
    }
}

fn is_admitted(key: &Key, standing: &LimitStatus) -> bool {
    let has_slot = standing.key.is_none_or(|slots| slots.free() > 0) && standing.in_flight < standing.concurrent;
    let has_units = standing.quota.is_none_or(|budget| budget.remaining() > 0);
    key.status == KeyStatus::Active && standing.remaining > 0 && has_units && has_slot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_text() {
        for outcome in Outcome::all() {
            let text = OutcomeText::from_name(outcome.name()).unwrap();
            assert_eq!(text.is_refused(), outcome.is_refusal() || text.name == "unknown", "{}", text.name);
        }
    }
}
