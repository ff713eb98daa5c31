//! Activity of keys by the hour and their last uses: the same as a naive count over all records,
//! whatever the index covers.

use std::collections::HashMap;
use std::fs;

use domain::clock;
use domain::key::KeyId;
use domain::refusal::Refusal;
use journal::audit::{Filter, Outcome, Record, RecordKind, Settings};

use super::mixed_journal::{MixedJournal, REFUSALS, count_naively, no_activity};
use super::support::{
    Caller, END, all_records, block_on, damage_index, export_records, index_file, indexed_segments, open_index,
    open_journal, open_reader, remove_index, segment_files, wait_until_indexed,
};
use crate::support::eventually;

#[test]
fn activity_equals_a_count_over_all_records_with_any_index() {
    let mixed = MixedJournal::complete();
    assert!(segment_files(&mixed.settings).len() > 3);
    mixed.index();
    mixed.check();
    damage_index(&mixed.settings);
    mixed.check();
    mixed.index();
    mixed.check();
    remove_index(&mixed.settings);
    mixed.check();
    mixed.index();
    mixed.check();
}

#[test]
fn activity_is_current_however_late_the_index_is() {
    let mut mixed = MixedJournal::new();
    let journal = open_journal(&mixed.settings);
    block_on(async {
        let mut open = Vec::new();
        for _ in 0..6 {
            open.extend(mixed.write(&journal, 1000).await);
            // The process that writes the journal has the index of the open segment; others read that segment.
            let readers = [journal.reader().unwrap(), open_reader(&mixed.settings)];
            let check = || readers.iter().for_each(|reader| mixed.check_by(reader));
            check();
            wait_until_indexed(&mixed.settings);
            check();
            // Uses that began before the end of the index end after it.
            open.drain(..open.len() / 2).for_each(|entry| entry.close(END));
            check();
        }
        std::mem::forget(open);
        journal.close().await;
    });
    mixed.check();
    mixed.index();
    mixed.check();
}

/// Uses of other keys are not counted, neither from the index nor from the rest of the journal.
#[test]
fn activity_is_limited_to_the_requested_keys() {
    let mixed = MixedJournal::complete();
    let now = clock::now();
    let (mine, stranger) = (mixed.caller[3], Caller::random());
    let check = || {
        let all = count_naively(&mixed.settings, mine.org, now);
        let of = |keys: &[KeyId]| open_reader(&mixed.settings).activity(mine.org, keys, now).unwrap();
        assert!(all[&mine.key].last.is_some() && all.len() >= 3);
        assert_eq!(of(&[mine.key]), HashMap::from([(mine.key, all[&mine.key].clone())]));
        assert_eq!(of(&[mine.key, mine.key]).len(), 1, "a key requested twice");
        assert_eq!(of(&[]), HashMap::new());
        let elsewhere = mixed.caller.iter().find(|caller| caller.org != mine.org).unwrap();
        let none = HashMap::from([(stranger.key, no_activity(now)), (elsewhere.key, no_activity(now))]);
        assert_eq!(of(&[stranger.key, elsewhere.key]), none, "unknown keys, and those of another organization");
    };
    check();
    mixed.index();
    check();
}

/// While an index is being built, activity fails with that reason instead of reading the whole journal.
#[test]
fn activity_is_refused_while_a_long_journal_is_not_indexed() {
    let mixed = MixedJournal::complete();
    mixed.index();
    let caller = mixed.caller[3];
    let activity = || open_reader(&mixed.settings).activity(caller.org, &[caller.key], clock::now());
    assert!(activity().is_ok());
    let large = fs::File::create(mixed.settings.path.join("0000000999.jsonl")).unwrap();
    large.set_len((256 << 20) + 1).unwrap();
    let refused = activity().unwrap_err().to_string();
    assert!(refused.contains("index is being built") && refused.contains("256 MiB"), "{refused}");
    large.set_len(0).unwrap();
    assert!(activity().is_ok());
}

/// Rare records of a long journal are found in several calls, each of which reads a little.
#[test]
fn budget_ends_a_listing_that_continues_at_its_cursor() {
    let mixed = MixedJournal::complete();
    let key = Some(mixed.caller[1].key);
    let rare = Filter { key, outcome: Some(Outcome::Refused(Refusal::OrgSuspended)), ..Filter::default() };
    let (none, all) = (Filter { outcome: Some(Outcome::Aborted), ..rare }, Filter { key, ..Filter::default() });
    let check = || {
        for (filter, limit, budget) in [(rare, 7, 1), (none, 7, 1), (all, 7, 1), (all, 5000, 600_000), (rare, 3, 0)] {
            let whole = open_reader(&mixed.settings).list(&filter, usize::MAX, None).unwrap();
            assert_eq!(whole.next, None, "without a budget, the page has all records");
            let (mut found, mut before, mut short) = (Vec::new(), None, 0);
            loop {
                let page = open_reader(&mixed.settings).list_within(&filter, limit, before, budget).unwrap();
                assert!(page.records.len() <= limit);
                short += usize::from(page.records.len() < limit && page.next.is_some());
                found.extend(page.records);
                let Some(next) = page.next else { break };
                assert!(before.is_none_or(|before| next < before), "the cursor advances");
                before = Some(next);
            }
            assert!(short > 0, "no page was short: the budget of {budget} ended nothing");
            assert_eq!(found, whole.records, "{filter:?}");
        }
    };
    check();
    mixed.index();
    check();
}

