//! Usage in a range of time up to now: of an organization, with what uses it most, and of one key, with who used it.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::authorization::{Access, authorize};
use super::operands::find_org;
use super::owned_key::find_key;
use super::usage_summary::Outcomes;
use super::uses::read_audit;
use super::{Actor, Management, ManagementError, Org};
use domain::clock::{self, Micros};
use domain::identity::OrgId;
use domain::key::KeyId;
use domain::management_token::TokenScope;
use journal::audit::{AuditView, BusyKey, Filter, Record, RecordKind, UsageRange, UsageSeries, UsageSums, ViewStatus};
use state::KeyList;

/// Keys, routes, addresses and agents that are named.
const TOP: usize = 10;
/// Requests of a key that are read for its routes, addresses and agents.
const SAMPLE: usize = 1000;
/// Bytes of the journal that are read for them.
const MAX_SAMPLE_BYTES: u64 = 16 << 20;

/// Sums of uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Admitted uses, whatever became of them.
    pub requests: u64,
    /// Refused uses.
    pub refusals: u64,
    /// Admitted uses that have not ended.
    pub open: u64,
    /// Number of uses by outcome.
    pub outcomes: Outcomes,
    /// Units that admitted uses have cost.
    pub units: u64,
    /// Bytes of request bodies, of uses that have ended.
    pub request_bytes: u64,
    /// Bytes of response bodies, of uses that have ended.
    pub response_bytes: u64,
}

/// Usage in one hour or day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Beginning of the hour or day, in UTC.
    #[serde(with = "clock::rfc3339")]
    pub start: Micros,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Usage in the hours or days of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The name of the range: `24h`, `7d`, `30d`, `90d`.
    pub range: String,
    /// Its beginning.
    #[serde(with = "clock::rfc3339")]
    pub since: Micros,
    /// The time from which on uses are counted; none when that is the whole range.
    #[serde(with = "clock::rfc3339::option")]
    pub complete_from: Option<Micros>,
    /// The whole range.
    pub total: Sums,
    /// Its hours, or days, oldest first.
    pub periods: Vec<Period>,
    /// The name of this gateway.
    pub gateway: String,
    /// Whose records were counted; none: this gateway's, and no others are configured to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewStatus>,
}

/// Requests with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyShare {
    /// The key's id; none: web sessions.
    pub key_id: Option<KeyId>,
    /// Its name; none of web sessions, and of a key that is gone.
    pub name: Option<String>,
    /// Admitted uses.
    pub requests: u64,
    /// Refused uses.
    pub refusals: u64,
}

/// Requests of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteShare {
    /// The name of the route; none of requests of no listed route.
    pub route: Option<String>,
    /// The sums.
    #[serde(flatten)]
    pub sums: Sums,
}

/// Overview of an organization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Usage in the range.
    #[serde(flatten)]
    pub usage: Series,
    /// The keys with most requests, busiest first.
    pub keys: Vec<KeyShare>,
    /// The routes with most requests, busiest first.
    pub routes: Vec<RouteShare>,
    /// Requests in flight now; none of an organization without keys.
    pub in_flight: Option<u32>,
    /// Requests that may be in flight.
    pub concurrent: u32,
}

/// Usage of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUsage {
    /// Usage in the range.
    #[serde(flatten)]
    pub usage: Series,
    /// Users of it, among the newest requests of the range.
    pub used_by: UsedBy,
}

/// Routes, addresses and agents of the newest requests of a range, most frequent first, at most ten each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedBy {
    /// Requests that were looked through.
    pub requests: u64,
    /// True when these are all of the range.
    pub is_all: bool,
    /// Routes, or `METHOD /path` of requests of no listed route.
    pub routes: Vec<Count>,
    /// The clients' addresses.
    pub addresses: Vec<Count>,
    /// The clients' user agents.
    pub agents: Vec<Count>,
    /// The last refusal by each cause.
    pub refusals: Vec<Record>,
}

/// A value, and the requests with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The value.
    pub value: String,
    /// Number of requests.
    pub requests: u64,
}

