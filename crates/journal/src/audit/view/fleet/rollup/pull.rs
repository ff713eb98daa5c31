//! Pulling sums of records from PostgreSQL: in steps, each of which reads a snapshot there and is one transaction here.

use std::ops::Range;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustc_hash::FxHashMap;
use tokio_postgres::Row;

use super::database::{self, OpenRow, Reach};
use super::journal_moves::{self, JournalPlace, Moves};
use crate::audit::format::record::Outcome;
use crate::audit::format::route_name::RouteName;
use crate::audit::index::usage_counts::{HOUR, UsageCounts, day_of, first_hour_of, hour_of};
use crate::audit::index::usage_rows;
use crate::audit::index::usage_sums::UsageSums;
use crate::audit::view::fleet::error::FleetError;
use crate::audit::view::fleet::pool::{Fleet, Snapshot};
use crate::audit::view::fleet::statement::{ROUTE, Statement, is_change, micros};
use crate::audit::view::status::GatewayFreshness;
use domain::clock::Micros;

/// Time that a step may take.
const STEP_WITHIN: Duration = Duration::from_secs(120);
/// Records that a step is to read, by those of the step before. The first step reads one hour.
const RECORDS_AT_ONCE: u64 = 100_000;
/// The longest step: a day of a few million records after many days of none takes seconds.
const MAX_STEP_HOURS: u64 = 10 * 24;
/// Hours before the present one that are kept apart: the 23 that are shown, and one for a reader whose hour has just
/// ended.
const HOURS_APART: u64 = 24;
/// Days that are kept: the 90 that are shown, and one for a reader whose day has just ended.
const DAYS_KEPT: u64 = 91;

/// The uses that the file does not have: they began since, and were read in one snapshot.
#[derive(Debug)]
pub(in crate::audit::view) struct Recent {
    /// The time before which uses are in the file.
    pub(in crate::audit::view) until: Micros,
    pub(in crate::audit::view) counts: UsageCounts,
    /// The freshness of the file and of these.
    pub(in crate::audit::view) gateways: Vec<GatewayFreshness>,
}

/// Failure to pull.
#[derive(Debug, thiserror::Error)]
pub(in crate::audit::view) enum PullError {
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("cannot write the sums of all gateways' records")]
    Database(#[from] rusqlite::Error),
}

/// The journals, by PostgreSQL.
struct Seen {
    journals: Vec<JournalPlace>,
    settled: Micros,
    /// The present time by its clock.
    now: Micros,
    /// The time before which records were removed; 0 when none were.
    since: Micros,
}

/// Sums of records in a range of time.
#[derive(Default)]
struct Pulled {
    counts: UsageCounts,
    /// Number of records by the hour.
    records: FxHashMap<u64, u64>,
}

/// Brings the file up to date.
pub(super) fn refresh(database: &mut Connection, fleet: &Fleet) -> Result<Recent, PullError> {
    let Seen { settled, since, .. } = revise(database, fleet)?;
    let mut step_hours = 1;
    while let Some(records) = advance(database, fleet, settled, step_hours)? {
        step_hours = next_step_hours(step_hours, records);
    }
    settle(database, fleet, since)
}

