//! Partitions of the records: one for each day (UTC), made ahead, and dropped when they are too old.
//!
//! - No single clock drops a day. The present day is the smaller of the database's and that of the newest record, in
//!   the table or in hand; and no day is dropped within the retention of a record in hand.
//! - A record of a day that was dropped is refused as too old, and counted.
//! - Changes are made under the advisory lock of the schema, one gateway at a time.
//! - A partition is attached and not created in place, so that those who read and write others do not wait for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Transaction};

use super::schema::LOCK;
use crate::audit::Record;
use domain::clock::Micros;
use platform::postgresql::Error;

/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;
/// Days for which partitions are made ahead: a week without a gateway that may make one.
const AHEAD: u64 = 7;
/// Time between two looks for partitions to make and to drop.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Time for which dropping a partition waits for those who read it. It is tried again later.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '5s'";

/// Number of a day since 1970-01-01.
pub(super) fn day_of(time: Micros) -> u64 {
    time.min(super::copy_format::LATEST).0 / DAY
}

/// Partitions of a database, as this gateway knows them.
#[derive(Debug)]
pub(super) struct Partitions {
    retention: Option<Duration>,
    known: BTreeSet<u64>,
    /// The first day of which records are accepted that have no partition.
    first: u64,
    last_look: Option<Instant>,
}

/// Days as the database and its newest record tell them.
#[derive(Clone, Copy, Debug)]
struct Days {
    today: u64,
    /// None when there is no record.
    newest: Option<u64>,
}

impl Partitions {
    pub(super) fn new(retention: Option<Duration>) -> Self {
        Self { retention, known: BTreeSet::new(), first: 0, last_look: None }
    }

    /// Makes the partitions of the next days and drops those that are too old, when it is time to. Returns the first
    /// day that stays, when there is a retention and it was time. `in_hand` are the records that are delivered next.
    pub(super) async fn maintain(&mut self, client: &mut Client, in_hand: &[Record]) -> Result<Option<u64>, Error> {
        if self.last_look.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(None);
        }
        let days = days(client).await?;
        self.known = list(&*client).await?;
        self.create(client, (days.today.saturating_sub(1)..=days.today + AHEAD).collect()).await?;
        let Some(retention) = self.retention else {
            self.last_look = Some(Instant::now());
            return Ok(None);
        };
        self.first = days.first_accepted(in_hand, retention);
        let first = days.first_kept(in_hand, retention);
        self.drop_before(client, first).await;
        self.last_look = Some(Instant::now());
        Ok(Some(first))
    }

    /// Drops the partitions of the days before this one.
    async fn drop_before(&mut self, client: &mut Client, first: u64) {
        let expired: Vec<u64> = self.known.range(..first).copied().collect();
        for day in expired {
            match drop_partition(client, day).await {
                Ok(()) => {
                    self.known.remove(&day);
                    tracing::info!(day = name_of(day), "dropped the audit records of a day (retention)");
                }
                // A reader that holds it ends some time; the next look tries again.
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    day = name_of(day),
                    "cannot drop the audit records of a day yet; trying again in an hour"
                ),
            }
        }
    }

    /// Makes the partitions of records that have none: those of a journal that was written earlier.
    pub(super) async fn provide(&mut self, client: &mut Client, records: &[Record]) -> Result<(), Error> {
        let mut missing = BTreeSet::new();
        let mut last = None;
        for record in records {
            let day = day_of(record.time);
            // Nearly all records of a batch are of one day.
            if last.replace(day) != Some(day) && self.keeps(record) && !self.known.contains(&day) {
                missing.insert(day);
            }
        }
        if missing.is_empty() { Ok(()) } else { self.create(client, missing).await }
    }

    /// Returns whether a record is accepted: retention keeps its day, or has not dropped it yet.
    pub(super) fn keeps(&self, record: &Record) -> bool {
        let day = day_of(record.time);
        day >= self.first || self.known.contains(&day)
    }

    async fn create(&mut self, client: &mut Client, days: BTreeSet<u64>) -> Result<(), Error> {
        let missing: Vec<u64> = days.difference(&self.known).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let transaction = client.transaction().await?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        // Another gateway may have made them meanwhile.
        let present = list(&transaction).await?;
        for day in missing.iter().filter(|day| !present.contains(*day)) {
            attach(&transaction, *day).await?;
        }
        transaction.commit().await?;
        self.known.extend(present.into_iter().chain(missing));
        Ok(())
    }
}

