//! Usage of all gateways, from their records in PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::FleetError;
use super::pool::Snapshot;
use super::statement::{ROUTE, refusals};
use crate::audit::format::record::Outcome;
use crate::audit::read::metering::query::{SpentBy, UsageBy, UsageQuery};
use crate::audit::read::metering::report::UsageReport;
use crate::audit::read::metering::tally::{UsageRow, UsageSubject};
use crate::audit::view::status::GatewayFreshness;
use domain::clock::Micros;

/// Time within which the record of a request is in the journal of its gateway.
const SETTLING: Duration = Duration::from_secs(60);

/// Sums by period, gateway, subject and outcome. `$1` is `day` or `month`, `$2` and `$3` the range in microseconds,
/// `$5` the only organization or null, `$6` and `$7` the range of the only budget, byte by byte, or null; the
/// placeholders in braces are made from the query.
const SUMS: &str = "
SELECT (extract(epoch FROM date_trunc($1::text, time AT TIME ZONE 'UTC')) * 1000000)::bigint,
       {gateway}, {org}, {key}, {route}, outcome,
       sum(coalesce(count, 1))::bigint,
       sum(CASE WHEN outcome = ANY($4::text[]) THEN 0 ELSE coalesce(request_bytes, 0) END)::bigint,
       sum(CASE WHEN outcome = ANY($4::text[]) THEN 0 ELSE coalesce(response_bytes, 0) END)::bigint,
       sum(CASE WHEN outcome = ANY($4::text[]) THEN 0 ELSE coalesce(cost, 1) END)::bigint
FROM keygate.records
WHERE time >= 'epoch'::timestamptz + $2::bigint::double precision * interval '1 microsecond'
  AND time < 'epoch'::timestamptz + $3::bigint::double precision * interval '1 microsecond'
  AND org_id IS NOT NULL AND ($5::text IS NULL OR org_id = $5)
  AND ($6::text IS NULL OR (budget ~>=~ $6 AND budget ~<~ $7::text))
  AND outcome <> 'unknown' AND NOT (method = 'ADMIN' AND auth_method <> 'api-key')
GROUP BY 1, 2, 3, 4, 5, 6";

/// The first day that retention has not removed: it notes each day that it drops.
const FIRST_KEPT: &str = "
SELECT substring(obj_description('keygate.records'::regclass, 'pg_class')
                 FROM '; removed before (\\d{4}-\\d\\d-\\d\\d)$')";

/// The time up to which the records of each gateway are complete, and that of its last delivery. One that has come back
/// with another disk has several journals.
const FRESHNESS: &str = "
SELECT gateway, (extract(epoch FROM max(complete_until)) * 1000000)::bigint,
       (extract(epoch FROM max(updated_at)) * 1000000)::bigint
FROM keygate.journals GROUP BY gateway ORDER BY gateway";

impl Snapshot<'_> {
    /// Usage of all gateways, with `by_gateway` a report for each, and how fresh their records are. One snapshot: all
    /// that is complete by the freshness is among the sums.
    pub(crate) fn usage(&self, query: UsageQuery) -> Result<(Vec<UsageReport>, Vec<GatewayFreshness>), FleetError> {
        let gateways = self.freshness()?;
        let first = self.first_kept()?;
        let since = query.since.unwrap_or_default().0.cast_signed();
        let until = query.until.unwrap_or(Micros(u64::MAX / 4096)).0.cast_signed();
        let refusals = refusals();
        let org = query.org.map(|org| org.to_string());
        let [from, before] = budget_range(query.budget);
        let params: [&(dyn ToSql + Sync); 7] = [&query.per.name(), &since, &until, &refusals, &org, &from, &before];
        let sums = self.query(&statement(query), &params)?;
        Ok((reports(query, rows(query, &sums), first, &gateways), gateways))
    }

    /// The time up to which the records of each gateway are complete, by gateway.
    pub(crate) fn freshness(&self) -> Result<Vec<GatewayFreshness>, FleetError> {
        Ok(self.query(FRESHNESS, &[])?.iter().map(freshness).collect())
    }

    /// The beginning of the first day that retention has not removed; `None` when it has removed none.
    pub(crate) fn first_kept(&self) -> Result<Option<Micros>, FleetError> {
        let first = self.query(FIRST_KEPT, &[])?;
        let day = first.first().and_then(|row| row.get::<_, Option<String>>(0));
        Ok(day.and_then(|day| format!("{day}T00:00:00Z").parse().ok()))
    }
}

