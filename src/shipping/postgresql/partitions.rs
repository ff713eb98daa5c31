//! Partitions of the records: one for each day (UTC), made ahead, and dropped when they are too old.
//!
//! - Days are those of the database's clock: a gateway whose clock is wrong drops nothing.
//! - Changes are made under the advisory lock of the schema, one gateway at a time.
//! - A partition is attached and not created in place, so that those who read and write others do not wait for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, Transaction};

use super::schema::LOCK;
use crate::audit::Record;
use crate::clock::Micros;
use crate::postgresql::Error;

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
    /// The first day that retention keeps.
    first: u64,
    last_look: Option<Instant>,
}

impl Partitions {
    pub(super) fn new(retention: Option<Duration>) -> Self {
        Self { retention, known: BTreeSet::new(), first: 0, last_look: None }
    }

    /// Makes the partitions of the next days and drops those that are too old, when it is time to; returns whether it
    /// was.
    pub(super) async fn maintain(&mut self, client: &mut Client) -> Result<bool, Error> {
        if self.last_look.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(false);
        }
        let today = today(client).await?;
        self.known = list(&*client).await?;
        self.first = self.retention.map_or(0, |retention| first_kept(today, retention));
        self.create(client, (today.saturating_sub(1)..=today + AHEAD).collect()).await?;
        let expired: Vec<u64> = self.known.range(..self.first).copied().collect();
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
        self.last_look = Some(Instant::now());
        Ok(true)
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

    /// Returns whether retention keeps a record. The day of another may have been dropped already.
    pub(super) fn keeps(&self, record: &Record) -> bool {
        day_of(record.time) >= self.first
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
    let (name, from, to) = (name_of(day), date_of(day), date_of(day + 1));
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
    Ok(transaction.commit().await?)
}

async fn today(client: &Client) -> Result<u64, Error> {
    let row = client.query_one("SELECT floor(extract(epoch FROM now()) / 86400)::bigint", &[]).await?;
    let day: i64 = row.get(0);
    Ok(u64::try_from(day).unwrap_or(0))
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

    #[test]
    fn day_is_kept_until_its_last_record_is_too_old() {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(first_kept(100, days(30)), 70);
        assert_eq!(first_kept(100, days(30) + Duration::from_secs(1)), 69);
        assert_eq!(first_kept(10, days(30)), 0);
        assert_eq!(day_of(Micros(u64::MAX)), 2_932_895, "a clock beyond the year 9999");
    }
}
