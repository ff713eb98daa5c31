//! Segments: rotation, retention, and the gateway that writes them.

use std::fs;
use std::time::Duration;

use keygate::audit::{Filter, Outcome, Settings};
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, export_records, open_journal, open_reader, segment_files,
    settings, write_uses,
};
use crate::support::eventually;

#[test]
fn segments_close_by_size_and_age_and_old_ones_are_removed() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 10_000, retention_size: Some(30_000), ..settings(directory.path()) };
    let journal = open_journal(&settings);
    block_on(async {
        for _ in 0..200 {
            journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        }
    });
    // A segment that is removed meanwhile has no size.
    let size =
        || segment_files(&settings).iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum::<u64>();
    eventually("old segments are removed", || size() <= 30_000 + 5_000);
    assert!(segment_files(&settings).len() > 1);
    assert_intact(&settings);
    block_on(journal.close());
    assert_intact(&settings);

    let aging = Settings { segment_age: Duration::from_millis(300), ..settings };
    let before = segment_files(&aging).len();
    let journal = open_journal(&Settings { segment_size: 1 << 20, retention_size: None, ..aging.clone() });
    block_on(async { journal.begin(&Caller::random().opening()).await.unwrap().close(END) });
    eventually("a segment closes by its age", || segment_files(&aging).len() > before);
    // Longer than a round of maintenance: rounds that do nothing leave nothing to wait for.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(segment_files(&aging).len() <= before + 3, "at most one segment with nothing but a seal follows");
}

#[test]
fn open_use_keeps_its_segment_and_ends_as_aborted() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 10_000, retention_size: Some(1), ..settings(directory.path()) };
    let journal = open_journal(&settings);
    let long = Caller::random().opening();
    block_on(async {
        std::mem::forget(journal.begin(&long).await.unwrap());
        for _ in 0..100 {
            journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        }
    });
    // Longer than a round of maintenance: a segment that is not removed leaves nothing to wait for.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(all_records(&settings)[0].id, long.id, "its segment is not removed");
    assert!(assert_intact(&settings).open == 1);
    block_on(journal.close());
    assert_eq!(all_records(&settings)[0].outcome, Outcome::InProgress);
    assert_ne!(open_reader(&settings).verify().unwrap().problems, [], "an open use in a closed journal is a defect");

    let settings = Settings { retention_size: None, ..settings };
    block_on(open_journal(&settings).close());
    let record = export_records(&settings, Filter::default()).into_iter().find(|record| record.id == long.id);
    assert_eq!(record.unwrap().outcome, Outcome::Aborted);
    assert_intact(&settings);
}

#[test]
fn gateway_with_another_name_begins_another_segment() {
    let directory = TempDir::new().unwrap();
    let first = settings(directory.path());
    write_uses(&first, 1);
    write_uses(&Settings { gateway: "gw-2".into(), ..first.clone() }, 1);
    let gateways: Vec<String> = all_records(&first).into_iter().map(|record| record.gateway).collect();
    assert_eq!(gateways, ["gw-1", "gw-2"]);
    assert_intact(&first);
}