/// Begins anew where this is another database, pulls hours again whose records have come late, and puts together the
/// hours of days that are over. Returns what PostgreSQL says of the journals.
fn revise(database: &mut Connection, fleet: &Fleet) -> Result<Seen, PullError> {
    // In this order: another process that pulls has seen no later state.
    let transaction = begin(database)?;
    let snapshot = fleet.snapshot_within(STEP_WITHIN)?;
    let seen = Seen::read(&snapshot)?;
    snapshot.finish();
    let known = database::load_journals(&transaction)?;
    let mut reach = database::load_reach(&transaction)?;
    let mut moves = Moves::Forward;
    if let Some(reach) = reach {
        moves = journal_moves::moves(&known, &seen.journals, reach.until);
    }
    if moves == Moves::Backward {
        tracing::info!("the records in PostgreSQL are not those of before; their sums are made anew");
        database::clear(&transaction)?;
        (reach, moves) = (None, Moves::Forward);
    }
    let merged = first_hour_of(day_of(Micros(hour_of(seen.now).saturating_sub(HOURS_APART).saturating_mul(HOUR))));
    let kept = first_hour_of(day_of(seen.now).saturating_sub(DAYS_KEPT)).max(hour_of(seen.since));
    let mut reach = match reach {
        Some(reach) => reach,
        None => {
            let first = first_record(fleet)?.unwrap_or(seen.now);
            Reach { until: Micros(hour_of(first).max(kept).saturating_mul(HOUR)), merged, since: seen.since }
        }
    };
    if reach.merged < merged || reach.since < seen.since {
        usage_rows::tidy(&transaction, kept, merged)?;
        database::forget_counts(&transaction, kept)?;
        (reach.merged, reach.since) = (merged, seen.since);
    }
    if let Moves::Late(from) = moves {
        for (hours, records) in differing(&transaction, fleet, reach, hour_of(from).max(kept))? {
            database::forget_hours(&transaction, &hours)?;
            let mut from = hours.start;
            while from < hours.end {
                let before = if records <= RECORDS_AT_ONCE { hours.end } else { from + 1 };
                let times = [from, before].map(|hour| Micros(hour.saturating_mul(HOUR)).min(reach.until));
                add_range(&transaction, fleet, reach, times)?;
                from = before;
            }
        }
    }
    database::store_reach(&transaction, reach)?;
    database::store_journals(&transaction, &seen.journals)?;
    transaction.commit()?;
    Ok(seen)
}

/// The hours, or days, from an hour on of which other numbers of records are there than were added up, and how many
/// are there.
fn differing(
    database: &Connection,
    fleet: &Fleet,
    reach: Reach,
    from: u64,
) -> Result<Vec<(Range<u64>, u64)>, PullError> {
    let from = reach.hours_with(from).start;
    let mut statement = Statement::new(&format!("SELECT {HOUR_OF_RECORD}, count(*) FROM keygate.records"));
    statement.and_uses(Micros(from.saturating_mul(HOUR)), Some(reach.until));
    statement.sql += " GROUP BY 1";
    let mut there: FxHashMap<u64, u64> = FxHashMap::default();
    for row in read(fleet, &statement)? {
        *there.entry(reach.hours_with(number(&row, 0)).start).or_default() += number(&row, 1);
    }
    let added = database::load_records(database, reach, from)?;
    let hours = there.keys().chain(added.keys().filter(|hour| !there.contains_key(hour)));
    let mut hours: Vec<u64> = hours.copied().filter(|hour| there.get(hour) != added.get(hour)).collect();
    hours.sort_unstable();
    let records = |hour: &u64| there.get(hour).copied().unwrap_or(0);
    Ok(hours.into_iter().map(|hour| (reach.hours_with(hour), records(&hour))).collect())
}

/// Adds the records of the next hours from before `settled`. Returns how many there were; `None` when all are added.
fn advance(database: &mut Connection, fleet: &Fleet, settled: Micros, hours: u64) -> Result<Option<u64>, PullError> {
    let transaction = begin(database)?;
    let reach = database::load_reach(&transaction)?.filter(|reach| reach.until < settled);
    let Some(reach) = reach else { return Ok(None) };
    let until = settled.min(Micros((hour_of(reach.until) + hours).saturating_mul(HOUR)));
    let records = add_range(&transaction, fleet, reach, [reach.until, until])?;
    database::store_reach(&transaction, Reach { until, ..reach })?;
    transaction.commit()?;
    Ok(Some(records))
}

/// The hours of the step after one with this many records: at most four times as many, as the records may be uneven.
fn next_step_hours(hours: u64, records: u64) -> u64 {
    let wanted = hours.saturating_mul(RECORDS_AT_ONCE) / records.max(1);
    wanted.clamp(1, hours * 4).min(MAX_STEP_HOURS)
}