/// Shows the usage of an organization in a range, and how many of its requests are in flight now.
///
/// # Errors
/// [`ManagementError::NoOrg`], [`ManagementError::JournalUnreadable`], [`ManagementError::TooManyReads`].
pub async fn show_overview(
    management: &Management,
    actor: &Actor,
    org: &str,
    range: UsageRange,
    now: Micros,
) -> Result<Overview, ManagementError> {
    authorize(management, actor, Access::OrgAdmin(org, TokenScope::UsageRead), now).await?;
    let org = find_org(management, org).await?;
    let id = org.id;
    let read = move |view: &AuditView| view.org_usage(id, range, now, TOP);
    let (found, view) = read_audit(management, actor, read).await?;
    let routes = found.routes.iter().map(|(route, sums)| RouteShare { route: route.clone(), sums: Sums::of(sums) });
    let keys = name_keys(management, id, &found.keys).await?;
    // The slots of an organization are told with any of its keys.
    let list = KeyList { org: id, owner: None, newest_first: true };
    let in_flight = match management.state.page_of_keys(list, None, 1).await?.items.first() {
        Some(key) => management.state.rate_limit_status(key.id, now).await?.map(|standing| standing.in_flight),
        None => None,
    };
    Ok(Overview {
        usage: Series::new(management, range, &found.series, view, now),
        keys,
        routes: routes.collect(),
        in_flight,
        concurrent: Org::new(org, management.state.concurrent()).concurrent_in_force,
    })
}

/// Shows the usage of a key in a range, and who used it.
///
/// # Errors
/// [`ManagementError::NoKey`], [`ManagementError::JournalUnreadable`], [`ManagementError::TooManyReads`].
pub async fn show_key_usage(
    management: &Management,
    actor: &Actor,
    key: KeyId,
    range: UsageRange,
    now: Micros,
) -> Result<KeyUsage, ManagementError> {
    authorize(management, actor, Access::Key(key, TokenScope::UsageRead), now).await?;
    let org = find_key(management, actor, key).await?.key.org;
    let since = Some(range.start(now));
    let filter = Filter { key: Some(key), since, kind: Some(RecordKind::Request), ..Filter::default() };
    let read = move |view: &AuditView| {
        let (series, status) = view.key_usage(org, key, range, now)?;
        let page = view.list(&filter, SAMPLE, None, MAX_SAMPLE_BYTES)?;
        Ok((series, status, page.next.is_none(), page.records))
    };
    let (series, view, is_all, records) = read_audit(management, actor, read).await?;
    let usage = Series::new(management, range, &series, view, now);
    Ok(KeyUsage { usage, used_by: UsedBy::of(&records, is_all) })
}

/// The keys with their names.
async fn name_keys(management: &Management, org: OrgId, keys: &[BusyKey]) -> Result<Vec<KeyShare>, ManagementError> {
    let share = async |busy: &BusyKey| {
        let key = match busy.key {
            Some(id) => management.state.key(id).await?.filter(|key| key.org == org),
            None => None,
        };
        let BusyKey { key: key_id, requests, refusals } = *busy;
        Ok::<_, ManagementError>(KeyShare { key_id, name: key.map(|key| key.name), requests, refusals })
    };
    try_join_all(keys.iter().map(share)).await
}

impl Series {
    fn new(
        management: &Management,
        range: UsageRange,
        series: &UsageSeries,
        view: Option<ViewStatus>,
        now: Micros,
    ) -> Self {
        let mut total = UsageSums::default();
        series.periods.iter().for_each(|period| total.add(&period.sums));
        let periods = series.periods.iter().map(|period| Period { start: period.start, sums: Sums::of(&period.sums) });
        Self {
            range: range.name(),
            since: range.start(now),
            complete_from: series.complete_from,
            total: Sums::of(&total),
            periods: periods.collect(),
            gateway: management.gateway.clone(),
            view,
        }
    }
}

impl Sums {
    fn of(sums: &UsageSums) -> Self {
        Self {
            requests: sums.requests,
            refusals: sums.refusals,
            open: sums.open(),
            outcomes: Outcomes(sums.outcomes().collect()),
            units: sums.units(),
            request_bytes: sums.request_bytes,
            response_bytes: sums.response_bytes,
        }
    }
}

impl UsedBy {
    /// Of these records, newest first.
    fn of(records: &[Record], is_all: bool) -> Self {
        let mut refusals: Vec<Record> = Vec::new();
        for record in records.iter().filter(|record| record.outcome.is_refusal()) {
            if refusals.iter().all(|known| known.outcome != record.outcome) {
                refusals.push(record.clone());
            }
        }
        Self {
            requests: records.iter().map(Record::uses).sum(),
            is_all,
            routes: top(records.iter().map(|record| (record.action.clone(), record.uses()))),
            addresses: top(records.iter().filter_map(|record| Some((record.ip?.to_string(), record.uses())))),
            agents: top(records.iter().filter_map(|record| Some((record.user_agent.clone()?, record.uses())))),
            refusals,
        }
    }
}

/// The values with most requests, most first.
fn top(values: impl Iterator<Item = (String, u64)>) -> Vec<Count> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    values.for_each(|(value, requests)| *counts.entry(value).or_default() += requests);
    let mut counts: Vec<Count> = counts.into_iter().map(|(value, requests)| Count { value, requests }).collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.requests));
    counts.truncate(TOP);
    counts
}
