//! The page of one key.

use std::time::Duration;

use super::policy_form::parse_date;
use super::{HandlerResult, PageContext, key_id, key_policy, keys, overview, render};
use crate::dashboard::pages::{
    AdmissionFilter, BudgetCell, Gauge, KeyDetails, KeyLimits, KeyPage, LimitUsage, NavEntry, OutcomeText, PlanCell,
    PolicyFacts, ResponsibleCell, ShareRow, Timestamp, UsagePart, UseFilter as PageFilter, UseRow, UsedByPart, Verdict,
    format_count, link, with_exact_times,
};
use crate::management;
use crate::management::{
    ActivityReport, Count, Explanation, Key, KeyActor, KeyStatus, KeyUsage, LimitStatus, ManagementError, Org,
    UseFilter, UsePage, UsedBy, User,
};
use domain::key::KeyId;
use domain::page::PageLimit;
use journal::audit::{Outcome, Record, UsageRange};
use platform::settings::WithUnit;

/// Uses on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(20);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Records about a key; each is `None` when it cannot be read.
struct KeyRecords {
    activity: Option<ActivityReport>,
    usage: Option<KeyUsage>,
    uses: Option<UsePage>,
}

pub(super) async fn show_key(context: &PageContext<'_>, id: &str) -> HandlerResult {
    let explanation =
        management::explain_key(context.management, &context.actor, key_id(id)?, context.request.now).await?;
    let range = overview::chosen_range(context);
    let records = key_records(context, explanation.key.id, range).await?;
    render(&key_page(context, explanation, range, records).await?)
}

async fn key_records(context: &PageContext<'_>, key: KeyId, range: UsageRange) -> Result<KeyRecords, ManagementError> {
    let PageContext { management, actor, request, .. } = context;
    let filter = use_filter(&page_filter(context));
    let uses = management::list_uses(management, actor, key, filter, &context.page_query(PAGE_SIZE), request.now).await;
    let usage = management::show_key_usage(management, actor, key, range, request.now).await;
    Ok(KeyRecords {
        activity: keys::key_activity(context, vec![key]).await?,
        usage: context.if_readable(usage, "the usage of a key")?,
        uses: context.if_readable(uses, "the requests with a key")?,
    })
}

async fn key_page(
    context: &PageContext<'_>,
    explanation: Explanation,
    range: UsageRange,
    records: KeyRecords,
) -> Result<KeyPage, ManagementError> {
    let Explanation { verdict, key, user, org, standing } = explanation;
    let KeyRecords { activity, usage, uses } = records;
    let filter = page_filter(context);
    let is_revoked = key.status == KeyStatus::Revoked;
    let page = format!("{}/keys/{}", context.base, key.id);
    let range_usage = usage.as_ref().map(|usage| {
        let last = usage.used_by.refusals.iter().map(|record| use_row(context, record)).collect();
        overview::range_usage(context, &usage.usage, last)
    });
    let by_route =
        |route: &str| uses_href(context, key.id, &PageFilter { action: route.to_owned(), ..PageFilter::ANY }, "");
    Ok(KeyPage {
        layout: context.layout(NavEntry::Keys).await?,
        key: key_details(context, &key, &user, activity.as_ref()),
        limits: key_limits(&key, &org),
        // The bucket of a revoked key limits no requests any more.
        usage: (!is_revoked)
            .then(|| limit_usage(context, &standing, key_budget(context, &standing, &key, &user, &org))),
        policy: PolicyFacts { concurrent: concurrent(&key), ..key_policy::policy_facts(context, &key.policy) },
        verdict: Verdict { admitted: is_admitted(&key, &standing), sentence: with_exact_times(&verdict) },
        part: UsagePart::new(range, |name| format!("{}#usage", link(&page, &[("range", name)])), range_usage),
        used_by: usage.map(|usage| used_by(&usage.used_by, by_route)).filter(|used_by| used_by.requests > 0),
        newer: context.page_query(PAGE_SIZE).cursor.map(|_| uses_href(context, key.id, &filter, "")),
        older: uses
            .as_ref()
            .and_then(|uses| uses.page.next.as_ref())
            .map(|cursor| uses_href(context, key.id, &filter, cursor)),
        filter,
        source: uses.as_ref().map(|uses| keys::record_source(context, &uses.gateway, uses.view.as_ref())),
        uses: uses.map(|uses| uses.page.items.iter().map(|record| use_row(context, record)).collect()),
    })
}

/// The shares of a key's requests; `by_action` is the address of those of an action.
fn used_by(used_by: &UsedBy, by_action: impl Fn(&str) -> String) -> UsedByPart {
    let UsedBy { requests, is_all, routes, addresses, agents, .. } = used_by;
    let shares = |counts: &[Count]| ShareRow::of_counts(counts, *requests);
    let linked = |row: ShareRow| ShareRow { href: Some(by_action(&row.name)), ..row };
    UsedByPart {
        requests: *requests,
        is_all: *is_all,
        routes: shares(routes).into_iter().map(linked).collect(),
        addresses: shares(addresses),
        agents: shares(agents),
    }
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
        action: parameter("action").to_owned(),
        from: parameter("from").to_owned(),
        to: parameter("to").to_owned(),
    }
}

/// The address of the key's uses from a cursor on; with an empty cursor, of the newest.
fn uses_href(context: &PageContext<'_>, id: KeyId, filter: &PageFilter, cursor: &str) -> String {
    let PageFilter { admission, outcome, action, from, to } = filter;
    let outcome = outcome.map_or("", |outcome| outcome.name);
    let show = admission.name();
    let query =
        [("show", show), ("outcome", outcome), ("action", action), ("from", from), ("to", to), ("cursor", cursor)];
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

fn use_filter(filter: &PageFilter) -> UseFilter {
    let refused = match filter.admission {
        AdmissionFilter::All => None,
        AdmissionFilter::Admitted => Some(false),
        AdmissionFilter::Refused => Some(true),
    };
    let outcome = filter.outcome.and_then(|outcome| Outcome::from_name(outcome.name));
    // A text that is no day is ignored, as one that is no outcome or no action is.
    let (since, until) = (parse_date(&filter.from), parse_date(&filter.to).map(|day| day.after(DAY)));
    UseFilter { refused, outcome, action: filter.action.parse().ok(), since, until }
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