async fn attach(transaction: &Transaction<'_>, day: u64) -> Result<(), Error> {
    let name = name_of(day);
    let from = date_of(day);
    let to = date_of(day + 1);
    let statements = format!(
        "CREATE TABLE IF NOT EXISTS keygate.{name} (LIKE keygate.records INCLUDING DEFAULTS);
         ALTER TABLE keygate.records ATTACH PARTITION keygate.{name}
             FOR VALUES FROM ('{from} 00:00:00+00') TO ('{to} 00:00:00+00')"
    );
    Ok(transaction.batch_execute(&statements).await?)
}

async fn drop_partition(client: &mut Client, day: u64) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    transaction.batch_execute(LOCK_TIMEOUT).await?;
    transaction.batch_execute(&format!("DROP TABLE IF EXISTS keygate.{}", name_of(day))).await?;
    note_removal(&transaction, day).await?;
    Ok(transaction.commit().await?)
}

/// Notes up to when records were removed, in the comment of the table: days without records look the same.
async fn note_removal(transaction: &Transaction<'_>, day: u64) -> Result<(), Error> {
    let note = format!("Audit records of all gateways: one row for each use; removed before {}", date_of(day + 1));
    let noted = "SELECT obj_description('keygate.records'::regclass, 'pg_class')";
    let noted: Option<String> = transaction.query_one(noted, &[]).await?.get(0);
    // Texts with dates are in the order of the dates. An older day that was filled again is no news.
    if noted.is_none_or(|noted| noted < note) {
        transaction.batch_execute(&format!("COMMENT ON TABLE keygate.records IS '{note}'")).await?;
    }
    Ok(())
}

impl Days {
    /// The present day: a clock that is ahead, of the database or of a gateway, does not make it later.
    fn present(self, in_hand: &[Record]) -> u64 {
        let newest = in_hand.iter().map(|record| day_of(record.time)).chain(self.newest).max();
        newest.map_or(0, |newest| newest.min(self.today))
    }

    /// The first day of which records are accepted.
    fn first_accepted(self, in_hand: &[Record], retention: Duration) -> u64 {
        first_kept(self.present(in_hand), retention)
    }

    /// The first day that is not dropped.
    fn first_kept(self, in_hand: &[Record], retention: Duration) -> u64 {
        let oldest = in_hand.iter().map(|record| day_of(record.time)).min();
        first_kept(oldest.unwrap_or(u64::MAX).min(self.present(in_hand)), retention)
    }
}

async fn days(client: &Client) -> Result<Days, Error> {
    // The newest record is found in the index of the last partition that has any.
    let statement = "SELECT floor(extract(epoch FROM now()) / 86400)::bigint,
        (SELECT floor(extract(epoch FROM time) / 86400)::bigint FROM keygate.records ORDER BY time DESC LIMIT 1)";
    let row = client.query_one(statement, &[]).await?;
    let day = |day: i64| u64::try_from(day).unwrap_or(0);
    Ok(Days { today: day(row.get(0)), newest: row.get::<_, Option<i64>>(1).map(day) })
}

/// The days that have a partition.
async fn list(client: &impl tokio_postgres::GenericClient) -> Result<BTreeSet<u64>, Error> {
    let rows = client
        .query(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent = 'keygate.records'::regclass",
            &[],
        )
        .await?;
    Ok(rows.iter().filter_map(|row| day_of_name(row.get(0))).collect())
}

