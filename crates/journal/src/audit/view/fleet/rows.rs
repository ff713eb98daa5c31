//! Reading of records, positions and counts in a snapshot.

use std::collections::HashSet;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::FleetError;
use super::pool::Snapshot;
use super::statement::{self, RecordQuery, Statement};
use crate::audit::filter::Filter;
use crate::audit::format::record::Record;
use crate::audit::format::segment::Point;
use crate::audit::view::cursor::RecordPlace;
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId};
use domain::key::KeyId;

/// Records of a key that are looked through for its last admitted use, when its last attempts were refused.
const MAX_REFUSED: u32 = 20_000;
/// Records of a key that are looked through for its last refusal: an earlier one is not the last attempt.
const MAX_ADMITTED: u32 = 1000;

/// Longest time between a decision and the line of its use.
pub(crate) const MAX_APPEND_DELAY: Duration = Duration::from_secs(2);

/// A journal, and the part of it that is in the database.
#[derive(Clone, Debug)]
pub(crate) struct JournalRow {
    pub(crate) journal: Uuid,
    pub(crate) gateway: String,
    /// The position before which everything is there, but for uses that had just begun.
    pub(crate) position: Point,
    pub(crate) complete_until: Micros,
    pub(crate) updated: Micros,
}

/// Counts of a key's uses in an hour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HourOfKey {
    pub(crate) key: KeyId,
    /// Number of the hour since the epoch.
    pub(crate) hour: u64,
    pub(crate) requests: u64,
    pub(crate) refusals: u64,
}

impl Snapshot<'_> {
    /// The journals that have shipped, by gateway.
    pub(crate) fn journals(&self) -> Result<Vec<JournalRow>, FleetError> {
        let complete = statement::micros("complete_until");
        let updated = statement::micros("updated_at");
        let sql = format!(
            "SELECT journal::text, gateway, segment, \"offset\", {complete}, {updated} FROM keygate.journals ORDER BY \
             gateway"
        );
        self.query(&sql, &[])?.iter().map(JournalRow::from_row).collect()
    }

    /// The records of a query, and the place up to which it looked; none when it found the end.
    pub(crate) fn records(&self, query: &RecordQuery<'_>) -> Result<(Vec<Record>, Option<RecordPlace>), FleetError> {
        let records = self.parse_records(&query.records())?;
        if records.len() >= query.limit as usize {
            let last = records.last().map(RecordPlace::of);
            return Ok((records, last));
        }
        let Some(last) = query.last_scanned() else { return Ok((records, None)) };
        let rows = self.query(&last.sql, &last.params())?;
        let place =
            rows.first().map(|row| Ok::<_, FleetError>(RecordPlace { time: time(row, 0)?, id: parse(row, 1)? }));
        Ok((records, place.transpose()?))
    }

    /// Ids of the uses in progress at all gateways that match a filter.
    pub(crate) fn open_ids(&self, filter: &Filter, limit: u32) -> Result<HashSet<Uuid>, FleetError> {
        let mut open = RecordQuery::ids(filter);
        open.and("outcome = 'in_progress'");
        open.sql += &format!(" LIMIT {limit}");
        self.query(&open.sql, &open.params())?.iter().map(|row| parse(row, 0)).collect()
    }

    /// Counts of keys by the hour, from a time on, without the records with these ids.
    pub(crate) fn hours(
        &self,
        (org, keys): (OrgId, &[KeyId]),
        since: Micros,
        without: Vec<String>,
    ) -> Result<Vec<HourOfKey>, FleetError> {
        let mut counts = Statement::new("SELECT key_id, floor(extract(epoch FROM time) / 3600)::bigint, ");
        let refusals = counts.param(statement::refusals(), "text[]");
        counts.sql += &format!(
            "coalesce(sum(coalesce(count, 1)) FILTER (WHERE outcome <> ALL ({refusals})), 0)::bigint, \
             coalesce(sum(coalesce(count, 1)) FILTER (WHERE outcome = ANY ({refusals})), 0)::bigint FROM \
             keygate.records"
        );
        counts.write_keys(org, keys);
        let since = counts.time(since);
        counts.and(&format!("time >= {since}"));
        if !without.is_empty() {
            let without = counts.param(without, "text[]");
            counts.and(&format!("id <> ALL ({without}::uuid[])"));
        }
        counts.sql += " GROUP BY 1, 2";
        self.query(&counts.sql, &counts.params())?.iter().map(HourOfKey::from_row).collect()
    }

    /// The last record of each key of an organization that was refused, or that was not.
    pub(crate) fn last_uses(&self, (org, keys): (OrgId, &[KeyId]), refused: bool) -> Result<Vec<Record>, FleetError> {
        let mut last = Statement::new("SELECT json_strip_nulls(row_to_json(last))::text FROM unnest(");
        let wanted = last.param(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), "text[]");
        let org = last.param(org.to_string(), "text");
        let refusals = last.param(statement::refusals(), "text[]");
        let method = AuthMethod::ApiKey.as_str();
        let scanned = if refused { MAX_ADMITTED } else { MAX_REFUSED };
        last.sql += &format!(
            "{wanted}) AS wanted (key), LATERAL (SELECT * FROM (SELECT * FROM keygate.records WHERE key_id = \
             wanted.key AND org_id = {org} AND auth_method = '{method}' ORDER BY time DESC, id DESC LIMIT {scanned}) \
             AS scanned WHERE (outcome = ANY ({refusals})) = {refused} ORDER BY time DESC, id DESC LIMIT 1) AS last"
        );
        self.parse_records(&last)
    }

    /// The records with these ids that have ended.
    pub(crate) fn ended(&self, ids: Vec<String>) -> Result<Vec<Record>, FleetError> {
        let mut ended = Statement::new("SELECT json_strip_nulls(row_to_json(r))::text FROM keygate.records AS r");
        let ids = ended.param(ids, "text[]");
        ended.and(&format!("id = ANY ({ids}::uuid[]) AND outcome <> 'in_progress'"));
        self.parse_records(&ended)
    }

    fn parse_records(&self, statement: &Statement) -> Result<Vec<Record>, FleetError> {
        let rows = self.query(&statement.sql, &statement.params())?;
        rows.iter().map(|row| Ok(serde_json::from_str(row.try_get(0)?)?)).collect()
    }
}

