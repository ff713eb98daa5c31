//! Recovery: the next start finds the end of a journal and the uses that are open, however the last gateway ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use journal::audit::{Filter, Journal, Outcome, Settings};
use platform::metrics::Metrics;
use tempfile::TempDir;

use super::support::{
    Caller, END, assert_intact, block_on, export_records, keep_plain, new_directory, open_journal, open_reader,
    remove_index, segment_files, segment_number, settings, write_uses,
};
use super::tree;
use crate::support::eventually;
use crate::support::random::Random;

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
    let (_directory, settings) = new_directory();
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

/// A journal of 200 uses in one segment: its text, and where the last 150 begin.
fn written_journal(settings: &Settings) -> (Vec<u8>, usize) {
    write_uses(settings, 200);
    let text = fs::read(&segment_files(settings)[0]).unwrap();
    let begins = |at: &usize| text[*at..].starts_with(b"\nu\t");
    let at = (0..text.len()).filter(begins).nth(50).unwrap() + 1;
    (text, at)
}

#[test]
fn damaged_end_is_set_aside_and_reported() {
    let (directory, settings) = new_directory();
    let (mut text, from) = written_journal(&settings);
    let path = &segment_files(&settings)[0];
    // A bit of each line of the last 150 uses, as a crash leaves none.
    let ends: Vec<usize> = (from..text.len()).filter(|at| text[*at] == b'\n').collect();
    ends.iter().for_each(|end| text[*end - 20] ^= 1);
    fs::write(path, &text).unwrap();
    // A killed gateway leaves no index.
    remove_index(&settings);
    let aside = settings.path.join("0000000001.jsonl.damaged");
    let metrics = Metrics::new();
    let journal = Journal::open(settings.clone(), metrics.audit.clone()).unwrap();
    assert_eq!(metrics.audit.damaged_files.get(), 1);
    assert!(fs::read(&aside).unwrap() == text[from..], "what was cut off is kept as it was");
    let report = open_reader(&settings).verify().unwrap();
    assert_eq!((report.records, report.problem_count), (50, 1), "{:?}", report.problems);
    assert!(report.problems[0].what.ends_with("300 lines set aside in 0000000001.jsonl.damaged"), "{report:?}");
    fs::rename(&aside, directory.path().join("for-later")).unwrap();
    eventually("the file was moved away", || metrics.audit.damaged_files.get() == 0);
    block_on(journal.close());
    // The journal still says so, whatever became of the file, and later starts add nothing.
    write_uses(&settings, 1);
    assert_eq!(open_reader(&settings).verify().unwrap().problem_count, 1);
    assert!(!aside.exists());
}

/// Damage that leaves the next start nothing but the lines before it.
#[test]
fn damage_of_the_end_is_never_lost_silently() {
    let directory = TempDir::new().unwrap();
    let original = settings(directory.path());
    let (text, from) = written_journal(&original);
    let last = text[..text.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let copy = TempDir::new().unwrap();
        let settings = settings(copy.path());
        tree::copy(&original.path, &settings.path);
        let path = segment_files(&settings)[0].clone();
        // Of the last line in a third of the cases; and after a kill in the half of them, which leaves no index.
        let from = if seed % 3 == 0 { last } else { from };
        let at = from + random.index(text.len() - from);
        let mut damaged = text.clone();
        damaged[at] ^= 1 << random.below(8);
        fs::write(&path, &damaged).unwrap();
        if seed % 2 == 0 {
            remove_index(&settings);
        }
        block_on(open_journal(&settings).close());
        let aside = fs::read(settings.path.join("0000000001.jsonl.damaged")).unwrap_or_default();
        let kept = fs::read(&path).unwrap();
        assert!(
            kept.starts_with(&damaged)
                || kept.starts_with(&damaged[..damaged.len() - aside.len()]) && damaged.ends_with(&aside),
            "every byte is somewhere: seed {seed}"
        );
        let found = open_reader(&settings).verify().unwrap().problem_count;
        assert_ne!(found, 0, "seed {seed}");
        block_on(open_journal(&settings).close());
        assert_eq!(
            open_reader(&settings).verify().unwrap().problem_count,
            found,
            "seed {seed}: the next start adds none"
        );
    }
}

/// The lines of a process that handed the journal over, and ended.
#[test]
fn damaged_line_of_a_predecessor_is_kept_and_reported() {
    for (last, is_damaged) in [("o\tAAAAAAAAAAAAAAAAAAAAAA\taborted\t9\t00000000\n", true), ("o\tAAAA", false)] {
        let (_directory, settings) = new_directory();
        write_uses(&settings, 2);
        let text = format!("{{\"version\":2,\"open\":[]}}\n{last}");
        fs::write(settings.path.join("predecessor-0000000001-a"), &text).unwrap();
        let metrics = Metrics::new();
        block_on(Journal::open(settings.clone(), metrics.audit.clone()).unwrap().close());
        let kept = fs::read_to_string(settings.path.join("0000000001.jsonl.damaged")).ok();
        assert_eq!(kept, is_damaged.then_some(text));
        assert_eq!(metrics.audit.damaged_files.get(), i64::from(is_damaged));
        let problems = open_reader(&settings).verify().unwrap().problems;
        assert_eq!(problems.len(), usize::from(is_damaged), "{problems:?}");
        assert!(!settings.path.join("predecessor-0000000001-a").exists());
    }
}

#[test]
fn lines_that_a_closed_journal_had_are_missed() {
    let (_directory, settings) = new_directory();
    let (text, from) = written_journal(&settings);
    fs::write(&segment_files(&settings)[0], &text[..from]).unwrap();
    for _ in 0..2 {
        write_uses(&settings, 1);
        let problems = open_reader(&settings).verify().unwrap().problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        let before = format!("it had {} bytes there before", text.len() - from);
        assert!(problems[0].what.ends_with(&before), "{problems:?}");
    }
}

#[test]
fn segment_of_nothing_but_damaged_lines_is_kept_under_another_name() {
    let (_directory, settings) = new_directory();
    write_uses(&settings, 2);
    let aside = settings.path.join("0000000002.jsonl.damaged");
    for (torn, is_kept) in [("", false), ("{\"e\":\"head", false), ("{\"e\":\"header\",\"segment\":2}\n", true)] {
        fs::write(settings.path.join("0000000002.jsonl"), torn).unwrap();
        write_uses(&settings, 1);
        assert_eq!(aside.exists(), is_kept, "{torn:?}");
    }
    assert_eq!(fs::read_to_string(aside).unwrap(), "{\"e\":\"header\",\"segment\":2}\n");
    let report = open_reader(&settings).verify().unwrap();
    assert_eq!((report.records, report.problem_count), (5, 1), "{:?}", report.problems);
    assert!(report.problems[0].what.contains("the end of segment 2 was damaged from byte 0 on"), "{report:?}");
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
