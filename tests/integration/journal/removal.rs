//! Segments that are no longer there: removed by retention, which records it, or by something else.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use journal::audit::{Beginning, Settings, VerifyReport};
use tempfile::TempDir;

use super::support::{
    Caller, END, assert_intact, block_on, keep_numbers_plain, keep_plain, open_journal, open_reader, segment_files,
    segment_number, settings, write_uses,
};
use crate::support::{SetOnDrop, eventually};

/// Small segments that stay uncompressed, so that their sizes are known.
fn small_segments(directory: &Path) -> Settings {
    let settings = Settings { segment_size: 2_000, ..settings(directory) };
    keep_plain(&settings);
    settings
}

fn verify(settings: &Settings) -> VerifyReport {
    open_reader(settings).verify().unwrap()
}

/// Removes segments by retention, all but a few.
fn remove_by_retention(settings: &Settings) -> VerifyReport {
    let journal = open_journal(&Settings { retention_size: Some(8_000), ..settings.clone() });
    eventually("old segments are removed", || segment_files(settings).len() < 8);
    block_on(journal.close());
    assert_intact(settings)
}

#[test]
fn missing_beginning_is_a_problem_and_removal_by_retention_is_none() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path());
    write_uses(&settings, 200);
    assert_eq!(verify(&settings).beginning, Beginning::Complete);
    let report = remove_by_retention(&settings);
    assert_eq!(report.beginning, Beginning::Removed);
    assert!(report.first_segment > 2);

    // The two oldest of those that are left.
    write_uses(&settings, 200);
    assert_intact(&settings);
    for path in &segment_files(&settings)[..2] {
        fs::remove_file(path).unwrap();
    }
    let missing = verify(&settings);
    assert_eq!((missing.beginning, missing.problem_count), (Beginning::Missing, 1), "{:?}", missing.problems);
    let (first, last) = (report.first_segment, report.first_segment + 1);
    assert!(missing.problems[0].what.starts_with(&format!("segments {first} to {last} are missing")), "{missing:?}");
    // A start does not make it right, and neither does later retention.
    write_uses(&settings, 1);
    assert_eq!(verify(&settings).beginning, Beginning::Missing);
    let journal = open_journal(&Settings { retention_size: Some(8_000), ..settings.clone() });
    eventually("old segments are removed", || segment_files(&settings).len() < 8);
    block_on(journal.close());
    let missing = verify(&settings);
    assert!(missing.problems.iter().any(|problem| problem.what.contains("was missing before")), "{missing:?}");
}

#[test]
fn removal_that_was_recorded_is_finished_by_the_next_start() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path());
    write_uses(&settings, 200);
    let copies: Vec<_> = segment_files(&settings).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    let first = remove_by_retention(&settings).first_segment;
    // As a crash leaves it between the record and the removal.
    let (left, path) = &copies[usize::try_from(first).unwrap() - 2];
    fs::write(path, left).unwrap();
    assert_intact(&settings);
    let journal = open_journal(&settings);
    eventually("the segment is removed", || !path.exists());
    block_on(journal.close());
    assert_eq!(assert_intact(&settings).beginning, Beginning::Removed);
}

#[test]
fn removed_line_at_the_beginning_is_a_problem() {
    let directory = TempDir::new().unwrap();
    let settings = small_segments(directory.path());
    write_uses(&settings, 200);
    remove_by_retention(&settings);
    let first = &segment_files(&settings)[0];
    let text = fs::read_to_string(first).unwrap();
    fs::write(first, &text[text.find('\n').unwrap() + 1..]).unwrap();
    let problems = verify(&settings).problems;
    assert!(problems.iter().any(|problem| problem.what.contains("first after removed segments")), "{problems:?}");
}

#[test]
fn removal_during_the_check_is_no_problem() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { retention_size: Some(200_000), ..small_segments(directory.path()) };
    let journal = open_journal(&settings);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&done);
        scope.spawn(|| {
            let caller = Caller::random();
            while !done.load(Ordering::Relaxed) {
                // Some hundred segments are removed in each round of retention.
                if segment_files(&settings).len() > 300 {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                block_on(async {
                    for _ in 0..50 {
                        journal.begin(&caller.opening()).await.unwrap().close(END);
                    }
                });
            }
        });
        let (mut rounds, mut first) = (0, 0);
        // The check is nearly always under way when retention removes segments.
        eventually("retention has removed segments several times", || {
            let report = verify(&settings);
            if report.problem_count > 0 {
                done.store(true, Ordering::Relaxed);
            }
            assert_eq!(report.problems, [], "from segment {} on", report.first_segment);
            rounds += u32::from(report.first_segment > first);
            first = report.first_segment;
            rounds > 4
        });
        done.store(true, Ordering::Relaxed);
    });
    block_on(journal.close());
    assert_intact(&settings);
    // A removal by something else than retention is a problem also while a gateway writes.
    let mut files = segment_files(&settings);
    let recorded = files.pop().unwrap();
    // The files that are removed below keep their names.
    keep_numbers_plain(&settings, segment_number(&files[0])..segment_number(&recorded) + 100);
    let journal = open_journal(&Settings { retention_size: None, ..settings.clone() });
    // All segments but the last may be recorded as removed: the journal may have been closed between the records, of
    // which several hundred fill a segment, and the removals. Those behind them are not.
    let caller = Caller::random();
    block_on(async {
        for _ in 0..50 {
            journal.begin(&caller.opening()).await.unwrap().close(END);
        }
    });
    eventually("there are new segments", || {
        segment_files(&settings).iter().filter(|path| **path > recorded).count() > 3
    });
    let files = segment_files(&settings);
    let (last, older) = files.split_last().unwrap();
    fs::remove_file(&older[older.len() - 2]).unwrap();
    let problems = verify(&settings).problems;
    assert!(problems.iter().any(|problem| problem.what.contains("before this one is missing")), "{problems:?}");
    older.iter().filter(|path| path.exists()).for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(verify(&settings).beginning, Beginning::Missing, "only {} is left", last.display());
    block_on(journal.close());
}
