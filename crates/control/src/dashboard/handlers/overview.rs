//! The overview of an organization.

use super::{HandlerResult, PageContext, keys, render};
use crate::dashboard::pages::{
    Gauge, KeyLink, KeyLinks, NavEntry, OverviewPage, RangeUsage, ShareRow, StateFilter, UsagePart, UseRow, link,
    percent,
};
use crate::management;
use crate::management::{Key, KeyShare, ManagementError, Overview, RouteShare, Series};
use domain::page::{PageLimit, PageQuery};
use journal::audit::UsageRange;

/// Keys that are named of a list.
const NAMED: PageLimit = PageLimit::of(5);

pub(super) async fn show_overview(context: &PageContext<'_>) -> HandlerResult {
    let PageContext { management, actor, request, user, base, .. } = context;
    let range = chosen_range(context);
    let found = management::show_overview(management, actor, &context.org(), range, request.now).await;
    let found = context.if_readable(found, "the usage of the organization")?;
    let href = |name: &str| link(&format!("{base}/overview"), &[("range", name)]);
    let usage = found.as_ref().map(|found| range_usage(context, &found.usage, Vec::new()));
    let all = found.as_ref().map_or(0, |found| found.usage.total.requests + found.usage.total.refusals);
    let in_flight = |found: &Overview| Some(Gauge::new(found.in_flight?.into(), found.concurrent.into()));
    render(&OverviewPage {
        layout: context.layout(NavEntry::Overview).await?,
        suspended: user.org.suspended,
        part: UsagePart::new(range, href, usage),
        in_flight: found.as_ref().and_then(in_flight),
        budget: keys::org_budget(context).await?,
        keys: found.iter().flat_map(|found| &found.keys).map(|share| key_share(context, share, all)).collect(),
        routes: found.iter().flat_map(|found| &found.routes).map(|share| route_share(share, all)).collect(),
        expiring: key_links(context, StateFilter::Expiring).await?,
        unused: key_links(context, StateFilter::Unused).await?,
    })
}

/// The range of a page, by its parameter `range`; a day by default.
pub(super) fn chosen_range(context: &PageContext<'_>) -> UsageRange {
    context.request.parameter("range").and_then(UsageRange::from_name).unwrap_or(UsageRange::Day)
}

/// The usage of a series, with the last refusals of some causes.
pub(super) fn range_usage(context: &PageContext<'_>, series: &Series, last: Vec<UseRow>) -> RangeUsage {
    let source = keys::record_source(context, &series.gateway, series.view.as_ref());
    RangeUsage::new(series, last, source, context.request.now)
}

fn key_share(context: &PageContext<'_>, share: &KeyShare, all: u64) -> ShareRow {
    let KeyShare { key_id, name, requests, refusals } = share;
    let id = key_id.map(|key| key.to_string());
    ShareRow {
        name: name.clone().or_else(|| id.clone()).unwrap_or_else(|| "Web sessions".to_owned()),
        href: name.as_ref().and(id).map(|id| format!("{}/keys/{id}", context.base)),
        requests: requests + refusals,
        refusals: *refusals,
        percent: percent(requests + refusals, all),
    }
}

fn route_share(share: &RouteShare, all: u64) -> ShareRow {
    let RouteShare { route, sums } = share;
    ShareRow {
        name: route.clone().unwrap_or_else(|| "No listed route".to_owned()),
        href: None,
        requests: sums.requests + sums.refusals,
        refusals: sums.refusals,
        percent: percent(sums.requests + sums.refusals, all),
    }
}

/// The first keys of a list, and its address where there may be more.
async fn key_links(context: &PageContext<'_>, state: StateFilter) -> Result<KeyLinks, ManagementError> {
    let PageContext { management, actor, request, base, .. } = context;
    let query = keys::state_query(state);
    let first = PageQuery::first(NAMED);
    let found = management::list_keys(management, actor, &context.org(), &query, &first, request.now).await?;
    let time = |key: &Key| match state {
        StateFilter::Expiring => key.policy.expires,
        _ => key.last_used,
    };
    let named = |key: &Key| KeyLink {
        id: key.id.to_string(),
        name: key.name.clone(),
        time: time(key).map(|time| context.timestamp(time)),
    };
    let more = found.next.map(|_| link(&format!("{base}/keys"), &[("state", state.name())]));
    Ok(KeyLinks { keys: found.items.iter().map(named).collect(), more })
}