/// Adds the records of a range of time. Returns how many there are.
fn add_range(
    database: &Connection,
    fleet: &Fleet,
    reach: Reach,
    [since, until]: [Micros; 2],
) -> Result<u64, PullError> {
    let snapshot = fleet.snapshot_within(STEP_WITHIN)?;
    let pulled = Pulled::read(&snapshot, reach, since, Some(until))?;
    let open = open_uses(&snapshot, since, until)?;
    snapshot.finish();
    usage_rows::add_sums(database, &pulled.counts)?;
    database::add_records(database, &pulled.records)?;
    open.iter().try_for_each(|(id, open)| database::store_open(database, id, open))?;
    Ok(pulled.records.values().sum())
}

/// Adds the ends of uses that were open, and reads what came since, in one snapshot.
fn settle(database: &mut Connection, fleet: &Fleet, since: Micros) -> Result<Recent, PullError> {
    let transaction = begin(database)?;
    let reach = database::load_reach(&transaction)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let mut open = database::load_open(&transaction)?;
    let snapshot = fleet.snapshot_within(STEP_WITHIN)?;
    let mut ended = Pulled::default();
    for row in ended_uses(&snapshot, &open)? {
        let id: &str = row.get(0);
        let (Some(began), Some(outcome)) = (open.remove(id), Outcome::from_name(row.get(1))) else { continue };
        let mut sums = UsageSums::default();
        let more = number(&row, 2).cast_signed().saturating_sub_unsigned(began.units);
        sums.end(outcome, 1, more, [number(&row, 3), number(&row, 4)]);
        let of = [Some(&*began.org), began.key.as_deref(), began.route.as_deref()];
        ended.add(of, reach.hour_of(began.time), &sums);
        database::remove_open(&transaction, id)?;
    }
    // The records of days that were removed do not end any more.
    let mut removed = open.iter().filter(|(_, open)| open.time < since);
    removed.try_for_each(|(id, _)| database::remove_open(&transaction, id))?;
    usage_rows::add_sums(&transaction, &ended.counts)?;
    let recent = Pulled::read(&snapshot, reach, reach.until, None)?;
    let gateways = snapshot.freshness()?;
    snapshot.finish();
    transaction.commit()?;
    Ok(Recent { until: reach.until, counts: recent.counts, gateways })
}

/// A transaction, which waits for that of another process.
fn begin(database: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    database.transaction_with_behavior(TransactionBehavior::Immediate)
}

impl Seen {
    fn read(snapshot: &Snapshot<'_>) -> Result<Self, FleetError> {
        let clock = snapshot.query(&format!("SELECT {}", micros("now()")), &[])?;
        let now = clock.first().map_or(Micros(0), |row| Micros(number(row, 0)));
        let rows = snapshot.journals()?;
        let times: Vec<(Micros, Micros)> = rows.iter().map(|row| (row.complete_until, row.updated)).collect();
        Ok(Self {
            journals: rows.into_iter().map(JournalPlace::of).collect(),
            settled: journal_moves::settled_until(&times, now),
            now,
            since: snapshot.first_kept()?.unwrap_or_default(),
        })
    }
}

impl Pulled {
    /// Reads the sums of the records of a range of time.
    fn read(snapshot: &Snapshot<'_>, reach: Reach, since: Micros, until: Option<Micros>) -> Result<Self, FleetError> {
        let mut statement = Statement::new(&format!(
            "SELECT {HOUR_OF_RECORD}, org_id, {KEY}, {ROUTE}, outcome, sum(coalesce(count, 1))::bigint, \
             sum(coalesce(cost, 1))::bigint, sum(coalesce(request_bytes, 0))::bigint, \
             sum(coalesce(response_bytes, 0))::bigint, count(*) FROM keygate.records"
        ));
        statement.and_uses(since, until);
        statement.sql += " GROUP BY 1, 2, 3, 4, 5";
        let mut pulled = Self::default();
        for row in snapshot.query_much(&statement.sql, &statement.params())? {
            let hour = number(&row, 0);
            *pulled.records.entry(hour).or_default() += number(&row, 9);
            let Some(outcome) = Outcome::from_name(row.get(4)) else { continue };
            let (uses, mut sums) = (number(&row, 5), UsageSums::default());
            if outcome.is_refusal() {
                sums.refuse(outcome, uses);
            } else {
                sums.begin(uses, number(&row, 6));
                if outcome != Outcome::InProgress {
                    sums.end(outcome, uses, 0, [number(&row, 7), number(&row, 8)]);
                }
            }
            pulled.add([1, 2, 3].map(|column| row.get(column)), reach.hours_with(hour).start, &sums);
        }
        Ok(pulled)
    }

