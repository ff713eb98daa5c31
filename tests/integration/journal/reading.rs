//! Reading: replay, pages, and following.

use std::cmp::Reverse;
use std::fs;

use domain::clock::Micros;
use domain::identity::AuthMethod;
use domain::refusal::Refusal;
use journal::audit::{AuditView, Filter, Outcome, Record, Settings, Use, UseEnd, UsedBy};
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, block_on, export_records, new_directory, open_journal, open_reader, segment_files,
    settings, write_uses,
};
use crate::support::eventually;

#[test]
fn numbered_uses_are_replayed_from_a_time_on() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 3_000, ..settings(directory.path()) };
    let journal = open_journal(&settings);
    let caller = Caller::random();
    let times: Vec<Micros> = block_on(async {
        let mut times = Vec::new();
        for number in 0..100 {
            let opening = Use { number: (number % 2 == 0).then_some(number), ..caller.opening() };
            let opening = match number % 4 {
                0 | 1 => opening,
                _ => Use { key_id: None, auth_method: AuthMethod::Session, ..opening },
            };
            journal.begin(&opening).await.unwrap().close(END);
            times.push(opening.time);
        }
        times
    });
    for from in [0, 1, 50, 99] {
        let seen = journal.uses_since(times[from]).unwrap().uses;
        for (by, rest) in [(UsedBy::Key(caller.key), 0), (UsedBy::Session(caller.user), 2)] {
            let numbers: Vec<u64> = seen.iter().filter(|seen| seen.by == by).map(|seen| seen.number).collect();
            let expected: Vec<u64> = (0..100).filter(|n| n % 4 == rest && times[*n as usize] >= times[from]).collect();
            assert_eq!(numbers, expected);
        }
    }
}

#[test]
fn pages_reach_back_to_the_oldest_record() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 7_000, ..settings(directory.path()) };
    let mut ids = write_uses(&settings, 95);
    ids.reverse();
    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let page = open_reader(&settings).list(&Filter::default(), 10, before).unwrap();
        assert!(page.records.len() <= 10);
        listed.extend(page.records.into_iter().map(|record| (record.id, record.outcome)));
        let Some(next) = page.next else { break };
        before = Some(next.to_string().parse().unwrap());
    }
    assert_eq!(listed, ids.into_iter().map(|id| (id, Outcome::Completed)).collect::<Vec<_>>());
}

#[test]
fn record_is_found_by_the_time_in_its_id() {
    /// Bytes that may be read for one id.
    const FEW: u64 = 256 << 10;
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 4 << 20, ..settings(directory.path()) };
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let begin = Micros(1_795_279_543_000_000);
    let id_at = |millis: u64| uuid::Builder::from_unix_timestamp_millis(millis, &[7; 10]).into_uuid();
    // 40,000 uses in 4,000 seconds; the clock of the ids is a day behind that of the records in a part of them.
    let time = |n: u64| Micros(begin.0 + n * 100_000);
    let is_behind = |n: u64| (30_000..30_100).contains(&n);
    let id = |n: u64| id_at(time(n).0 / 1000 - if is_behind(n) { 86_400_000 } else { 0 });
    block_on(async {
        for n in 0..40_000 {
            let opening = Use { id: id(n), ..caller.opening_at(time(n)) };
            journal.begin(&opening).await.unwrap().close(END);
        }
    });
    let reader = journal.reader().unwrap();
    for n in [0, 1, 777, 9_999, 20_000, 30_050, 39_998, 39_999] {
        let filter = Filter { id: Some(id(n)), ..Filter::default() };
        let found = reader.list(&filter, 10, None).unwrap();
        assert!(found.records.len() == 1 && found.records[0].outcome == Outcome::Completed, "{n}: {found:?}");
        assert_eq!(found.next, None);
        let exported = export_records(&settings, filter);
        assert!(exported.len() == 1 && Some(exported[0].id) == filter.id, "{n}: {exported:?}");
        // The index tells the parts whose ids have that time.
        let within = reader.list_within(&filter, 10, None, FEW).unwrap();
        assert_eq!((within.records.len(), within.next), (1, None), "{n}");
    }
    for id in [id_at(time(500).0 / 1000 + 1), uuid::Uuid::new_v4(), uuid::Uuid::nil()] {
        let filter = Filter { id: Some(id), ..Filter::default() };
        assert!(reader.list(&filter, 10, None).unwrap().records.is_empty());
        // That there is no such record is known as soon, and without a time in the id only after all was read.
        let within = reader.list_within(&filter, 10, None, FEW).unwrap();
        assert_eq!(within.next.is_some(), id.get_version_num() != 7, "{id}");
    }
    block_on(journal.close());
}

