//! Records: exactly one per use, however the use ends.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use domain::refusal::Refusal;
use journal::audit::{
    Addresses, Durability, Filter, Journal, OpenError, Outcome, PreparedFields, Record, Settings, Use, UseEnd,
};
use platform::metrics::Metrics;
use tempfile::TempDir;
use uuid::Uuid;

use super::support::{
    Caller, END, all_records, assert_intact, block_on, change_of, new_directory, open_journal, open_reader,
    segment_files, settings, write_uses,
};
use crate::support::eventually;

#[test]
fn use_and_its_outcome_are_one_record() {
    for durability in [Durability::Written, Durability::Synced] {
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, ..settings(directory.path()) };
        block_on(async {
            let journal = open_journal(&settings);
            let caller = Caller::random();
            let opening = caller.opening();
            let entry = journal.begin(&opening).await.unwrap();
            assert_eq!(
                all_records(&settings)[0].outcome,
                Outcome::InProgress,
                "the use is written before begin returns"
            );
            entry.close(END);
            eventually("the outcome is written", || all_records(&settings)[0].outcome == Outcome::Completed);
            let record = all_records(&settings).remove(0);
            assert_eq!(record.id, opening.id);
            assert_eq!(record.time, opening.time);
            assert_eq!(record.key_id, Some(caller.key));
            assert_eq!(record.status, Some(200));
            assert_eq!(record.duration_us, Some(1500));
            assert_eq!(record.gateway, "gw-1");
            journal.close().await;
            assert!(journal.begin(&opening).await.is_err());
            assert!(!journal.is_available());
        });
        assert_intact(&settings);
    }
}

/// Whatever is recorded of a client: a use, an end, a change, a refusal of its own and in a count, an unknown key.
#[test]
fn shortened_addresses_are_in_no_record() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { addresses: Addresses::Shortened, ..settings(directory.path()) };
    let ip = Some("203.0.113.77".parse().unwrap());
    let opening = || Use { ip, ..Caller::random().opening() };
    let refused = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), ..END };
    block_on(async {
        let journal = open_journal(&settings);
        journal.begin(&opening()).await.unwrap().close(END);
        journal.begin_prepared(&opening(), &PreparedFields::default()).await.unwrap().close(END);
        journal.begin_change(&change_of(opening()), false).await.unwrap().close_change(END).await;
        journal.record(&opening(), END).await.unwrap();
        let same = opening();
        for _ in 0..30 {
            journal.record_refusal(&Use { id: Uuid::now_v7(), ..same.clone() }, refused).await.unwrap();
        }
        assert!(journal.record_unknown_key(&opening(), END));
        journal.close().await;
    });
    let records = all_records(&settings);
    assert!(records.iter().map(|record| record.uses()).sum::<u64>() >= 35, "{}", records.len());
    let network = Some("203.0.113.0".parse().unwrap());
    assert!(records.iter().all(|record| record.ip == network || record.ip.is_none()));
    let text: String = segment_files(&settings).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    assert!(text.contains("203.0.113.0") && !text.contains("203.0.113.77"));
}

#[test]
fn provisional_flag_is_written_for_provisional_uses_only() {
    let (_directory, settings) = new_directory();
    let caller = Caller::random();
    block_on(async {
        let journal = open_journal(&settings);
        for provisional in [false, true] {
            let opening = Use { provisional, ..caller.opening() };
            journal.begin(&opening).await.unwrap().close(END);
        }
        journal.record(&Use { provisional: true, ..caller.opening() }, END).await.unwrap();
        journal.close().await;
    });
    let written = fs::read_to_string(&segment_files(&settings)[0]).unwrap();
    assert_eq!((written.matches("\t\tk\t").count(), written.matches("\tp\tk\t").count()), (1, 2));
    let of_key = Filter { key: Some(caller.key), ..Filter::default() };
    let mut listed = open_reader(&settings).list(&of_key, 10, None).unwrap().records;
    listed.reverse();
    assert_eq!(listed, all_records(&settings));
    assert_eq!(listed.iter().map(|record| record.provisional).collect::<Vec<_>>(), [false, true, true]);
    let shown = |record: &Record| serde_json::to_value(record).unwrap().get("provisional").cloned();
    assert_eq!(listed.iter().map(shown).collect::<Vec<_>>(), [None, Some(true.into()), Some(true.into())]);
    let json = serde_json::to_string(&listed[0]).unwrap();
    assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), listed[0]);
    assert_intact(&settings);
}

#[test]
fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_directory, settings) = new_directory();
    write_uses(&settings, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&settings.path), 0o700);
    assert_eq!(mode(&segment_files(&settings)[0]), 0o600);
    for name in ["lock", "index.db"] {
        assert_eq!(mode(&settings.path.join(name)), 0o600, "{name}");
    }
}

#[test]
fn second_writer_is_refused_until_the_first_closes() {
    let (_directory, settings) = new_directory();
    let journal = open_journal(&settings);
    let second = Journal::open(settings.clone(), Metrics::new().audit);
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    block_on(journal.close());
    open_journal(&settings);
}

#[test]
fn dropped_entry_is_aborted_and_a_record_is_whole() {
    let (_directory, settings) = new_directory();
    block_on(async {
        let journal = open_journal(&settings);
        drop(journal.begin(&Caller::random().opening()).await.unwrap());
        let refused = UseEnd { outcome: Outcome::Refused(Refusal::RateLimited), status: Some(429), ..END };
        journal.record(&Caller::random().opening(), refused).await.unwrap();
        journal.close().await;
    });
    let outcomes: Vec<Outcome> = all_records(&settings).iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [Outcome::Aborted, Outcome::Refused(Refusal::RateLimited)]);
    assert_eq!(assert_intact(&settings).records, 2);
}

#[test]
fn dropped_begin_future_ends_as_aborted() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { durability: Durability::Synced, ..settings(directory.path()) };
    block_on(async {
        let journal = open_journal(&settings);
        for _ in 0..200 {
            let opening = Caller::random().opening();
            let mut begin = Box::pin(journal.begin(&opening));
            std::future::poll_fn(|context| {
                let _ = begin.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
        }
        journal.close().await;
    });
    assert_eq!(assert_intact(&settings).records, 200);
    assert!(all_records(&settings).iter().all(|record| record.outcome == Outcome::Aborted));
}

#[test]
fn threads_write_one_record_per_use() {
    for (durability, uses) in [(Durability::Written, 2000), (Durability::Synced, 100)] {
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, segment_size: 100_000, ..settings(directory.path()) };
        let journal = open_journal(&settings);
        let work = |_| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                block_on(async {
                    let caller = Caller::random();
                    for n in 0..uses {
                        let entry = journal.begin(&caller.opening()).await.unwrap();
                        if n % 7 != 0 {
                            entry.close(END);
                        }
                    }
                });
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_intact(&settings);
        block_on(journal.close());
        let report = assert_intact(&settings);
        assert_eq!(report.records, 4 * uses);
        let mut seen = HashMap::new();
        all_records(&settings).iter().for_each(|record| *seen.entry(record.id).or_insert(0) += 1);
        assert_eq!(seen.len() as u64, 4 * uses);
        assert!(seen.values().all(|count| *count == 1));
        assert!(all_records(&settings).iter().all(|record| record.outcome != Outcome::InProgress));
    }
}