#[test]
fn activity_outlives_the_segments_it_was_counted_from() {
    let mixed = MixedJournal::complete();
    mixed.index();
    let now = clock::now();
    let activity =
        || [0, 1].map(|i| open_reader(&mixed.settings).activity(mixed.caller[i].org, &mixed.keys(), now).unwrap());
    let before = activity();
    assert!(before[0][&mixed.caller[0].key].last.is_some());
    // A gateway with little retention removes segments and their blocks.
    let journal = open_journal(&Settings { retention_size: Some(1), ..mixed.settings.clone() });
    eventually("old segments are removed", || segment_files(&mixed.settings).len() <= 1);
    block_on(journal.close());
    assert!(activity() == before, "counts of removed segments stay");
    assert_ne!(count_naively(&mixed.settings, mixed.caller[0].org, now), before[0]);
}

#[test]
fn index_of_another_version_is_rebuilt() {
    let mixed = MixedJournal::complete();
    let index = index_file(&mixed.settings);
    fs::remove_file(&index).unwrap();
    let last = segment_files(&mixed.settings).len() as i64;
    let other = rusqlite::Connection::open(&index).unwrap();
    other.execute_batch("CREATE TABLE covered (segment INTEGER, end INTEGER); PRAGMA user_version = 2;").unwrap();
    // It claims to cover all but the last byte of the journal.
    let length = fs::metadata(segment_files(&mixed.settings).last().unwrap()).unwrap().len() as i64 - 1;
    other.execute("INSERT INTO covered (segment, end) VALUES (?1, ?2)", [last, length]).unwrap();
    drop(other);
    mixed.check();
    mixed.index();
    mixed.check();
    let version: i64 =
        open_index(&mixed.settings).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 7);
}

/// After a crash of the machine, the index may cover lines that the journal has lost.
#[test]
fn index_that_covers_more_than_the_journal_is_rebuilt() {
    let mut mixed = MixedJournal::new();
    mixed.settings.segment_size = 64 << 20;
    let journal = open_journal(&mixed.settings);
    block_on(async {
        let open = mixed.write(&journal, 5000).await;
        std::mem::forget(open);
        journal.close().await;
    });
    assert_eq!(indexed_segments(&mixed.settings), [1], "the index of the open segment is left to the next start");
    let path = segment_files(&mixed.settings).remove(0);
    let end = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(end - 1500).unwrap();
    mixed.check();
    // The aborted outcomes that are written at the start bring the journal beyond that point again.
    let journal = open_journal(&mixed.settings);
    assert!(fs::metadata(&path).unwrap().len() > end);
    mixed.check();
    mixed.check_by(&journal.reader().unwrap());
    block_on(journal.close());
    mixed.check();
}

#[test]
fn refusals_and_requests_can_be_filtered() {
    let mixed = MixedJournal::complete();
    mixed.index();
    let records = all_records(&mixed.settings);
    let change = |record: &Record| record.kind() == RecordKind::Change;
    assert!(records.iter().filter(|record| change(record)).count() > 100);
    let caller = |i: usize| mixed.caller[i];
    let (key, user, org) = (Some(caller(3).key), Some(caller(4).user), Some(caller(1).org));
    let filters = [
        Filter::default(),
        Filter { key, ..Filter::default() },
        Filter { key: Some(caller(0).key), ..Filter::default() },
        Filter { user, ..Filter::default() },
        Filter { org, ..Filter::default() },
        Filter { user, org, ..Filter::default() },
    ];
    let check = || {
        for filter in filters {
            let of = |record: &&Record| {
                (filter.key.is_none() || filter.key == record.key_id)
                    && (filter.user.is_none() || filter.user == record.user_id)
                    && (filter.org.is_none() || filter.org == record.org_id)
            };
            let expected = |wanted: &dyn Fn(&Record) -> bool| -> Vec<Record> {
                records.iter().filter(of).filter(|record| wanted(record)).cloned().collect()
            };
            let refused = |record: &Record| REFUSALS.contains(&record.outcome);
            let refusals = Filter { refused: Some(true), ..filter };
            assert_eq!(export_records(&mixed.settings, refusals), expected(&refused));
            let requests = Filter { kind: Some(RecordKind::Request), ..filter };
            assert_eq!(export_records(&mixed.settings, requests), expected(&|record| !change(record)));
            let both = Filter { kind: Some(RecordKind::Request), refused: Some(true), ..filter };
            let listed = open_reader(&mixed.settings).list(&both, 20, None).unwrap().records;
            let newest = expected(&|record| refused(record) && !change(record)).into_iter().rev().take(20);
            assert_eq!(listed, newest.collect::<Vec<_>>());
        }
    };
    check();
    remove_index(&mixed.settings);
    check();
}
