//! Index: the same results with, without and with a damaged index.

use std::fs;

use domain::clock::Micros;
use journal::audit::{Filter, Outcome, Record, Settings};
use proptest::prelude::*;
use tempfile::TempDir;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, damage_index, export_records, index_file, indexed_segments,
    open_index, open_journal, open_reader, remove_index, segment_numbers, settings, wait_until_indexed,
};
use crate::support::eventually;
use crate::support::random::Random;

/// An indexed journal of uses by a few callers at known times, over several segments and many blocks.
struct IndexedJournal {
    directory: TempDir,
    settings: Settings,
    caller: Vec<Caller>,
    records: Vec<Record>,
}

fn write_indexed_journal() -> IndexedJournal {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 300_000, ..settings(directory.path()) };
    let caller: Vec<Caller> = (0..6).map(|_| Caller::random()).collect();
    let journal = open_journal(&settings);
    block_on(async {
        let mut open = Vec::new();
        for n in 0..15_000_u64 {
            // The callers change, so that not every block has every key.
            let caller = caller[(n / 700 + n % 2) as usize % 6];
            let entry = journal.begin(&caller.opening_at(Micros(1_000_000 + n * 1000))).await.unwrap();
            open.push(entry);
            if open.len() > 40 {
                open.swap_remove(n as usize * 7 % 40).close(END);
            }
        }
        drop(open);
        journal.close().await;
    });
    let journal = open_journal(&settings);
    wait_until_indexed(&settings);
    block_on(journal.close());
    let records = all_records(&settings);
    assert_eq!(records.len(), 15_000);
    IndexedJournal { directory, settings, caller, records }
}

impl IndexedJournal {
    fn expected(&self, filter: &Filter) -> Vec<Record> {
        let wanted = |record: &&Record| {
            filter.since.is_none_or(|since| record.time >= since)
                && filter.until.is_none_or(|until| record.time < until)
                && (filter.key.is_none() || filter.key == record.key_id)
                && (filter.user.is_none() || filter.user == record.user_id)
                && (filter.org.is_none() || filter.org == record.org_id)
                && filter.id.is_none_or(|id| id == record.id)
                && filter.outcome.is_none_or(|outcome| outcome == record.outcome)
        };
        self.records.iter().filter(wanted).cloned().collect()
    }
}

#[test]
fn index_does_not_change_results() {
    let indexed = write_indexed_journal();
    assert_eq!(indexed.records.len(), 15_000);
    assert_intact(&indexed.settings);
    let check = |filter: Filter| {
        let expected = indexed.expected(&filter);
        assert_eq!(export_records(&indexed.settings, filter), expected);
        let listed = open_reader(&indexed.settings).list(&filter, 50, None).unwrap().records;
        assert_eq!(listed, expected.into_iter().rev().take(50).collect::<Vec<_>>());
    };
    let filters = || {
        let caller = prop::option::of(0_usize..6);
        (caller.clone(), caller.clone(), caller, prop::option::of(0_u64..7000), prop::option::of(0_u64..7000))
    };
    let check_many = |cases| {
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(cases));
        let checked = runner.run(&filters(), |(key, user, org, since, until)| {
            let time = |n: Option<u64>| n.map(|n| Micros(1_000_000 + n * 1000));
            check(Filter {
                key: key.map(|i| indexed.caller[i].key),
                user: user.map(|i| indexed.caller[i].user),
                org: org.map(|i| indexed.caller[i].org),
                since: time(since),
                until: time(until),
                ..Filter::default()
            });
            Ok(())
        });
        checked.unwrap();
    };
    check(Filter { id: Some(indexed.records[4711].id), ..Filter::default() });
    check(Filter { outcome: Some(Outcome::Aborted), ..Filter::default() });
    assert!(indexed_segments(&indexed.settings).len() > 3);
    check_many(15);
    damage_index(&indexed.settings);
    check_many(5);
    // The next gateway rebuilds the index, and results stay the same.
    let journal = open_journal(&indexed.settings);
    wait_until_indexed(&indexed.settings);
    block_on(journal.close());
    check_many(15);
    remove_index(&indexed.settings);
    check_many(5);
    drop(indexed.directory);
}

/// Changes a bit of the index, of the ids in a segment with `of_ids`; returns what the file was.
fn flip_bit(random: &mut Random, settings: &Settings, of_ids: bool) -> Vec<u8> {
    let whole = fs::read(index_file(settings)).unwrap();
    let mut at = random.index(whole.len());
    if of_ids {
        let numbers = indexed_segments(settings);
        let place = numbers[random.index(numbers.len())] << 32;
        let query = format!("SELECT sets FROM part WHERE place = {place}");
        let ids: Vec<u8> = open_index(settings).unwrap().query_row(&query, [], |row| row.get(0)).unwrap();
        let places: Vec<usize> = (0..whole.len()).filter(|at| whole[*at..].starts_with(&ids)).collect();
        at = places[random.index(places.len())] + random.index(ids.len());
    }
    let mut changed = whole.clone();
    changed[at] ^= 1 << random.below(8);
    fs::write(index_file(settings), changed).unwrap();
    whole
}

#[test]
fn changed_bit_of_an_index_hides_no_record_and_is_reported() {
    let indexed = write_indexed_journal();
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let of_ids = seed % 2 == 0;
        let whole = flip_bit(&mut random, &indexed.settings, of_ids);
        // The time of the change lies within one part, or outside of all.
        let from = 1_000_000 + random.below(16_000_000);
        let of_caller = Filter { key: Some(indexed.caller[random.index(6)].key), ..Filter::default() };
        let of_time = Filter { since: Some(Micros(from)), until: Some(Micros(from + 500_000)), ..Filter::default() };
        for filter in [of_caller, of_time] {
            let expected = indexed.expected(&filter);
            let mut listed = open_reader(&indexed.settings).list(&filter, 100_000, None).unwrap().records;
            listed.reverse();
            assert!(listed == expected && export_records(&indexed.settings, filter) == expected, "seed {seed}");
        }
        if seed % 10 == 0 {
            let problems = open_reader(&indexed.settings).verify().unwrap().problems;
            assert!(problems.len() == 1 && problems[0].what.contains("index of the segment"), "{seed}: {problems:?}");
        }
        fs::write(index_file(&indexed.settings), whole).unwrap();
    }
    assert_intact(&indexed.settings);
}

#[test]
fn changed_bit_of_an_index_is_mended_by_the_next_start() {
    let indexed = write_indexed_journal();
    let numbers = indexed_segments(&indexed.settings);
    for seed in 0..16 {
        flip_bit(&mut Random::new(seed), &indexed.settings, seed % 2 == 0);
        let journal = open_journal(&indexed.settings);
        let problems = || open_reader(&indexed.settings).verify().unwrap().problems;
        let is_whole = || {
            let check = |index: rusqlite::Connection| index.query_row("PRAGMA quick_check", [], |row| row.get(0));
            open_index(&indexed.settings).and_then(check).is_ok_and(|found: String| found == "ok")
        };
        eventually("it is made again", || {
            // In this order: a damaged index has problems, until it is removed and has no segments.
            problems().is_empty() && is_whole() && indexed_segments(&indexed.settings).len() + 1 >= numbers.len()
        });
        block_on(journal.close());
        assert_eq!(indexed_segments(&indexed.settings), segment_numbers(&indexed.settings), "seed {seed}");
        assert_intact(&indexed.settings);
    }
}
