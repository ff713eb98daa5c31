//! Usage of an organization or a key in a range of time, from the records of all gateways.

use std::collections::BTreeMap;

use tokio_postgres::Row;

use super::error::FleetError;
use super::pool::Snapshot;
use super::statement::{ROUTE, Statement, is_change, micros, refusals};
use crate::audit::format::record::Outcome;
use crate::audit::index::usage_sums::UsageSums;
use crate::audit::read::range_usage::{BusyKey, OrgUsage, PeriodUsage, UsageRange, UsageSeries, busiest};
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId};
use domain::key::KeyId;

impl Snapshot<'_> {
    /// Usage of an organization in a range that ends at `now`, with at most `top` keys and routes.
    pub(crate) fn org_usage(
        &self,
        org: OrgId,
        range: UsageRange,
        now: Micros,
        top: usize,
    ) -> Result<OrgUsage, FleetError> {
        let mut sums = sums(range, ROUTE);
        sums.and_usage(org, None, range.start(now));
        sums.sql += " GROUP BY 1, 2, 3";
        let mut periods = range.empty(now);
        let mut routes: BTreeMap<Option<String>, UsageSums> = BTreeMap::new();
        for row in self.query_much(&sums.sql, &sums.params())? {
            add(&row, range.period_at(&mut periods, number(&row, 0)));
            add(&row, Some(routes.entry(row.get(1)).or_default()));
        }
        let routes = busiest(routes.into_iter().collect(), top, |(_, sums)| (sums.requests, sums.refusals));
        let keys = self.busiest_keys(org, range.start(now), top)?;
        Ok(OrgUsage { series: self.series(range, periods, now)?, keys, routes })
    }

    /// Usage of a key in a range that ends at `now`.
    pub(crate) fn key_usage(
        &self,
        org: OrgId,
        key: KeyId,
        range: UsageRange,
        now: Micros,
    ) -> Result<UsageSeries, FleetError> {
        let mut sums = sums(range, "NULL");
        sums.and_usage(org, Some(key), range.start(now));
        sums.sql += " GROUP BY 1, 2, 3";
        let mut periods = range.empty(now);
        for row in self.query_much(&sums.sql, &sums.params())? {
            add(&row, range.period_at(&mut periods, number(&row, 0)));
        }
        self.series(range, periods, now)
    }

    fn busiest_keys(&self, org: OrgId, since: Micros, top: usize) -> Result<Vec<BusyKey>, FleetError> {
        let mut keys = Statement::new("SELECT key, sum(admitted)::bigint, sum(refused)::bigint FROM (SELECT ");
        let refused = keys.param(refusals(), "text[]");
        keys.sql += &format!(
            "CASE WHEN auth_method = '{}' THEN key_id END AS key, CASE WHEN outcome = ANY ({refused}) THEN 0 ELSE \
             coalesce(count, 1) END AS admitted, CASE WHEN outcome = ANY ({refused}) THEN coalesce(count, 1) ELSE 0 \
             END AS refused FROM keygate.records",
            AuthMethod::ApiKey.as_str()
        );
        keys.and_usage(org, None, since);
        keys.sql += &format!(") AS uses GROUP BY 1 ORDER BY sum(admitted) + sum(refused) DESC, 1 LIMIT {top}");
        let busy = |row: &Row| BusyKey {
            key: row.get::<_, Option<&str>>(0).and_then(|key| key.parse().ok()),
            requests: number(row, 1),
            refusals: number(row, 2),
        };
        Ok(self.query_much(&keys.sql, &keys.params())?.iter().map(busy).collect())
    }

    fn series(&self, range: UsageRange, periods: Vec<PeriodUsage>, now: Micros) -> Result<UsageSeries, FleetError> {
        Ok(UsageSeries { periods, complete_from: self.first_kept()?.filter(|first| *first > range.start(now)) })
    }
}

/// The sums of records by the beginning of their hour or day in microseconds, a subject, and their outcome.
fn sums(range: UsageRange, subject: &str) -> Statement {
    let unit = if range == UsageRange::Day { "hour" } else { "day" };
    let start = micros(&format!("date_trunc('{unit}', time AT TIME ZONE 'UTC')"));
    Statement::new(&format!(
        "SELECT {start}, ({subject})::text, outcome, sum(coalesce(count, 1))::bigint, sum(coalesce(cost, 1))::bigint, \
         sum(coalesce(request_bytes, 0))::bigint, sum(coalesce(response_bytes, 0))::bigint FROM keygate.records"
    ))
}

impl Statement {
    /// Adds the conditions that records are uses of an organization, or of a key of it, from a time on.
    fn and_usage(&mut self, org: OrgId, key: Option<KeyId>, since: Micros) {
        let org = self.param(org.to_string(), "text");
        self.and(&format!("org_id = {org}"));
        let api_key = AuthMethod::ApiKey.as_str();
        if let Some(key) = key {
            let key = self.param(key.to_string(), "text");
            self.and(&format!("key_id = {key} AND auth_method = '{api_key}'"));
        }
        let since = self.time(since);
        self.and(&format!("time >= {since}"));
        self.and("outcome <> 'unknown'");
        self.and(&format!("NOT ({})", is_change()));
    }
}

/// Adds a row of sums.
fn add(row: &Row, sums: Option<&mut UsageSums>) {
    let (Some(sums), Some(outcome)) = (sums, Outcome::from_name(row.get(2))) else { return };
    let uses = number(row, 3);
    if outcome.is_refusal() {
        return sums.refuse(outcome, uses);
    }
    sums.begin(uses, number(row, 4));
    if outcome != Outcome::InProgress {
        sums.end(outcome, uses, 0, [number(row, 5), number(row, 6)]);
    }
}

fn number(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}
