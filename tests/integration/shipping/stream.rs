//! The stream of records that sinks get: complete from any position, in the order of the journal, across restarts.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::time::Duration;

use domain::clock;
use journal::audit::{AuditEntry, Journal, Outcome, Record, RecordStream, Settings, StreamPosition, Use};
use proptest::prelude::*;
use uuid::Uuid;

use crate::journal::support::{
    Caller, END, all_records, block_on, open_journal, segment_files, segment_number, settings, wait_until_compressed,
    write_uses,
};
use crate::support::eventually;

/// Never `in_progress`.
const NEVER: Option<Duration> = None;

/// Reads all from a position on, a batch of about `limit` records at a time, with a new stream for each.
fn read_on(journal: &Journal, from: &mut StreamPosition, limit: usize, open_after: Option<Duration>) -> Vec<Record> {
    let (tap, mut records) = (journal.tap(), Vec::new());
    loop {
        let mut stream = RecordStream::open(tap.directory(), *from, tap.end(), open_after).unwrap();
        let batch = stream.next_batch(tap.end(), limit, clock::now()).unwrap();
        assert_eq!(batch.skipped_segments, 0);
        records.extend(batch.records);
        *from = batch.position;
        if batch.reached_end {
            return records;
        }
    }
}

fn ids(records: &[Record]) -> Vec<Uuid> {
    records.iter().map(|record| record.id).collect()
}

/// Event of a journal.
#[derive(Clone, Debug)]
enum Step {
    Begin,
    /// Ends an open use.
    End(usize),
    Record,
    /// Reads on from the position that was kept last.
    Read(usize),
    /// Ends the gateway, and starts it again.
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Begin),
        6 => any::<prop::sample::Index>().prop_map(|index| Step::End(index.index(1000))),
        3 => Just(Step::Record),
        2 => (1..40_usize).prop_map(Step::Read),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Every use gives its final record exactly once, however the reading is cut; and before it at
    /// most `in_progress` ones.
    #[test]
    fn every_use_is_delivered_with_its_outcome(steps in prop::collection::vec(any_step(), 1..150)) {
        let dir = tempfile::tempdir().unwrap();
        // A segment for every few uses.
        let settings = Settings { segment_size: 2000, ..settings(dir.path()) };
        let (mut journal, caller) = (open_journal(&settings), Caller::random());
        let (mut open, mut from): (Vec<AuditEntry>, _) = (Vec::new(), StreamPosition::START);
        let mut got = Vec::new();
        for step in steps {
            match step {
                Step::Begin => open.push(block_on(journal.begin(&caller.opening())).unwrap()),
                Step::End(index) if !open.is_empty() => open.swap_remove(index % open.len()).close(END),
                Step::End(_) => {}
                Step::Record => drop(block_on(journal.record(&caller.opening(), END)).unwrap()),
                Step::Read(limit) => got.extend(read_on(&journal, &mut from, limit, Some(Duration::ZERO))),
                Step::Restart => {
                    block_on(journal.close());
                    open.clear();
                    journal = open_journal(&settings);
                }
            }
        }
        block_on(journal.close());
        drop(open);
        // Closes what was open.
        journal = open_journal(&settings);
        block_on(journal.close());
        got.extend(read_on(&journal, &mut from, 7, Some(Duration::ZERO)));
        let mut finals = BTreeMap::new();
        for record in got {
            if record.outcome == Outcome::InProgress {
                prop_assert!(!finals.contains_key(&record.id), "in progress after its outcome");
            } else {
                prop_assert!(finals.insert(record.id, record).is_none(), "delivered twice");
            }
        }
        let expected: BTreeMap<Uuid, Record> =
            all_records(&settings).into_iter().map(|record| (record.id, record)).collect();
        prop_assert_eq!(finals, expected);
    }
}

#[test]
fn compressed_segments_are_read_as_plain_ones_are() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size: 4096, ..settings(dir.path()) };
    let ids_written = write_uses(&settings, 300);
    let journal = open_journal(&settings);
    let mut half = StreamPosition::START;
    let tap = journal.tap();
    let mut stream = RecordStream::open(tap.directory(), half, tap.end(), NEVER).unwrap();
    let mut records = stream.next_batch(tap.end(), 100, clock::now()).unwrap();
    half = records.position;
    wait_until_compressed(&settings);
    records.records.extend(read_on(&journal, &mut half, 50, NEVER));
    assert_eq!(ids(&records.records), ids_written);
    let mut start = StreamPosition::START;
    assert_eq!(ids(&read_on(&journal, &mut start, 1000, NEVER)), ids_written);
    // Seals follow behind the records.
    eventually("both are at the same position", || {
        let further = [&mut start, &mut half].map(|position| read_on(&journal, position, 1000, NEVER).len());
        further == [0, 0] && start == half
    });
}

#[test]
fn journal_that_has_lost_its_end_is_read_again_from_the_segment() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    write_uses(&settings, 10);
    let journal = open_journal(&settings);
    let mut from = StreamPosition::START;
    assert_eq!(read_on(&journal, &mut from, 1000, NEVER).len(), 10);
    block_on(journal.close());
    // The loss of power takes the last lines, and other ones come in their place.
    let file = segment_files(&settings).pop().unwrap();
    let text = fs::read(&file).unwrap();
    let lines: Vec<usize> = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    fs::write(&file, &text[..lines[lines.len() - 5]]).unwrap();
    let new = write_uses(&settings, 30);
    let journal = open_journal(&settings);
    let got: HashSet<Uuid> = ids(&read_on(&journal, &mut from, 1000, NEVER)).into_iter().collect();
    assert!(new.iter().all(|id| got.contains(id)), "no new record is left out");
    // A position in a segment that is no longer there at all.
    let mut beyond = StreamPosition { segment: from.segment + 5, offset: 77, ..from };
    assert_eq!(read_on(&journal, &mut beyond, 1000, NEVER).len(), got.len());
}

