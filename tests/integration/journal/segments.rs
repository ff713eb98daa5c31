//! Segments: rotation, retention, and the gateway that writes them.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use journal::audit::{Filter, Journal, Outcome, Settings, Use};
use platform::metrics::Metrics;
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, change_of, export_records, indexed_segments, keep_plain,
    open_journal, segment_files, segment_number, settings, write_uses,
};
use crate::support::{SmallDisk, eventually};

#[test]
fn segments_close_by_size_and_age_and_old_ones_are_removed() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 10_000, retention_size: Some(100_000), ..settings(directory.path()) };
    keep_plain(&settings);
    let journal = open_journal(&settings);
    block_on(async {
        for _ in 0..1000 {
            journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        }
    });
    // A segment that is removed meanwhile has no size.
    let size =
        || segment_files(&settings).iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum::<u64>();
    eventually("old segments are removed", || size() <= 100_000 + 5_000);
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

/// Writes ended uses until `done`.
fn write_until(journal: &Journal, what: &str, mut done: impl FnMut() -> bool) {
    let caller = Caller::random();
    eventually(what, || {
        block_on(async {
            for _ in 0..50 {
                journal.begin(&caller.opening()).await.unwrap().close(END);
            }
        });
        done()
    });
}

fn first_segment(settings: &Settings) -> String {
    segment_files(settings)[0].file_name().unwrap().to_str().unwrap().to_owned()
}

/// True when the index has each closed segment.
fn is_indexed(settings: &Settings) -> bool {
    let (segments, indexed) = (segment_files(settings), indexed_segments(settings));
    segments[..segments.len() - 1].iter().all(|path| indexed.contains(&segment_number(path)))
}

/// True when the closed segments take what retention leaves them at most: all of `limit` that the other files do not
/// take, and half of it at least.
fn is_within(settings: &Settings, limit: u64) -> bool {
    let size_of = |is_counted: fn(&str) -> bool| -> u64 {
        let files = fs::read_dir(&settings.path).unwrap().map(Result::unwrap);
        let counted = files.filter(|file| is_counted(file.file_name().to_str().unwrap()));
        // One that is removed meanwhile has no size; a directory is one of those that keep segments plain.
        counted.flat_map(|file| file.metadata()).filter(fs::Metadata::is_file).map(|file| file.len()).sum()
    };
    let all = size_of(|_| true);
    let segments = size_of(|name| name.ends_with(".jsonl"));
    segments <= limit.saturating_sub(all - segments).max(limit / 2)
}

#[test]
fn open_use_pins_no_segment_and_its_record_is_complete() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 20_000, retention_size: Some(200_000), ..settings(directory.path()) };
    // A segment that is compressed makes room: retention would go on while the test reads.
    keep_plain(&settings);
    let journal = open_journal(&settings);
    let caller = Caller::random();
    let (long, longer) = (caller.opening(), caller.opening());
    let entry = block_on(journal.begin(&long)).unwrap();
    let left_open = block_on(journal.begin(&longer)).unwrap();
    // Retention goes on, and the beginnings are carried on with it, more than once.
    for segment in ["0000000020.jsonl", "0000000040.jsonl"] {
        write_until(&journal, "old segments are removed", || first_segment(&settings).as_str() >= segment);
    }
    // Then nothing is left to remove: retention would take the records of uses that have ended, too.
    eventually("all old segments are removed", || is_indexed(&settings) && is_within(&settings, 200_000));
    let filter = Filter { key: Some(caller.key), ..Filter::default() };
    let outcomes = || -> Vec<_> {
        let records = export_records(&settings, filter);
        records.iter().map(|record| (record.id, record.time, record.path.clone(), record.outcome)).collect()
    };
    let expected = |id, time, outcome| (id, time, "/api/queries".to_owned(), outcome);
    let in_progress = expected(longer.id, longer.time, Outcome::InProgress);
    // The last outcome follows its use a moment later.
    eventually("all other uses have ended", || assert_intact(&settings).open == 2);
    entry.close(END);
    eventually("the outcome is written", || outcomes().iter().any(|record| record.3 == Outcome::Completed));
    let mut found = outcomes();
    found.sort_unstable_by_key(|record| record.0);
    assert_eq!(found, [expected(long.id, long.time, Outcome::Completed), in_progress], "each once");
    // The one that is left open is found, and closed, by the next start.
    std::mem::forget(left_open);
    block_on(journal.close());
    block_on(open_journal(&Settings { retention_size: None, ..settings.clone() }).close());
    let aborted = export_records(&settings, Filter { id: Some(longer.id), ..Filter::default() });
    assert_eq!(aborted.iter().map(|record| record.outcome).collect::<Vec<_>>(), [Outcome::Aborted]);
    assert_intact(&settings);
}