/// The first day that is kept on a day: one is dropped when its last record is older than the retention.
fn first_kept(today: u64, retention: Duration) -> u64 {
    today.saturating_sub(retention.as_secs().div_ceil(DAY / 1_000_000))
}

fn date(day: u64) -> jiff::civil::Date {
    let days = i64::try_from(day).unwrap_or(i64::MAX);
    let epoch = jiff::civil::date(1970, 1, 1);
    epoch.checked_add(jiff::Span::new().try_days(days).unwrap_or_default()).unwrap_or(jiff::civil::Date::MAX)
}

fn date_of(day: u64) -> String {
    date(day).to_string()
}

/// Name of the partition of a day: `records_20261231`.
fn name_of(day: u64) -> String {
    let date = date(day);
    format!("records_{:04}{:02}{:02}", date.year(), date.month(), date.day())
}

fn day_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("records_").filter(|digits| digits.len() == 8)?;
    let number: i32 = digits.parse().ok()?;
    let part = |number: i32| i8::try_from(number % 100).ok();
    let date = jiff::civil::Date::new(i16::try_from(number / 10_000).ok()?, part(number / 100)?, part(number)?).ok()?;
    let since = date.since((jiff::Unit::Day, jiff::civil::date(1970, 1, 1))).ok()?;
    u64::try_from(since.get_days()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_is_named_by_its_day() {
        assert_eq!((name_of(0), date_of(0)), ("records_19700101".to_owned(), "1970-01-01".to_owned()));
        for day in [0, 59, 11_016, 20_779, 2_932_895] {
            assert_eq!(day_of_name(&name_of(day)), Some(day), "{}", name_of(day));
        }
        assert_eq!(name_of(20_779), "records_20261122");
        for name in ["records_2026112", "records_20261322", "other_20261122", "records_2026112x"] {
            assert_eq!(day_of_name(name), None, "{name}");
        }
    }

    fn record(day: u64) -> Record {
        let text = format!(
            r#"{{"id":"01923456-0000-7000-8000-000000000000","time":"{}T12:00:00.000000Z","key_id":null,"user_id":null,
            "org_id":null,"auth_method":"api-key","ip":null,"user_agent":null,"action":"a","method":"GET","path":"/",
            "outcome":"completed","status":200,"duration_us":1,"request_bytes":0,"response_bytes":1,"gateway":"g"}}"#,
            date_of(day)
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn present_day_is_the_smaller_of_the_databases_and_the_newest_records() {
        let retention = Duration::from_secs(30 * 86_400);
        let first = |today, newest, in_hand: &[u64]| {
            let in_hand: Vec<Record> = in_hand.iter().copied().map(record).collect();
            let days = Days { today, newest };
            (days.first_accepted(&in_hand, retention), days.first_kept(&in_hand, retention))
        };
        assert_eq!(first(1000, Some(1000), &[1000]), (970, 970));
        assert_eq!(first(1060, Some(1000), &[1000]), (970, 970), "the database's clock is ahead");
        assert_eq!(first(1000, Some(1060), &[1000]), (970, 970), "a gateway's clock was ahead");
        assert_eq!(first(1060, None, &[1000]), (970, 970));
        assert_eq!(first(1060, None, &[]), (0, 0), "nothing is known");
        assert_eq!(first(1000, Some(1000), &[950, 1000]), (970, 920), "of a journal that was behind");
        assert_eq!(first(1060, Some(1060), &[1000]), (1030, 970), "no day within the retention of a record in hand");
    }

    #[test]
    fn day_is_kept_until_its_last_record_is_too_old() {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(first_kept(100, days(30)), 70);
        assert_eq!(first_kept(100, days(30) + Duration::from_secs(1)), 69);
        assert_eq!(first_kept(10, days(30)), 0);
        assert_eq!(day_of(Micros(u64::MAX)), 2_932_895, "a clock beyond the year 9999");
    }
}