    /// Adds sums of an organization, a key and a route; those without an organization are not usage.
    fn add(&mut self, [org, key, route]: [Option<&str>; 3], hour: u64, sums: &UsageSums) {
        let Some(org) = org.and_then(|org| org.parse().ok()) else { return };
        let key = key.and_then(|key| key.parse().ok());
        self.counts.keys.entry((org, key)).or_default().add(hour, sums);
        let route = route.and_then(RouteName::of_action);
        self.counts.routes.entry((org, route, hour)).or_default().add(sums);
    }
}

/// The uses in a range of time that have not ended, by id.
fn open_uses(snapshot: &Snapshot<'_>, since: Micros, until: Micros) -> Result<Vec<(String, OpenRow)>, FleetError> {
    let time = micros("time");
    let mut statement = Statement::new(&format!(
        "SELECT id::text, {time}, org_id, {KEY}, {ROUTE}, coalesce(cost, 1) FROM keygate.records"
    ));
    statement.and_uses(since, Some(until));
    statement.and(&format!("outcome = '{}'", Outcome::InProgress.name()));
    let open = |row: &Row| {
        let (time, units) = (Micros(number(row, 1)), number(row, 5));
        (row.get(0), OpenRow { time, org: row.get(2), key: row.get(3), route: row.get(4), units })
    };
    Ok(snapshot.query_much(&statement.sql, &statement.params())?.iter().map(open).collect())
}

/// The ends of those of these uses that have ended: id, outcome, cost, bytes of the bodies of request and response.
fn ended_uses(snapshot: &Snapshot<'_>, open: &FxHashMap<String, OpenRow>) -> Result<Vec<Row>, FleetError> {
    let times = || open.values().map(|open| open.time);
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(Vec::new()) };
    let mut statement = Statement::new(
        "SELECT id::text, outcome, coalesce(cost, 1), coalesce(request_bytes, 0), coalesce(response_bytes, 0) \
         FROM keygate.records",
    );
    let ids = statement.param(open.keys().cloned().collect::<Vec<_>>(), "text[]");
    statement.and(&format!("id = ANY ({ids}::uuid[])"));
    // For the choice of partitions.
    let [first, last] = [first, last].map(|time| statement.time(time));
    statement.and(&format!("time >= {first} AND time <= {last}"));
    statement.and(&format!("outcome <> '{}'", Outcome::InProgress.name()));
    snapshot.query_much(&statement.sql, &statement.params())
}

/// The time of the first record.
fn first_record(fleet: &Fleet) -> Result<Option<Micros>, FleetError> {
    let rows = read(fleet, &Statement::new(&format!("SELECT {} FROM keygate.records", micros("min(time)"))))?;
    let first = rows.first().and_then(|row| row.get::<_, Option<i64>>(0));
    Ok(first.map(|time| Micros(time.max(0).unsigned_abs())))
}

fn read(fleet: &Fleet, statement: &Statement) -> Result<Vec<Row>, FleetError> {
    let snapshot = fleet.snapshot_within(STEP_WITHIN)?;
    let rows = snapshot.query_much(&statement.sql, &statement.params())?;
    snapshot.finish();
    Ok(rows)
}

/// The SQL of the number of the hour of a record.
const HOUR_OF_RECORD: &str = "floor(extract(epoch FROM time) / 3600)::bigint";
/// The SQL of the key of a record; null of a web session.
const KEY: &str = "CASE WHEN auth_method = 'api-key' THEN key_id END";

impl Statement {
    /// Adds the conditions that records are uses in a range of time.
    fn and_uses(&mut self, since: Micros, until: Option<Micros>) {
        let since = self.time(since);
        self.and(&format!("time >= {since}"));
        if let Some(until) = until {
            let until = self.time(until);
            self.and(&format!("time < {until}"));
        }
        self.and(&format!("org_id IS NOT NULL AND outcome <> 'unknown' AND NOT ({})", is_change()));
    }
}

fn number(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}