#[test]
fn headers_do_not_repeat_open_uses_and_close_no_segment() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 50_000, ..settings(directory.path()) };
    keep_plain(&settings);
    let journal = open_journal(&settings);
    let open: Vec<_> = block_on(async {
        let mut open = Vec::new();
        for _ in 0..3000 {
            open.push(journal.begin(&Caller::random().opening()).await.unwrap());
        }
        open
    });
    let before = segment_files(&settings).len();
    write_until(&journal, "several segments are written", || segment_files(&settings).len() > before + 10);
    let header_of = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().next().unwrap().len();
    let headers: Vec<usize> = segment_files(&settings).iter().map(header_of).collect();
    let latest: usize = headers[before + 2..].iter().sum();
    assert!(latest < 10_000, "{headers:?}");
    assert!(headers.iter().sum::<usize>() < 3000 * 400, "each open use is listed once: {headers:?}");
    // A killed gateway leaves them open: the next start finds them by the headers.
    std::mem::forget(open);
    block_on(journal.close());
    block_on(open_journal(&settings).close());
    let aborted = Filter { outcome: Some(Outcome::Aborted), ..Filter::default() };
    assert_eq!(export_records(&settings, aborted).len(), 3000);
    assert_intact(&settings);
}

#[test]
fn retention_by_size_pauses_while_open_uses_take_up_the_size() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 20_000, retention_size: Some(100_000), ..settings(directory.path()) };
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    let open: Vec<_> = block_on(async {
        let mut open = Vec::new();
        for _ in 0..2100 {
            open.push(journal.begin(&Caller::random().opening()).await.unwrap());
        }
        open
    });
    eventually("retention pauses", || metrics.retention_paused.get() == 1);
    open.into_iter().for_each(|entry| entry.close(END));
    eventually("retention goes on", || metrics.retention_paused.get() == 0);
    eventually("old segments are removed", || first_segment(&settings).as_str() > "0000000002");
    block_on(journal.close());
    assert_intact(&settings);
}

#[test]
fn backlog_is_empty_after_many_segments() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 10_000, ..settings(directory.path()) };
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    write_until(&journal, "ten segments are closed", || segment_files(&settings).len() > 10);
    block_on(journal.close());
    assert_eq!(metrics.backlog.get(), 0);
}

/// A container gets another name with each start.
#[test]
fn gateway_with_another_name_starts_on_a_full_disk_that_has_open_uses() {
    let test = "journal::segments::gateway_with_another_name_starts_on_a_full_disk_that_has_open_uses";
    let Some(disk) = SmallDisk::mount(test, 40) else { return };
    let first = settings(disk.path());
    let (journal, caller) = (open_journal(&first), Caller::random());
    let left_open: Vec<_> = (0..30).map(|_| block_on(journal.begin(&caller.opening())).unwrap()).collect();
    disk.fill();
    let path = format!("/{}", "x".repeat(1000));
    let opening = || Use { path: &path, ..caller.opening() };
    while let Ok(entry) = block_on(journal.begin(&opening())) {
        entry.close(END);
    }
    // As a kill leaves them.
    left_open.into_iter().for_each(std::mem::forget);
    block_on(journal.close());
    let renamed = Settings { gateway: "gw-2".into(), ..first.clone() };
    for _ in 0..2 {
        // Space that opening and closing free is taken at once.
        disk.fill();
        let journal = open_journal(&renamed);
        assert!(!journal.is_available());
        assert!(block_on(journal.begin(&opening())).is_err());
        block_on(async { journal.begin_change(&change_of(caller.opening()), true).await.unwrap().close(END) });
        block_on(journal.close());
    }
    let journal = open_journal(&renamed);
    disk.make_room();
    eventually("there is room", || journal.is_available());
    block_on(async { journal.begin(&caller.opening()).await.unwrap().close(END) });
    block_on(journal.close());
    let records = all_records(&first);
    let of = |gateway: &str, outcome| {
        records.iter().filter(|record| record.gateway == gateway && record.outcome == outcome).count()
    };
    // Outcomes for which there was no room are lost with the process that had them.
    assert!(of("gw-1", Outcome::Aborted) >= 30);
    assert_eq!(of("gw-2", Outcome::Aborted), 0);
    assert_eq!(of("gw-2", Outcome::Completed), 3);
    assert_intact(&first);
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