#[test]
fn follower_returns_each_record_once_when_it_completes() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 5_000, ..settings(directory.path()) };
    let before = write_uses(&settings, 5);
    let journal = open_journal(&settings);
    block_on(async {
        let long = Caller::random().opening();
        let entry = journal.begin(&long).await.unwrap();
        let mut follow = open_reader(&settings).follow(Filter::default(), 3).unwrap();
        let ids = |records: Vec<Record>| records.iter().map(|record| record.id).collect::<Vec<_>>();
        assert_eq!(ids(follow.poll().unwrap()), before[3..], "one of the last three is not complete");
        let mut expected = Vec::new();
        for _ in 0..50 {
            let opening = Caller::random().opening();
            journal.begin(&opening).await.unwrap().close(END);
            expected.push(opening.id);
        }
        entry.close(END);
        expected.push(long.id);
        let mut seen = Vec::new();
        eventually("all records are returned", || {
            seen.extend(ids(follow.poll().unwrap()));
            seen.len() >= expected.len()
        });
        assert_eq!(seen, expected);
        assert_eq!(follow.poll().unwrap(), []);
    });
}

/// Outcomes are written with others, some milliseconds later.
#[test]
fn use_that_has_ended_is_not_listed_as_in_progress() {
    let (_directory, settings) = new_directory();
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let use_ended = || block_on(journal.begin(&caller.opening())).unwrap().close(END);
    let filter = Filter::default();
    let mut ended = 0;
    for _ in 0..5 {
        use_ended();
        let own = AuditView::of_journal(journal.clone()).list(&filter, 1, None, u64::MAX).unwrap();
        assert_eq!(own.records[0].outcome, Outcome::Completed, "read by the gateway");
        use_ended();
        let view = AuditView::of_directory(&settings.path).unwrap();
        let others = view.list(&filter, 1, None, u64::MAX).unwrap();
        ended += u32::from(others.records[0].outcome == Outcome::Completed);
    }
    // It waits five times as long as the writer should take, which a busy machine may suspend for longer.
    assert!(ended >= 4, "read by another process: {ended} of 5 have ended");
    block_on(journal.close());
}

#[test]
fn record_of_several_refusals_is_listed_and_exported_in_the_order_of_time() {
    let (_directory, settings) = new_directory();
    let (journal, caller) = (open_journal(&settings), Caller::random());
    let limited = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), status: Some(429), ..END };
    for _ in 0..30 {
        block_on(journal.record_refusal(&caller.opening(), limited)).unwrap();
    }
    // Later requests, whose lines come before that of the refusals.
    let others = Caller::random();
    let text = || fs::read_to_string(segment_files(&settings).pop().unwrap()).unwrap();
    eventually("the refusals are a record", || {
        block_on(journal.begin(&others.opening())).unwrap().close(END);
        text().contains("\"count\":")
    });
    block_on(journal.close());
    let exported = all_records(&settings);
    let place = exported.iter().position(|record| record.count.is_some()).unwrap();
    assert!(place + 2 < exported.len(), "its line is behind later ones: {place} of {}", exported.len());
    assert!(exported.is_sorted_by_key(|record| record.time));
    let mut listed = open_reader(&settings).list(&Filter::default(), usize::MAX, None).unwrap().records;
    assert!(listed.is_sorted_by_key(|record| Reverse(record.time)));
    listed.reverse();
    assert_eq!(listed.len(), exported.len());
    assert_eq!(listed[place], exported[place]);
}