fn freshness(row: &Row) -> GatewayFreshness {
    GatewayFreshness { gateway: row.get(0), complete_until: micros(row.get(1)), updated: micros(row.get(2)) }
}

fn statement(query: UsageQuery) -> String {
    let [org, key, route] = match query.by {
        UsageBy::Org => ["org_id", "NULL", "NULL"],
        UsageBy::Key => ["org_id", "key_id", "NULL"],
        UsageBy::Route => ["NULL", "NULL", ROUTE],
    };
    let gateway = if query.by_gateway { "gateway" } else { "NULL" };
    let parts = [("{gateway}", gateway), ("{org}", org), ("{key}", key), ("{route}", route)];
    parts.into_iter().fold(SUMS.to_owned(), |text, (name, part)| text.replace(name, &format!("{part}::text")))
}

/// The texts of the first total of a budget, and of the first one after it. Seconds have ten digits until 2286, so
/// that the order of the bytes is that of the times.
fn budget_range(budget: Option<SpentBy>) -> [Option<String>; 2] {
    let text = |budget: SpentBy, time: Micros| {
        format!("{}/{:010}", budget.subject, time.0.div_ceil(1_000_000).min(9_999_999_999))
    };
    [budget.map(|budget| text(budget, budget.from)), budget.map(|budget| text(budget, budget.before))]
}

/// Joins the sums of the outcomes of each period, gateway and subject to a row.
fn rows(query: UsageQuery, sums: &[Row]) -> Vec<UsageRow> {
    let mut rows: BTreeMap<(u64, Option<String>, String), UsageRow> = BTreeMap::new();
    for sum in sums {
        let Some(subject) = subject(query.by, sum) else { continue };
        let start = micros(sum.get(0));
        let gateway = sum.get::<_, Option<String>>(1);
        let period = query.per.containing(start);
        let row = rows.entry((start.0, gateway.clone(), subject.to_string()));
        let row = row.or_insert_with(|| UsageRow::empty(period, gateway, subject));
        let number = |column| sum.get::<_, i64>(column).cast_unsigned();
        let outcome = Outcome::from_name(sum.get(5)).unwrap_or(Outcome::InProgress);
        row.add(outcome, number(6), number(9), [number(7), number(8)]);
    }
    rows.into_values().map(UsageRow::sorted).collect()
}

fn subject(by: UsageBy, sum: &Row) -> Option<UsageSubject> {
    let text = |column| sum.get::<_, Option<String>>(column);
    Some(match by {
        UsageBy::Org => UsageSubject::Org(text(2)?.parse().ok()?),
        UsageBy::Key => UsageSubject::Key(text(2)?.parse().ok()?, text(3).and_then(|key| key.parse().ok())),
        UsageBy::Route => UsageSubject::Route(text(4)),
    })
}

/// A report for each gateway of the rows: what is settled is so at each by itself.
fn reports(
    query: UsageQuery,
    rows: Vec<UsageRow>,
    first_kept: Option<Micros>,
    gateways: &[GatewayFreshness],
) -> Vec<UsageReport> {
    let mut by_gateway: BTreeMap<Option<String>, Vec<UsageRow>> = BTreeMap::new();
    if !query.by_gateway {
        by_gateway.insert(None, Vec::new());
    }
    rows.into_iter().for_each(|row| by_gateway.entry(row.gateway.clone()).or_default().push(row));
    let settled = |gateway: &Option<String>| match gateway {
        Some(name) => gateways.iter().find(|gateway| gateway.gateway == *name).map(|gateway| gateway.complete_until),
        None => gateways.iter().map(|gateway| gateway.complete_until).min(),
    };
    let report = |(gateway, rows): (Option<String>, Vec<UsageRow>)| UsageReport {
        query,
        settled_before: settled(&gateway).unwrap_or_default().before(SETTLING),
        complete_from: first_kept.filter(|first| query.since.is_none_or(|since| since < *first)),
        damaged_lines: 0,
        rows,
    };
    by_gateway.into_iter().map(report).collect()
}

fn micros(number: i64) -> Micros {
    Micros(u64::try_from(number).unwrap_or(0))
}
