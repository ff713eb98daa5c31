//! Retention of the journal waits for sinks, up to the configured size.

use std::time::Duration;

use journal::audit::{Durability, Journal, Settings};
use journal::shipping::{Destination, FilesSettings, ShippedRecords, Shippers, SinkSettings};
use platform::metrics::Metrics;

use super::postgresql::sink;
use crate::journal::support::{Caller, END, block_on, open_journal, segment_files, settings, write_uses};
use crate::support::{Postgresql, eventually};

const KIB: u64 = 1 << 10;

fn with_retention(dir: &std::path::Path, unshipped: u64) -> Settings {
    Settings {
        segment_size: 16 * KIB,
        retention_size: Some(32 * KIB),
        retention_unshipped: unshipped,
        durability: Durability::Written,
        ..settings(dir)
    }
}

/// Begins a new segment, so that the maintenance has something to do.
fn write(journal: &Journal, count: usize) {
    let caller = Caller::random();
    (0..count).for_each(|_| block_on(journal.begin(&caller.opening())).unwrap().close(END));
}

#[test]
fn segments_stay_until_the_last_sink_has_them() {
    let (dir, mut server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = with_retention(dir.path(), 1 << 30);
    server.crash();
    let metrics = Metrics::new();
    let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
    // Beside it, one that takes all at once.
    let mut sinks = sink(&server);
    let (path, every) = (dir.path().join("objects"), Duration::from_secs(60));
    let files = Destination::Files(FilesSettings { path, size: 1 << 30, every });
    sinks.sinks.push(SinkSettings { name: "files".into(), destination: files, records: ShippedRecords::All });
    let shippers = Shippers::start(journal.tap(), &sinks, &metrics.shipping).unwrap();
    // Compressed, they are beyond the size many times.
    write(&journal, 20_000);
    let compressed = || {
        eventually("the segments are compressed", || {
            let files = segment_files(&settings);
            files.len() > 60 && files.iter().filter(|file| file.extension().is_some_and(|e| e == "jsonl")).count() <= 1
        });
    };
    compressed();
    eventually("the other sink has them", || shippers.reports()[1].delivered >= 20_000);
    let kept = segment_files(&settings).len();
    // Each segment that is closed has the maintenance look again.
    write(&journal, 500);
    compressed();
    assert!(segment_files(&settings).len() >= kept, "nothing is removed while the sink is away");
    server.restart();
    eventually("they go when the sink has them", || segment_files(&settings).len() < kept / 2);
    assert_eq!(metrics.audit.unshipped_removed.get(), 0);
    shippers.finish(Duration::from_secs(60));
    block_on(journal.close());
    assert_eq!(server.sql("SELECT count(*), count(DISTINCT id) FROM keygate.records"), ["20500|20500"]);
}

#[test]
fn beyond_the_size_the_oldest_go_and_are_counted() {
    let (dir, mut server) = (tempfile::tempdir().unwrap(), Postgresql::start());
    let settings = with_retention(dir.path(), 64 * KIB);
    let metrics = Metrics::new();
    let journal = Journal::open(settings, metrics.audit.clone()).unwrap();
    let shippers = Shippers::start(journal.tap(), &sink(&server), &metrics.shipping).unwrap();
    write(&journal, 1);
    eventually("the sink has a position", || shippers.reports()[0].delivered == 1);
    server.crash();
    write(&journal, 20_000);
    eventually("the oldest are removed", || metrics.audit.unshipped_removed.get() > 0);
    server.restart();
    eventually("the sink takes the rest, and counts what is missing", || {
        let report = shippers.reports().remove(0);
        report.lag_records == 0 && report.skipped_segments > 0
    });
    assert!(metrics.shipping.sink("central").skipped.get() > 0);
    shippers.finish(Duration::from_secs(60));
    block_on(journal.close());
}

#[test]
fn without_sinks_nothing_waits() {
    let dir = tempfile::tempdir().unwrap();
    let settings = with_retention(dir.path(), 1 << 30);
    write_uses(&settings, 10_000);
    let before = segment_files(&settings).len();
    let journal = open_journal(&settings);
    let shippers = super::postgresql::start(&journal, &journal::shipping::Settings::default());
    eventually("retention removes them", || segment_files(&settings).len() < before / 2);
    drop(shippers);
    block_on(journal.close());
}
