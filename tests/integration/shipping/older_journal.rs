//! A journal that was put back to an earlier copy: sinks that know what they have taken tell it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use journal::audit::Settings;
use journal::shipping::{self, Destination, FilesSettings, ShippedRecords, Shippers, SinkSettings};
use platform::metrics::Metrics;

use super::postgresql::{count, sink};
use crate::journal::support::{block_on, open_journal, settings, write_uses};
use crate::support::Postgresql;

const LONG: Duration = Duration::from_secs(60);

/// Copies a directory with everything in it.
fn copy(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).ok();
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Ships the whole journal; returns how often it was found to be older than what the sink had taken.
fn ship(settings: &Settings, sinks: &shipping::Settings) -> u64 {
    let (metrics, journal) = (Metrics::new(), open_journal(settings));
    let shippers = Shippers::start(journal.tap(), sinks, &metrics.shipping).unwrap();
    block_on(journal.close());
    shippers.finish(LONG);
    metrics.shipping.sink(&sinks.sinks[0].name).older_journal.get()
}

/// Puts a journal back by `lost` uses, and ships `again` others; returns how often that was told.
fn put_back(sinks: &shipping::Settings, segment_size: u64, lost: usize, again: usize) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size, ..settings(directory.path()) };
    write_uses(&settings, 20);
    assert_eq!(ship(&settings, sinks), 0);
    let backup = directory.path().join("backup");
    copy(&settings.path, &backup);
    write_uses(&settings, lost);
    assert_eq!(ship(&settings, sinks), 0, "it was written on");
    copy(&backup, &settings.path);
    write_uses(&settings, again);
    let found = ship(&settings, sinks);
    write_uses(&settings, 5);
    assert_eq!(ship(&settings, sinks), 0, "the sink has taken the lines of today since");
    found
}

#[test]
fn journal_that_was_put_back_is_told_by_the_database() {
    let server = Postgresql::start();
    for (segment_size, lost, again) in [(1 << 20, 20, 0), (1 << 20, 20, 40), (3_000, 40, 5), (3_000, 40, 80)] {
        let before = count(&server);
        assert_eq!(put_back(&sink(&server), segment_size, lost, again), 1, "{segment_size}: {lost}, {again}");
        assert_eq!(count(&server) - before, 25 + lost + again, "every record of both pasts is there");
    }
}

#[test]
fn journal_that_was_put_back_is_told_by_files() {
    let objects = tempfile::tempdir().unwrap();
    let files = FilesSettings { path: objects.path().into(), size: 1 << 20, every: LONG };
    let sinks = vec![SinkSettings {
        name: "archive".into(),
        destination: Destination::Files(files),
        records: ShippedRecords::All,
    }];
    assert_eq!(put_back(&shipping::Settings { sinks }, 3_000, 40, 60), 1);
}
