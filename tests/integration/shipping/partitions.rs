//! Partitions and retention in PostgreSQL, also while clocks are wrong.

use std::sync::Arc;
use std::time::Duration;

use domain::clock;
use journal::audit::{Journal, Settings};
use journal::shipping::Shippers;
use platform::metrics::Metrics;

use super::postgresql::{count, ship_all, sink, sink_with};
use crate::journal::support::{Caller, END, block_on, open_journal, settings};
use crate::support::{Postgresql, SteppedClock};

const DAY: Duration = Duration::from_secs(86_400);
const LONG: Duration = Duration::from_secs(60);

/// Records a use for each of these days before now.
fn write_days(settings: &Settings, days: &[u32]) -> Journal {
    let (journal, caller) = (open_journal(settings), Caller::random());
    for days in days {
        let opening = caller.opening_at(clock::now().before(DAY * *days));
        block_on(journal.begin(&opening)).unwrap().close(END);
    }
    journal
}

fn partitions(server: &Postgresql) -> usize {
    server.sql("SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'keygate.records'::regclass").len()
}

#[test]
fn days_have_partitions_and_old_ones_are_dropped() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = settings(dir.path());
    block_on(write_days(&settings, &[0, 3, 40]).close());
    ship_all(&settings, &sink(&server));
    // Yesterday to a week ahead, and two days of the journal.
    assert_eq!((count(&server), partitions(&server)), (3, 11));
    // Another gateway ships the same with a retention: what is in hand keeps its days.
    server.sql("DELETE FROM keygate.journals");
    ship_all(&settings, &sink_with(&server.url(), None, Some(DAY * 30)));
    assert_eq!((count(&server), partitions(&server)), (3, 11));
    block_on(write_days(&settings, &[0]).close());
    ship_all(&settings, &sink_with(&server.url(), None, Some(DAY * 30)));
    assert_eq!((count(&server), partitions(&server)), (3, 10));
    // Reports of usage say up to when records were removed.
    let note = &server.sql("SELECT obj_description('keygate.records'::regclass, 'pg_class')")[0];
    let removed = clock::now().before(DAY * 39).to_string();
    assert!(note.ends_with(&format!("; removed before {}", &removed[..10])), "{note}");
}

#[test]
fn records_of_dropped_days_are_refused_and_counted() {
    let (dir, other, server) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Postgresql::start());
    let new = settings(dir.path());
    block_on(write_days(&new, &[0]).close());
    ship_all(&new, &sink(&server));
    // A journal that was away for long.
    let old = settings(other.path());
    block_on(write_days(&old, &[40, 41, 7]).close());
    let journal = open_journal(&old);
    let metrics = Metrics::new();
    let sinks = sink_with(&server.url(), None, Some(DAY * 30));
    let shippers = Shippers::start(journal.tap(), &sinks, &metrics.shipping).unwrap();
    crate::support::eventually("it is shipped", || shippers.reports()[0].lag_records == 0);
    let report = shippers.reports().remove(0);
    assert_eq!((report.delivered, report.rejected, metrics.shipping.sink("central").too_old.get()), (1, 2, 2));
    block_on(journal.close());
    shippers.finish(LONG);
    assert_eq!(count(&server), 2);
}

#[test]
fn database_whose_clock_is_ahead_drops_nothing_and_takes_new_records() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(SteppedClock::new()));
    let server = Postgresql::with_clock(&clock);
    let (settings, sinks) = (settings(dir.path()), sink_with(&server.url(), None, Some(DAY * 30)));
    block_on(write_days(&settings, &[20, 3, 0]).close());
    ship_all(&settings, &sinks);
    server.sql(
        "INSERT INTO keygate.checkpoints (origin, size, root, gateway, journal, time, note)
        SELECT 'o', size, 'root', 'gw-1', gen_random_uuid(), now(), 'note' FROM generate_series(1, 2) AS size",
    );
    clock.step(60 * 86_400);
    let ahead = format!("SELECT extract(epoch FROM now()) > {} + 59 * 86400", clock::now().0 / 1_000_000);
    assert_eq!(server.sql(&ahead), ["t"], "the clock is that of the test");
    for total in 4..7 {
        // Each shipper looks for days to drop when it begins to deliver.
        block_on(write_days(&settings, &[0]).close());
        ship_all(&settings, &sinks);
        assert_eq!(count(&server), total);
    }
    assert_eq!(server.sql("SELECT count(*) FROM keygate.checkpoints"), ["2"]);
    clock.step(0);
    block_on(write_days(&settings, &[0]).close());
    ship_all(&settings, &sinks);
    assert_eq!(count(&server), 7);
}