impl Statement {
    /// Adds the conditions that records are uses of these keys.
    fn write_keys(&mut self, org: OrgId, keys: &[KeyId]) {
        let org = self.param(org.to_string(), "text");
        let keys = self.param(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), "text[]");
        self.and(&format!("org_id = {org} AND key_id = ANY ({keys})"));
        self.and(&format!("auth_method = '{}'", AuthMethod::ApiKey.as_str()));
    }
}

impl JournalRow {
    /// The time before which all its uses are there: of those that began later, some had just begun, and were not
    /// shipped.
    pub(crate) fn whole_until(&self) -> Micros {
        self.complete_until.before(MAX_APPEND_DELAY)
    }

    fn from_row(row: &Row) -> Result<Self, FleetError> {
        Ok(Self {
            journal: parse(row, 0)?,
            gateway: row.try_get(1)?,
            position: Point { segment: number(row, 2)?, offset: number(row, 3)? },
            complete_until: time(row, 4)?,
            updated: time(row, 5)?,
        })
    }
}

impl HourOfKey {
    fn from_row(row: &Row) -> Result<Self, FleetError> {
        Ok(Self { key: parse(row, 0)?, hour: number(row, 1)?, requests: number(row, 2)?, refusals: number(row, 3)? })
    }
}

fn number(row: &Row, column: usize) -> Result<u64, FleetError> {
    let number: Option<i64> = row.try_get(column)?;
    Ok(number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0))
}

fn time(row: &Row, column: usize) -> Result<Micros, FleetError> {
    Ok(Micros(number(row, column)?))
}

/// A value that the database keeps as text.
fn parse<T: FromStr>(row: &Row, column: usize) -> Result<T, FleetError> {
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|_| FleetError::Record(serde_json::Error::custom("a text is not an id")))
}
