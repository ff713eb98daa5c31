//! Recovery: the next start finds the end of a journal and the uses that are open, however the last gateway ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keygate::audit::{Filter, Journal, Outcome, Settings};
use tempfile::TempDir;

use super::support::{
    Caller, END, assert_intact, block_on, export_records, keep_plain, open_journal, open_reader, segment_files,
    segment_number, settings, write_uses,
};
use crate::support::eventually;

/// Small segments that stay uncompressed.
fn small_segments(directory: &Path, size: u64) -> Settings {
    let settings = Settings { segment_size: size, ..settings(directory) };
    keep_plain(&settings);
    settings
}

fn read_last(settings: &Settings) -> String {
    fs::read_to_string(segment_files(settings).pop().unwrap()).unwrap()
}

#[test]
fn damage_in_the_last_segment_stays_and_the_journal_goes_on_behind_it() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write_uses(&settings, 5);
    let path = &segment_files(&settings)[0];
    let mut damaged = fs::read(path).unwrap();
    let ends: Vec<usize> = (0..damaged.len()).filter(|at| damaged[*at] == b'\n').collect();
    // In the outcome of the second use: behind it are good lines.
    damaged[ends[4] - 20] ^= 1;
    fs::write(path, &damaged).unwrap();
    write_uses(&settings, 1);
    assert!(fs::read(path).unwrap().starts_with(&damaged), "nothing of it is cut off or mended");
    let report = open_reader(&settings).verify().unwrap();
    assert_eq!((report.records, report.problem_count), (6, 1), "{:?}", report.problems);
    assert_eq!(
        (report.problems[0].line, report.open),
        (5, 0),
        "the use whose outcome is damaged was closed by the start"
    );
}

#[test]
fn segment_of_nothing_but_damaged_lines_is_kept_under_another_name() {
    let directory = TempDir::new().unwrap();
    let settings = settings(directory.path());
    write_uses(&settings, 2);
    let aside = settings.path.join("0000000002.jsonl.damaged");
    for (torn, is_kept) in [("", false), ("{\"e\":\"head", false), ("{\"e\":\"header\",\"segment\":2}\n", true)] {
        fs::write(settings.path.join("0000000002.jsonl"), torn).unwrap();
        write_uses(&settings, 1);
        assert_eq!(aside.exists(), is_kept, "{torn:?}");
    }
    assert_eq!(fs::read_to_string(aside).unwrap(), "{\"e\":\"header\",\"segment\":2}\n");
    assert_eq!(assert_intact(&settings).records, 5);
    assert_eq!(segment_files(&settings).len(), 1);
}

#[test]
fn removal_in_the_last_segment_is_known_to_the_next_start() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path(), 2_000);
    write_uses(&settings, 200);
    // The segment with the records stays the last one.
    let large = Settings { segment_size: 1 << 20, ..settings.clone() };
    for size in [20_000, 10_000] {
        let journal = open_journal(&Settings { retention_size: Some(size), ..large.clone() });
        let bytes =
            || segment_files(&settings).iter().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum::<u64>();
        eventually("old segments are removed", || bytes() < size + 5_000);
        block_on(journal.close());
        // A second removal must not take what the first has removed for missing.
        assert_intact(&settings);
    }
}

#[test]
fn header_does_not_count_towards_the_size_after_a_start() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path(), 20_000);
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let mut open = Vec::new();
    while segment_files(&settings).len() < 2 {
        open.push(block_on(journal.begin(&caller.opening())).unwrap());
    }
    open.into_iter().for_each(std::mem::forget);
    block_on(journal.close());
    let header = read_last(&settings).lines().next().unwrap().len();
    assert!(header > 15_000, "{header}");
    // Their outcomes are written; header and outcomes together are larger than a segment.
    block_on(open_journal(&settings).close());
    assert!(read_last(&settings).len() > 20_000);
    assert_eq!(segment_files(&settings).len(), 2);
    write_uses(&settings, 1);
    assert_eq!(segment_files(&settings).len(), 2);
    assert_intact(&settings);
}

