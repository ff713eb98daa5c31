//! Usage by the sums of the index: no line is read.

use std::io;
use std::ops::Range;
use std::path::Path;

use rustc_hash::FxHashMap;

use super::period::PeriodSpan;
use super::query::{UsageBy, UsageQuery};
use super::report::UsageReport;
use super::tally::{SubjectKey, UsageRow};
use crate::audit::index::database;
use crate::audit::index::live_index::LiveIndex;
use crate::audit::index::lookup::{Subjects, SumsOf};
use crate::audit::index::usage_counts::{HOUR, first_hour_of};
use crate::audit::index::usage_sums::UsageSums;
use crate::audit::read::range_usage;
use crate::audit::read::stop::StopSignal;
use domain::clock::Micros;
use domain::identity::OrgId;

/// Sums by period and subject. Those of one part of the journal may be below zero: they are added up before they are
/// shown.
type Rows = FxHashMap<(PeriodSpan, SubjectKey), UsageSums>;

/// The hours of a query that the index answers: whole days, of all budgets and gateways together; else `None`.
pub(super) fn hours(query: &UsageQuery) -> Option<Range<u64>> {
    let day = first_hour_of(1) * HOUR;
    let is_whole = |time: Option<Micros>| time.is_none_or(|time| time.0.is_multiple_of(day));
    let is_indexed = query.budget.is_none() && !query.by_gateway && is_whole(query.since) && is_whole(query.until);
    let hour = |time: Micros| time.0 / HOUR;
    is_indexed.then(|| query.since.map_or(0, hour)..query.until.map_or(u64::MAX, hour))
}

/// Adds the sums of some hours up. All that was recorded before `settled_before` is there.
pub(super) fn read_usage(
    (directory, live): (&Path, &LiveIndex),
    query: UsageQuery,
    hours: Range<u64>,
    settled_before: Micros,
    stop: &StopSignal,
) -> io::Result<UsageReport> {
    // Every use is among those of a route or of none: of these there are fewer sums than of keys.
    let of = if query.by == UsageBy::Key { Subjects::Keys } else { Subjects::Routes };
    let mut recent = Vec::new();
    let mut note = |stretch, of: (OrgId, u64), subject: SumsOf, sums: &UsageSums| {
        if hours.contains(&of.1) {
            recent.push((stretch, (of, subject, sums.clone())));
        }
    };
    // In this order, what leaves the memory is in the database, which is read next.
    match of {
        Subjects::Keys => live.for_each_key(query.org, |stretch, (org, key), hour, sums| {
            note(stretch, (org, hour), SumsOf::Key(key), sums);
        }),
        Subjects::Routes => live.for_each_route(query.org, |stretch, (org, route, hour), sums| {
            note(stretch, (org, hour), SumsOf::Route(route), sums);
        }),
    }
    let stored = range_usage::stored(directory, live)?;
    let mut rows = Rows::default();
    let mut period = query.per.containing(Micros(0));
    let mut add = |(org, hour): (OrgId, u64), subject: SumsOf, sums: &UsageSums| {
        let time = Micros(hour.saturating_mul(HOUR));
        if !period.contains(time) {
            period = query.per.containing(time);
        }
        let subject = match (query.by, subject) {
            (UsageBy::Org, _) => SubjectKey::Org(org),
            (_, SumsOf::Key(key)) => SubjectKey::Key(org, key),
            (_, SumsOf::Route(route)) => SubjectKey::Route(route),
        };
        rows.entry((period, subject)).or_default().add(sums);
    };
    let add_stored = |of: (OrgId, u64), subject: SumsOf, sums: &UsageSums| {
        add(of, subject, sums);
        stop.check().map_err(|_| database::interrupted())
    };
    stored.for_each_subject((query.org, of), hours.clone(), add_stored).map_err(io::Error::other)?;
    range_usage::uncovered(recent, &stored).for_each(|(of, subject, sums)| add(of, subject, &sums));
    let starts_later = |since: &Micros| since.0 > 0 && query.since.is_none_or(|asked| asked < *since);
    let mut rows: Vec<UsageRow> = rows.into_iter().filter_map(|(row, sums)| new_row(row, &sums)).collect();
    rows.sort_by_cached_key(|row| (row.period, row.subject.to_string()));
    Ok(UsageReport {
        query,
        rows,
        complete_from: Some(stored.since).filter(starts_later),
        settled_before,
        damaged_lines: stored.damaged,
    })
}

/// A row; `None` without uses that began.
fn new_row((period, subject): (PeriodSpan, SubjectKey), sums: &UsageSums) -> Option<UsageRow> {
    let row = UsageRow {
        requests: sums.requests,
        refusals: sums.refusals,
        open: sums.open(),
        outcomes: sums.outcomes().collect(),
        units: sums.units(),
        request_bytes: sums.request_bytes,
        response_bytes: sums.response_bytes,
        ..UsageRow::empty(period, None, subject.subject())
    };
    (row.requests + row.refusals > 0).then(|| row.sorted())
}
