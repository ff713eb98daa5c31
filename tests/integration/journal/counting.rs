//! The number of records in a directory: `verify` and an export tell the same, whatever kinds of lines there are.

use std::fs;

use domain::refusal::Refusal;
use journal::audit::{Outcome, Record, Settings, UseEnd, VerifyReport};
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, change_of, keep_plain, open_journal, open_reader, remove_index,
    segment_files, segment_number, settings,
};
use super::tree;
use crate::support::{eventually, until};

const LIMITED: UseEnd = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), status: Some(429), ..END };
/// The beginning of each kind of line that a journal without a signing key and without damage has.
const KINDS: [&str; 9] = [
    "u\t",
    "o\t",
    "r\t",
    "c\t",
    "{\"e\":\"record\"",
    "{\"e\":\"carried\"",
    "{\"e\":\"header\"",
    "{\"e\":\"seal\"",
    "{\"e\":\"expired\"",
];

fn text(settings: &Settings) -> String {
    // Retention may remove one between the listing and the reading.
    segment_files(settings).iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
}

/// Checks that both tell the same numbers, and returns those of records, uses and open ones.
fn counted(settings: &Settings) -> (u64, u64, u64) {
    until("retention removes nothing meanwhile", || {
        let before = segment_files(settings);
        let read = (all_records(settings), open_reader(settings).verify().unwrap());
        (segment_files(settings) == before).then(|| compare(settings, &read.0, &read.1))
    })
}

fn compare(settings: &Settings, records: &[Record], report: &VerifyReport) -> (u64, u64, u64) {
    let open = records.iter().filter(|record| record.outcome == Outcome::InProgress).count() as u64;
    let exported = (records.len() as u64, records.iter().map(Record::uses).sum(), open);
    assert_eq!((report.records, report.uses, report.open), exported, "{report:?}");
    let listed = open_reader(settings).list(&Default::default(), usize::MAX, None).unwrap().records;
    assert_eq!(listed.len(), records.len());
    exported
}

#[test]
fn verify_and_export_count_the_same_records_of_all_kinds() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 2_000, retention_size: Some(20_000), ..settings(directory.path()) };
    keep_plain(&settings);
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let begin = || block_on(journal.begin(&caller.opening())).unwrap();
    let begin_change = || block_on(journal.begin_change(&change_of(caller.opening()), false)).unwrap();
    let (held, change) = (begin(), begin_change());
    // Both are carried on more than once, while uses end behind the removed segments.
    eventually("segments are removed several times", || {
        (0..20).for_each(|_| begin().close(END));
        segment_number(&segment_files(&settings)[0]) > 30
    });
    begin_change().close(END);
    drop(begin());
    assert!(journal.record_unknown_key(&caller.opening(), LIMITED));
    (0..30).for_each(|_| assert!(block_on(journal.record_refusal(&caller.opening(), LIMITED)).unwrap()));
    eventually("all kinds of lines are written", || {
        let lines = text(&settings);
        KINDS.iter().all(|kind| lines.lines().any(|line| line.starts_with(kind)))
    });
    let (records, uses, open) = counted(&settings);
    assert!(uses > records && open == 2, "{uses} uses in {records} records, of which {open} are open");

    let killed = Settings { path: directory.path().join("killed"), ..settings.clone() };
    tree::copy(&settings.path, &killed.path);
    assert_eq!(counted(&killed).2, 2, "no gateway writes it");
    held.close(END);
    change.close(END);
    block_on(journal.close());
    assert_eq!(counted(&settings).2, 0);
    block_on(open_journal(&settings).close());
    counted(&settings);
    assert_intact(&settings);
    remove_index(&settings);
    counted(&settings);
}