#[test]
fn segment_of_an_earlier_start_is_closed_by_its_age() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path(), 1 << 20);
    write_uses(&settings, 1);
    let journal = open_journal(&Settings { segment_age: Duration::from_millis(10), ..settings.clone() });
    eventually("it is closed without another use", || segment_files(&settings).len() > 1);
    block_on(journal.close());
    assert_intact(&settings);
}

#[test]
fn use_that_an_early_header_lists_is_closed_by_one_start_alone() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path(), 4_000);
    let (journal, caller) = (open_journal(&settings), Caller::random());
    std::mem::forget(block_on(journal.begin(&caller.opening())).unwrap());
    write_until_segment(&journal, &settings, 5);
    block_on(journal.close());
    assert_closed_by_the_next_start(&settings, caller);
}

#[test]
fn carried_use_is_closed_by_one_start_alone() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path(), 4_000);
    let journal = open_journal(&Settings { retention_size: Some(12_000), ..settings.clone() });
    let caller = Caller::random();
    std::mem::forget(block_on(journal.begin(&caller.opening())).unwrap());
    // Retention removes the segment with its beginning, and later the one to which it was carried.
    let mut beginning = 1;
    for _ in 0..3 {
        write_until_segment(&journal, &settings, beginning + 8);
        eventually("its segment is removed", || segment_number(&segment_files(&settings)[0]) > beginning);
        let is_carried = |path: &&PathBuf| fs::read_to_string(path).unwrap().contains("\"e\":\"carried\"");
        beginning = segment_number(segment_files(&settings).iter().rfind(is_carried).expect("it is carried"));
    }
    block_on(journal.close());
    assert_closed_by_the_next_start(&settings, caller);
}

/// Asserts that the next start closes the one use of a caller, and that no later one closes it again.
fn assert_closed_by_the_next_start(settings: &Settings, caller: Caller) {
    let outcomes = || {
        let of_caller = Filter { key: Some(caller.key), ..Filter::default() };
        export_records(settings, of_caller).iter().map(|record| record.outcome).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(), [Outcome::InProgress]);
    let aborted = || {
        let text = segment_files(settings).iter().map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
        text.matches("\taborted").count()
    };
    // Headers of later segments say that it has ended.
    for start in 0..3 {
        let journal = open_journal(settings);
        write_until_segment(&journal, settings, segment_number(&segment_files(settings).pop().unwrap()) + 1);
        block_on(journal.close());
        assert_eq!(aborted(), 1, "after start {start}");
        assert_eq!(outcomes(), [Outcome::Aborted]);
        assert_eq!(assert_intact(settings).open, 0);
    }
}

#[test]
fn removal_that_was_recorded_is_not_recorded_again() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path(), 2_000);
    write_uses(&settings, 200);
    let first = segment_files(&settings)[0].clone();
    let content = fs::read(&first).unwrap();
    let removing = Settings { retention_size: Some(8_000), ..settings.clone() };
    for _ in 0..2 {
        // As a crash leaves it between the record and the removal.
        fs::write(&first, &content).unwrap();
        let journal = open_journal(&removing);
        eventually("it is removed", || !first.exists());
        block_on(journal.close());
        assert_intact(&settings);
    }
    let text = segment_files(&settings).iter().map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
    let removals: Vec<&str> = text.lines().filter(|line| line.contains("\"e\":\"expired\"")).collect();
    let of_first = removals.iter().filter(|line| line.contains("\"segment\":1,"));
    assert!(of_first.count() <= 1, "one, unless retention has removed its segment as well");
    assert!(!removals.is_empty());
    for field in ["\"reason\":\"size\"", "\"lines\":", "\"sha256\":", "\"next\":"] {
        assert!(removals.iter().all(|line| line.contains(field)), "{field}: {removals:?}");
    }
}

/// Writes ended uses until this segment has begun.
fn write_until_segment(journal: &Journal, settings: &Settings, number: u64) {
    let other = Caller::random();
    while segment_number(&segment_files(settings).pop().unwrap()) < number {
        block_on(async { journal.begin(&other.opening()).await.unwrap().close(END) });
    }
}
