//! The table of keys.

use std::time::Duration;

use super::{HandlerResult, PageContext, render};
use crate::dashboard::api;
use crate::dashboard::pages::{
    ActivityChart, AttemptCell, BudgetCell, FleetFreshness, GatewayRow, Gauge, KeyFilter, KeyOrder, KeyRow, KeySwitch,
    KeysPage, LastUseCell, NavEntry, OutcomeText, Paging, PlanCell, RecordSource, SelectLink, SortColumns, StateFilter,
    UseSource, link,
};
use crate::dashboard::response;
use crate::management;
use crate::management::{Activity, ActivityReport, Key, KeyMark, KeyQuery, KeyStatus, ManagementError, QuotaOwner};
use domain::clock::Micros;
use domain::key::{self, KeyDigest, KeyId};
use domain::page::{PageLimit, PageQuery};
use journal::audit::{GatewayFreshness, OwnOnlyReason, ViewScope, ViewStatus};
use platform::settings::WithUnit;

/// Keys on a page.
const PAGE_SIZE: PageLimit = PageLimit::of(25);
/// Age at which a reader is told that records of a gateway may be missing: its next report is due twice over.
const LATE: Duration = Duration::from_secs(15);
/// Time before its expiry in which a key is listed as expiring.
const EXPIRING: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time without use after which a key is listed as unused.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Value of the parameter `selected` with which all keys of the page are selected.
const ALL: &str = "all";
/// Characters of a word that may be a key: most names of one word are shorter.
const SECRET_LENGTH: usize = 32;
/// Pages in which a key is looked for by its name: each is of a thousand keys without a match at most.
const SEARCH_PAGES: usize = 10;
/// Characters of a search text that are used.
const SEARCH_LENGTH: usize = 100;

pub(super) async fn list_keys(context: &PageContext<'_>) -> HandlerResult {
    let filter = key_filter(context);
    let order = KeyOrder::from_parameter(context.request.parameter("sort").unwrap_or_default());
    let query = list_query(&filter, order);
    let page = context.page_query(PAGE_SIZE);
    let (management, actor, org, now) = (context.management, &context.actor, context.org(), context.request.now);
    let count = management::count_keys(management, actor, &org, &query, now).await?;
    let keys = management::list_keys(management, actor, &org, &query, &page, now).await?;
    let report = key_activity(context, keys.items.iter().map(|key| key.id).collect()).await?;
    let href = |order: KeyOrder, cursor: &str, selected: &str| {
        let state = filter.state.map_or("", |state| state.name());
        let (path, sort) = (format!("{}/keys", context.base), order.parameter());
        let query =
            [("q", &*filter.text), ("state", state), ("sort", &sort), ("cursor", cursor), ("selected", selected)];
        link(&path, &query)
    };
    let is_all = context.request.parameter("selected") == Some(ALL);
    let cursor = page.cursor.as_deref();
    render(&KeysPage {
        layout: context.layout(NavEntry::Keys).await?,
        all_owners: context.user.is_admin(),
        suspended: context.user.org.suspended,
        rows: keys.items.iter().map(|key| key_row(context, key, report.as_ref())).collect(),
        count,
        csv: csv_link(&api::base(context.base), &context.org(), &query),
        columns: SortColumns::new(order, count.is_sortable, |order| href(order, "", "")),
        select: SelectLink { is_all, href: href(order, cursor.unwrap_or_default(), if is_all { "" } else { ALL }) },
        paging: Paging::new(cursor, keys.next.as_deref(), |cursor| href(order, cursor, "")),
        filter,
        order,
        budget: org_budget(context).await?,
        source: report.map(|report| record_source(context, &report.gateway, report.view.as_ref())),
    })
}