#[test]
fn segments_that_are_gone_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size: 2000, ..settings(dir.path()) };
    write_uses(&settings, 100);
    let journal = open_journal(&settings);
    wait_until_compressed(&settings);
    let tap = journal.tap();
    let mut stream = RecordStream::open(tap.directory(), StreamPosition::START, tap.end(), NEVER).unwrap();
    let first = stream.next_batch(tap.end(), 1, clock::now()).unwrap();
    drop(stream);
    let files = segment_files(&settings);
    let number = first.position.segment;
    let at = files.iter().position(|file| segment_number(file) == number).unwrap();
    for file in &files[at..at + 2] {
        fs::remove_file(file).unwrap();
    }
    let mut stream = RecordStream::open(tap.directory(), first.position, tap.end(), NEVER).unwrap();
    let rest = stream.next_batch(tap.end(), 1000, clock::now()).unwrap();
    assert_eq!((rest.skipped_segments, rest.reached_end), (2, true));
    // A damaged one is left out, and what follows is read.
    fs::write(&files[at + 3], "damaged").unwrap();
    let mut stream = RecordStream::open(tap.directory(), first.position, tap.end(), NEVER).unwrap();
    let less = stream.next_batch(tap.end(), 1000, clock::now()).unwrap();
    assert_eq!((less.skipped_segments, less.reached_end), (3, true));
    assert!(less.records.len() < rest.records.len() && !less.records.is_empty());
    // Seals may have been written meanwhile.
    assert!(less.position.line >= rest.position.line, "{:?} {:?}", less.position, rest.position);
}

#[test]
fn use_is_in_progress_once_it_has_been_open_for_long_enough() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let entry = block_on(journal.begin(&caller.opening())).unwrap();
    let (tap, now) = (journal.tap(), clock::now());
    let wait = Duration::from_secs(3600);
    let mut stream = RecordStream::open(tap.directory(), StreamPosition::START, tap.end(), Some(wait)).unwrap();
    let mut outcomes_at = |now| {
        let records = stream.next_batch(tap.end(), 10, now).unwrap().records;
        records.iter().map(|record| record.outcome).collect::<Vec<_>>()
    };
    assert_eq!(outcomes_at(now), []);
    assert_eq!(outcomes_at(now.after(wait)), [Outcome::InProgress]);
    assert_eq!(outcomes_at(now.after(wait * 2)), [], "once");
    entry.close(END);
    block_on(journal.close());
    assert_eq!(outcomes_at(now.after(wait * 2)), [END.outcome]);
}

/// In a catch-up each batch ends in the midst of some uses. A row for each that is changed by the next batch would
/// double the work of a database.
#[test]
fn use_that_ends_behind_a_batch_is_not_in_progress_while_there_is_more_to_read() {
    const ROUNDS: usize = 100;
    const AT_ONCE: usize = 64;
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let tap = journal.tap();
    block_on(async {
        for _ in 0..ROUNDS {
            let openings: Vec<Use<'_>> = (0..AT_ONCE).map(|_| caller.opening()).collect();
            let begun = futures_util::future::join_all(openings.iter().map(|opening| journal.begin(opening))).await;
            begun.into_iter().for_each(|entry| entry.unwrap().close(END));
        }
        journal.close().await;
    });
    let (open_after, later) = (Duration::from_secs(1800), clock::now().after(Duration::from_secs(3600)));
    let mut stream = RecordStream::open(tap.directory(), StreamPosition::START, tap.end(), Some(open_after)).unwrap();
    let (mut batches, mut outcomes, mut reached_end) = (0, Vec::new(), false);
    while !reached_end {
        let batch = stream.next_batch(tap.end(), 1, later).unwrap();
        (batches, reached_end) = (batches + 1, batch.reached_end);
        outcomes.extend(batch.records.iter().map(|record| record.outcome));
    }
    assert!(batches > 3, "{batches}");
    let open = outcomes.iter().filter(|outcome| **outcome != END.outcome).count();
    assert_eq!((outcomes.len(), open), (ROUNDS * AT_ONCE, 0));
}

#[test]
fn records_have_the_gateway_that_wrote_their_segment() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(dir.path());
    for gateway in ["gw-1", "gw-2"] {
        write_uses(&Settings { gateway: gateway.into(), ..settings.clone() }, 3);
    }
    let journal = open_journal(&settings);
    let mut start = StreamPosition::START;
    let records = read_on(&journal, &mut start, 1000, NEVER);
    let gateways: Vec<&str> = records.iter().map(|record| &*record.gateway).collect();
    assert_eq!(gateways, ["gw-1", "gw-1", "gw-1", "gw-2", "gw-2", "gw-2"]);
}

#[test]
fn segments_that_go_in_the_midst_of_reading_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size: 2000, ..settings(dir.path()) };
    write_uses(&settings, 100);
    let journal = open_journal(&settings);
    wait_until_compressed(&settings);
    let tap = journal.tap();
    let mut stream = RecordStream::open(tap.directory(), StreamPosition::START, tap.end(), NEVER).unwrap();
    let number = stream.next_batch(tap.end(), 1, clock::now()).unwrap().position.segment;
    let files = segment_files(&settings);
    let at = files.iter().position(|file| segment_number(file) == number).unwrap();
    files[at + 1..at + 4].iter().for_each(|file| fs::remove_file(file).unwrap());
    let rest = stream.next_batch(tap.end(), 1000, clock::now()).unwrap();
    assert_eq!((rest.skipped_segments, rest.reached_end), (3, true));
}
