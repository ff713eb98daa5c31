//! Every page with sample values: full, empty, with errors, and with hostile values.

use crate::dashboard::pages::*;
use crate::management::{Count, KeyStatus, Outcomes, Period, Series, Sums, UserStatus};
use domain::budget::Spender;
use domain::clock::Micros;
use domain::refusal::Refusal;
use journal::audit::{HourlyActivity, Outcome, UsageRange};

mod forms;
mod key;
mod keys;
mod overview;
mod sign_in;
mod tokens;
mod users;

pub(super) use forms::{NEW_KEY, new_key};
pub(super) use key::{filtered_key, key, key_with_unsearched_records, restricted_key, revoked_key, unused_key};
pub(super) use keys::{keys, rows};
pub(super) use sign_in::sign_in;
pub(super) use tokens::{NEW_TOKEN, new_token};

/// Name and HTML of a page.
type NamedPage = (&'static str, String);

const NOW: Micros = Micros(1_795_285_449_000_000);
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// A value that breaks out of a template that does not escape it.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;";
const LONG: &str =
    "Ingest of the nightly warehouse snapshots for the whole of Europe, Middle East and Africa (region 4)";
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0";

/// All pages.
pub(super) fn all() -> Vec<NamedPage> {
    [overview::pages(), keys::pages(), forms::pages(), key::pages(), users::pages(), tokens::pages(), sign_in::pages()]
        .into_iter()
        .flatten()
        .collect()
}

/// Renders pages that have names.
fn render<const N: usize>(pages: [(&'static str, &dyn askama::DynTemplate); N]) -> Vec<NamedPage> {
    pages.map(|(name, page)| (name, page.dyn_render().unwrap())).into()
}

fn ago(seconds: u64) -> Timestamp {
    Timestamp::new(Micros(NOW.0 - seconds * 1_000_000), NOW)
}

fn coming(seconds: u64) -> Timestamp {
    Timestamp::new(Micros(NOW.0 + seconds * 1_000_000), NOW)
}

fn budget(used: u64) -> BudgetCell {
    let plan = PlanCell { name: "pro".into(), of: "the organization", is_missing: false };
    BudgetCell { spent: Gauge::new(used, 2_000_000), of: Spender::Org, plan: Some(plan), ends: coming(9 * DAY) }
}

fn org(id: &str, name: &str, current: bool) -> OrgChoice {
    OrgChoice { id: id.into(), name: name.into(), current }
}

fn orgs() -> Vec<OrgChoice> {
    vec![
        org("org_1", "Acme Analytics", true),
        org("org_2", "Ångström & Söhne GmbH", false),
        org("org_3", "A very long name of an organization that sells very long names to others", false),
    ]
}

fn layout(nav: NavEntry, admin: bool) -> Layout {
    let email = "ada.lovelace@acme.example".into();
    let orgs = if admin { orgs() } else { vec![org("org_1", "Acme Analytics", true)] };
    let viewer = Viewer { email, admin, org: "Acme Analytics".into(), orgs };
    Layout { base: "/settings".into(), viewer: Some(viewer), nav, notice: None }
}

fn activity(seed: u64) -> ActivityChart {
    let hour = |hour: u64| {
        let noise = (hour * 2_654_435_761 + seed * 40_503) % 97;
        let busy = if (6..19).contains(&hour) { 3 } else { 1 };
        let refusals = if seed % 4 == 1 && hour % 5 == 2 { noise / 6 } else { 0 };
        HourlyActivity {
            start: Micros(NOW.0 - (23 - hour) * 3_600_000_000),
            requests: noise * busy * (seed % 5),
            refusals,
        }
    };
    ActivityChart::new(&(0..24).map(hour).collect::<Vec<_>>())
}

fn range_href(name: &str) -> String {
    link("/settings/overview", &[("range", name)])
}

/// Usage in a range: more by day than by night, some failures, and refusals now and then.
fn series(range: UsageRange, busy: u64) -> Series {
    let (count, hours) = match range {
        UsageRange::Day => (24, 1),
        UsageRange::Days(days) => (u64::from(days), 24),
    };
    let first = NOW.0 / 3_600_000_000 / hours * hours - (count - 1) * hours;
    let sums = |n: u64| {
        let noise = (n * 2_654_435_761) % 97;
        let completed = busy * (noise + 60 * u64::from((6..19).contains(&(n % 24))));
        let refused = if n % 7 == 3 { completed / 5 } else { 0 };
        let outcomes = [
            (Outcome::Completed, completed),
            (Outcome::Refused(Refusal::RateLimited), refused),
            (Outcome::Refused(Refusal::Forbidden), refused / 9),
            (Outcome::UpstreamError, completed / 40),
        ];
        Sums {
            requests: completed + completed / 40,
            refusals: refused + refused / 9,
            open: 0,
            outcomes: Outcomes(outcomes.into_iter().filter(|(_, count)| *count > 0).collect()),
            units: completed,
            request_bytes: completed * 300,
            response_bytes: completed * 3000,
        }
    };
    let period = |n| Period { start: Micros((first + n * hours) * 3_600_000_000), sums: sums(n) };
    let periods: Vec<Period> = (0..count).map(period).collect();
    let mut outcomes: Vec<(Outcome, u64)> = Vec::new();
    for (outcome, uses) in periods.iter().flat_map(|period| &period.sums.outcomes.0) {
        match outcomes.iter_mut().find(|(known, _)| known == outcome) {
            Some((_, all)) => *all += uses,
            None => outcomes.push((*outcome, *uses)),
        }
    }
    let sum = |of: fn(&Sums) -> u64| periods.iter().map(|period| of(&period.sums)).sum();
    let total = Sums {
        requests: sum(|sums| sums.requests),
        refusals: sum(|sums| sums.refusals),
        open: 0,
        outcomes: Outcomes(outcomes),
        units: sum(|sums| sums.units),
        request_bytes: sum(|sums| sums.request_bytes),
        response_bytes: sum(|sums| sums.response_bytes),
    };
    Series {
        range: range.name(),
        since: Micros(first * 3_600_000_000),
        complete_from: None,
        total,
        periods,
        gateway: "gateway-1".into(),
        view: None,
    }
}

fn usage_of(series: &Series, last: Vec<UseRow>) -> RangeUsage {
    RangeUsage::new(series, last, RecordSource::Gateway { name: "gateway-1".into(), others: None }, NOW)
}

fn no_usage(range: UsageRange) -> RangeUsage {
    usage_of(&Series { complete_from: Some(NOW), ..series(range, 0) }, Vec::new())
}

fn usage_part(range: UsageRange, last: Vec<UseRow>) -> UsagePart {
    UsagePart::new(range, range_href, Some(usage_of(&series(range, 7), last)))
}

const NOT_RECORDED: &str = "Not recorded by this gateway";

fn last_use(seconds: u64, user_agent: Option<&str>) -> Option<LastUseCell> {
    let source = UseSource { ip: "203.0.113.87".into(), user_agent: user_agent.map(Into::into) };
    Some(LastUseCell { time: ago(seconds), source: Some(source), not_recorded: NOT_RECORDED })
}

fn attempt(outcome: &str) -> AttemptCell {
    let outcome = OutcomeText::from_name(outcome).unwrap();
    AttemptCell { time: ago(7 * MINUTE), outcome, ip: "198.51.100.23".into() }
}

fn without_viewer() -> Layout {
    Layout::without_viewer("/settings")
}