/// The budget of the organization, as its admins see it.
pub(super) async fn org_budget(context: &PageContext<'_>) -> Result<Option<BudgetCell>, ManagementError> {
    if !context.user.is_admin() {
        return Ok(None);
    }
    let owner = QuotaOwner { org: Some(context.org()), ..QuotaOwner::default() };
    match management::show_quota(context.management, &context.actor, &owner, context.request.now).await {
        Ok(quota) => Ok(Some(BudgetCell {
            spent: Gauge::new(quota.used, quota.budget.units),
            of: quota.budget.of,
            plan: management::plan_of_quota(context.management, &context.user.org).as_ref().map(PlanCell::new),
            ends: context.timestamp(quota.end),
        })),
        Err(ManagementError::NoQuota(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Redirects to the list of what the form searches for. The form is posted, so that no key gets into an address,
/// and with it into a history or a log: there it is its SHA-256.
pub(super) async fn search_keys(context: &PageContext<'_>) -> HandlerResult {
    let form = context.request.form();
    let text = form.field("q");
    let digest = KeyDigest::of(text.as_bytes()).to_hex();
    // A long word is a secret unless a key that the user sees is named so: the list shows that name as well.
    let is_secret = has_key(context, &digest).await? || looks_secret(text) && !has_key(context, text).await?;
    let text = if is_secret { &digest } else { text };
    let path = format!("{}/keys", context.base);
    let query = [("q", text), ("state", form.field("state")), ("sort", form.field("sort"))];
    Ok(response::see_other(&link(&path, &query)))
}

/// Returns whether the user's list has a key that this text finds: by its SHA-256, or by what it shows.
async fn has_key(context: &PageContext<'_>, text: &str) -> Result<bool, ManagementError> {
    let query = list_query(&KeyFilter { text: text.to_owned(), state: None }, KeyOrder::default());
    let mut page = PageQuery::first(PAGE_SIZE);
    for _ in 0..SEARCH_PAGES {
        let found = management::list_keys(
            context.management,
            &context.actor,
            &context.org(),
            &query,
            &page,
            context.request.now,
        )
        .await?;
        page.cursor = found.next;
        if !found.items.is_empty() || page.cursor.is_none() {
            return Ok(!found.items.is_empty());
        }
    }
    Ok(false)
}

fn key_filter(context: &PageContext<'_>) -> KeyFilter {
    let text = context.request.parameter("q").unwrap_or_default().trim().chars().take(SEARCH_LENGTH).collect();
    KeyFilter { text, state: context.request.parameter("state").and_then(StateFilter::from_name) }
}

/// The activity of keys in the last day; `None` when the journal cannot be read.
pub(super) async fn key_activity(
    context: &PageContext<'_>,
    keys: Vec<KeyId>,
) -> Result<Option<ActivityReport>, ManagementError> {
    let report =
        management::key_activity(context.management, &context.actor, &context.org(), keys, context.request.now).await;
    context.if_readable(report, "the activity of keys")
}

fn key_row(context: &PageContext<'_>, key: &Key, report: Option<&ActivityReport>) -> KeyRow {
    let activity = report.and_then(|report| report.keys.get(&key.id));
    KeyRow {
        id: key.id.to_string(),
        name: key.name.clone(),
        owner: key.email.clone(),
        is_own: key.user == context.user.user.id,
        created: context.timestamp(key.created),
        last_use: last_use(context, key, report),
        refused_attempt: refused_attempt(context, activity),
        state: key.status,
        switch: match key.policy.disabled {
            None => Some(KeySwitch::Disable),
            Some(disabled) => (!disabled.by.is_of_operator()).then_some(KeySwitch::Enable),
        },
        expires: key.policy.expires.map(|time| context.timestamp(time)),
        is_expiring: key.marks.contains(&KeyMark::Expiring),
        // The expiry is shown itself.
        marks: key.marks.iter().filter(|mark| **mark != KeyMark::Expiring).map(|mark| mark.text()).collect(),
        activity: activity.map(activity_chart),
    }
}

/// The last attempt to use a key, as far as it is recorded, when it was refused.
pub(super) fn refused_attempt(context: &PageContext<'_>, activity: Option<&Activity>) -> Option<AttemptCell> {
    let attempt = activity?.last_attempt.as_ref().filter(|attempt| attempt.outcome.is_refusal())?;
    Some(AttemptCell {
        time: context.timestamp(attempt.time),
        outcome: OutcomeText::from_name(attempt.outcome.name())?,
        ip: attempt.ip.map(|ip| ip.to_string()).unwrap_or_default(),
    })
}

/// The last use of a key. Its time is the state's, which counts the uses at all gateways; address and user agent
/// are shown when the records that are read have that same use.
pub(super) fn last_use(context: &PageContext<'_>, key: &Key, report: Option<&ActivityReport>) -> Option<LastUseCell> {
    let time = key.last_used?;
    let recorded = report.and_then(|report| report.keys.get(&key.id)?.last.as_ref());
    let source = recorded.filter(|last| is_same_use(last.time, time)).map(|last| UseSource {
        ip: last.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        user_agent: last.user_agent.clone(),
    });
    let is_fleet = report.and_then(|report| report.view.as_ref()).is_some_and(|view| view.scope == ViewScope::Fleet);
    let not_recorded = if is_fleet { "Not on record" } else { "Not recorded by this gateway" };
    Some(LastUseCell { time: context.timestamp(time), source, not_recorded })
}

/// The source of the records that this gateway has read.
pub(super) fn record_source(context: &PageContext<'_>, gateway: &str, view: Option<&ViewStatus>) -> RecordSource {
    let others = match view {
        Some(ViewStatus { scope: ViewScope::Fleet, gateways, .. }) => {
            return RecordSource::Fleet(fleet_freshness(context, gateways));
        }
        Some(ViewStatus { reason: Some(reason), .. }) => Some(match reason {
            OwnOnlyReason::Unavailable => "The records of the other gateways cannot be read right now.",
            OwnOnlyReason::Behind => {
                "The records of the other gateways are shown again when this one has caught up with shipping its own."
            }
            OwnOnlyReason::AddingUp => "The records of all gateways are being added up; try again in a minute.",
            OwnOnlyReason::Cursor => {
                "This list began without the records of the other gateways; the newest page has them."
            }
        }),
        _ => None,
    };
    RecordSource::Gateway { name: gateway.to_owned(), others }
}

fn fleet_freshness(context: &PageContext<'_>, gateways: &[GatewayFreshness]) -> FleetFreshness {
    let mut gateways = gateways.to_vec();
    gateways.sort_by_key(|gateway| gateway.complete_until);
    let row = |gateway: GatewayFreshness| GatewayRow {
        is_late: gateway.complete_until.after(LATE) < context.request.now,
        gateway: gateway.gateway,
        complete_until: context.timestamp(gateway.complete_until),
        updated: context.timestamp(gateway.updated),
    };
    FleetFreshness::new(gateways.into_iter().map(row).collect())
}

fn list_query(filter: &KeyFilter, order: KeyOrder) -> KeyQuery {
    let KeyOrder { sort, descending } = order;
    let query = filter.state.map_or_else(KeyQuery::default, state_query);
    KeyQuery { text: filter.text.clone(), sort, descending, ..query }
}

/// The keys in a state.
pub(super) fn state_query(state: StateFilter) -> KeyQuery {
    let active = KeyQuery { status: Some(KeyStatus::Active), ..KeyQuery::default() };
    match state {
        StateFilter::Status(status) => KeyQuery { status: Some(status), ..active },
        // Keys that are refused already need no attention.
        StateFilter::Expiring => KeyQuery { expires_within: Some(EXPIRING), ..active },
        StateFilter::Unused => KeyQuery { unused_for: Some(UNUSED), ..active },
    }
}

/// Returns whether a text may be a key, or a part of one with some of its secret, though no key that is known: a long
/// word of letters and digits.
fn looks_secret(text: &str) -> bool {
    let is_own = text.split_once(key::PREFIX).is_some_and(|(_, rest)| rest.len() > key::KEY_ID_LENGTH);
    let has = |is: fn(char) -> bool| text.contains(is);
    let is_word = !has(char::is_whitespace) && !has(|c| c == '@');
    let is_digest = KeyDigest::from_hex(text).is_ok();
    is_own || !is_digest && is_word && text.len() >= SECRET_LENGTH && has(char::is_alphabetic) && has(char::is_numeric)
}

/// The chart of a key's last 24 hours.
pub(super) fn activity_chart(activity: &Activity) -> ActivityChart {
    ActivityChart::new(&activity.hours)
}

/// Returns `true` if the journal's last use is the state's last use. Their clocks may differ: with Redis, the state's
/// time is Redis's own.
fn is_same_use(recorded: Micros, counted: Micros) -> bool {
    /// Largest difference between the clocks of a gateway and its Redis, in microseconds.
    const MAX_SKEW_US: u64 = 2_000_000;
    recorded.since(counted).max(counted.since(recorded)) <= MAX_SKEW_US
}

/// The address of all keys of a query as CSV, in the API of the browser.
fn csv_link(api: &str, org: &str, query: &KeyQuery) -> String {
    let time = |time: Option<Duration>| time.map(|time| WithUnit::Duration(time).to_string()).unwrap_or_default();
    let status = query.status.map(KeyStatus::word).unwrap_or_default();
    let parameters = [
        ("search", &*query.text),
        ("status", &status),
        ("unused_for", &time(query.unused_for)),
        ("expires_within", &time(query.expires_within)),
        ("sort", &query.sort.parameter(query.descending)),
    ];
    link(&format!("{api}/orgs/{org}/keys.csv"), &parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_the_keys_of_the_filter() {
        let link = |text: &str, state| {
            let filter = KeyFilter { text: text.to_owned(), state };
            csv_link("/settings/api/v1", "org_1", &list_query(&filter, KeyOrder::default()))
        };
        let path = "/settings/api/v1/orgs/org_1/keys.csv";
        assert_eq!(link("", None), format!("{path}?sort=-created"));
        let removed = StateFilter::Status(KeyStatus::UserRemoved);
        assert_eq!(link("a b", Some(removed)), format!("{path}?search=a+b&status=user_removed&sort=-created"));
        let expiring = link("", Some(StateFilter::Expiring));
        assert_eq!(expiring, format!("{path}?status=active&expires_within=7d&sort=-created"));
        let unused = link("", Some(StateFilter::Unused));
        assert_eq!(unused, format!("{path}?status=active&unused_for=30d&sort=-created"));
    }
}
