//! Refusals of known keys: ten records a second and outcome, the rest counted exactly, also across a kill.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use domain::clock::{self, Micros};
use domain::refusal::Refusal;
use journal::audit::{Durability, Filter, Journal, Outcome, Record, RefusalRecords, Settings, Use, UseEnd};
use platform::metrics::Metrics;
use tempfile::TempDir;

use super::support::{
    Caller, all_records, assert_intact, block_on, new_directory, open_journal, open_reader, segment_files, settings,
};
use crate::support::eventually;

const LIMITED: Outcome = Outcome::Refused(Refusal::RateLimited);
const REVOKED: Outcome = Outcome::Refused(Refusal::Revoked);
/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;

fn end(outcome: Outcome) -> UseEnd {
    UseEnd { outcome, status: Some(429), duration_us: 12, request_bytes: 0, response_bytes: 300 }
}

/// When refusals were recorded.
#[derive(Default)]
struct Times {
    /// The seconds in which they were.
    seconds: BTreeSet<u64>,
    /// The longest time from the arrival of a request to the end of its recording, in microseconds.
    longest: u64,
}

async fn refuse(journal: &Journal, caller: Caller, outcome: Outcome, count: u64) -> Times {
    let mut times = Times::default();
    for _ in 0..count {
        let opening = caller.opening();
        journal.record_refusal(&opening, end(outcome)).await.unwrap();
        let now = clock::now();
        times.seconds.extend(opening.time.0 / 1_000_000..=now.0 / 1_000_000);
        times.longest = times.longest.max(now.since(opening.time));
    }
    times
}

fn uses(records: &[Record]) -> u64 {
    records.iter().map(Record::uses).sum()
}

/// The seconds of the clock that have passed since a time, the first and the present one included.
fn seconds_since(begun: Micros) -> usize {
    (clock::now().0 / 1_000_000 - begun.0 / 1_000_000) as usize + 1
}

/// Copies a journal as it is at this moment, which is what a kill would leave.
fn killed_now(settings: &Settings, directory: &Path) -> Settings {
    let copy = Settings { path: directory.join(uuid::Uuid::new_v4().to_string()), ..settings.clone() };
    fs::create_dir(&copy.path).unwrap();
    // The slots first: what is moved from them to a segment meanwhile is in both copies, as after a kill in between.
    for file in std::iter::once(settings.path.join("refusals")).chain(segment_files(settings)) {
        fs::copy(&file, copy.path.join(file.file_name().unwrap())).unwrap();
    }
    copy
}

/// Recovers a journal and returns the refusals in it.
fn recovered(settings: &Settings) -> u64 {
    block_on(open_journal(settings).close());
    assert_intact(settings);
    uses(&all_records(settings))
}

#[test]
fn refusals_in_a_loop_are_counted_exactly_in_bounded_space() {
    for durability in [Durability::Written, Durability::Synced] {
        let directory = TempDir::new().unwrap();
        let settings = Settings { durability, ..settings(directory.path()) };
        let metrics = Metrics::new().audit;
        let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
        let (one, other, sparse) = (Caller::random(), Caller::random(), Caller::random());
        let begun = clock::now();
        let load = async || {
            let limited = refuse(&journal, one, LIMITED, 5000).await;
            let revoked = refuse(&journal, one, REVOKED, 1000).await;
            [limited, revoked, refuse(&journal, other, LIMITED, 1000).await]
        };
        let threads: Vec<[Times; 3]> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| block_on(load()))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        block_on(refuse(&journal, sparse, LIMITED, 3));
        let seconds = clock::now().since(begun) as usize / 1_000_000 + 2;
        block_on(journal.close());
        let records = all_records(&settings);
        assert_eq!(uses(&records), 28_003);
        assert_eq!((metrics.written.get(), assert_intact(&settings).uses), (28_003, 28_003));
        assert!(metrics.coalesced.get() > 28_003 - 40 * seconds as u64 * 3);
        let loads = [(one, LIMITED, 20_000), (one, REVOKED, 4000), (other, LIMITED, 4000)];
        for (load, (caller, outcome, sum)) in loads.into_iter().enumerate() {
            let of_key: Vec<Record> = records
                .iter()
                .filter(|record| record.key_id == Some(caller.key) && record.outcome == outcome)
                .cloned()
                .collect();
            assert_eq!(uses(&of_key), sum);
            let seconds: BTreeSet<u64> = threads.iter().flat_map(|times| times[load].seconds.clone()).collect();
            assert!(of_key.len() <= 11 * seconds.len(), "{} records in {seconds:?}", of_key.len());
            let counted = of_key.iter().find(|record| record.count.is_some()).unwrap();
            // Refused within one second, the requests arrived before.
            let longest = threads.iter().map(|times| times[load].longest).max().unwrap();
            assert!(counted.last_time.unwrap() >= counted.time);
            assert!(counted.last_time.unwrap().since(counted.time) < 1_000_000 + longest);
            assert_eq!((counted.addresses, counted.ips.as_slice()), (Some(1), &[counted.ip.unwrap()][..]));
            assert_eq!(
                (counted.org_id, counted.status, &*counted.action),
                (Some(caller.org), Some(429), "queries.list")
            );
        }
        assert!(records.iter().filter(|record| record.key_id == Some(sparse.key)).all(|record| record.count.is_none()));
        let bytes: u64 = segment_files(&settings).iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(bytes < 11 * 3 * 700 * seconds as u64, "{bytes} bytes in {seconds} s");
        // Activity counts by the count.
        let now = clock::now();
        let activity = &open_reader(&settings).activity(one.org, &[one.key], now).unwrap()[&one.key];
        assert_eq!(activity.hours.iter().map(|hour| hour.refusals).sum::<u64>(), 24_000);
        assert_eq!((activity.hours.iter().map(|hour| hour.requests).sum::<u64>(), &activity.last), (0, &None));
    }
}

/// Decisions of a slow Redis, and threads that are suspended: the requests of one second are refused in several.
#[test]
fn refusals_of_slow_and_fast_requests_share_the_records_of_a_second() {
    let (_directory, settings) = new_directory();
    let journal = open_journal(&settings);
    let caller = Caller::random();
    let begun = clock::now();
    block_on(async {
        for age in [0, 3_000_000, 0, 1_500_000, 60_000_000].into_iter().cycle().take(1000) {
            let now = clock::now().0;
            // Those of two days are never counted in one record.
            let opening = caller.opening_at(Micros((now - age).max(now / DAY * DAY)));
            journal.record_refusal(&opening, end(LIMITED)).await.unwrap();
        }
    });
    let seconds = seconds_since(begun);
    block_on(journal.close());
    let records = all_records(&settings);
    assert_eq!(uses(&records), 1000);
    assert!(records.len() <= 11 * seconds, "{} records in {seconds} s", records.len());
}

#[test]
fn record_of_refusals_names_four_addresses_and_counts_all() {
    let (_directory, settings) = new_directory();
    let journal = open_journal(&settings);
    let caller = Caller::random();
    block_on(async {
        for n in 0..700_u16 {
            let [high, low] = (n % 60).to_be_bytes();
            let opening = Use { ip: Some(IpAddr::from([203, 0, high, low])), ..caller.opening() };
            journal.record_refusal(&opening, end(LIMITED)).await.unwrap();
        }
        journal.close().await;
    });
    let records = all_records(&settings);
    assert_eq!(uses(&records), 700);
    let largest = records.iter().max_by_key(|record| record.uses()).unwrap();
    assert!(largest.uses() > 200, "{largest:?}");
    assert_eq!((largest.addresses, largest.ips.len()), (Some(60), 4));
    assert_eq!(largest.ips[0], largest.ip.unwrap());
    let json = serde_json::to_value(largest).unwrap();
    assert_eq!(json["count"], largest.uses());
    assert!(json["last_time"].as_str().unwrap() >= json["time"].as_str().unwrap());
    // Listings find the record by its key and outcome.
    let filter = Filter { key: Some(caller.key), outcome: Some(LIMITED), refused: Some(true), ..Filter::default() };
    assert_eq!(uses(&open_reader(&settings).list(&filter, 1000, None).unwrap().records), 700);
}

#[test]
fn every_refusal_is_a_record_when_configured() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { refusals: RefusalRecords::Each, ..settings(directory.path()) };
    let journal = open_journal(&settings);
    block_on(async {
        refuse(&journal, Caller::random(), LIMITED, 500).await;
        journal.close().await;
    });
    let records = all_records(&settings);
    assert_eq!((records.len(), uses(&records)), (500, 500));
}

/// Whenever the gateway is killed, the counted refusals become records at the next start, once.
#[test]
fn kill_loses_no_counted_refusal_and_doubles_none() {
    let (directory, settings) = new_directory();
    let journal = open_journal(&settings);
    let callers: Vec<Caller> = (0..20).map(|_| Caller::random()).collect();
    let counted_slots = |settings: &Settings| {
        let slots = fs::read_to_string(settings.path.join("refusals")).unwrap();
        // The first byte of a slot is overwritten when it is cleared.
        slots.matches("{\"e\":\"record\"").count()
    };
    let mut refused = 0;
    for caller in &callers {
        block_on(refuse(&journal, *caller, LIMITED, 150));
        refused += 150;
        let copy = killed_now(&settings, directory.path());
        assert_eq!(recovered(&copy), refused);
        assert_eq!(recovered(&copy), refused, "a second start adds nothing");
    }
    block_on(refuse(&journal, callers[0], LIMITED, 500));
    refused += 500;
    // A kill between the writing of the records and the clearing of their slots.
    let slots = fs::read(settings.path.join("refusals")).unwrap();
    eventually("all records are written and their slots cleared", || counted_slots(&settings) == 0);
    let copy = killed_now(&settings, directory.path());
    fs::write(copy.path.join("refusals"), &slots).unwrap();
    assert_eq!(recovered(&copy), refused);
    block_on(journal.close());
    assert_eq!(recovered(&settings), refused);
}

/// With more keys than the table holds, every refusal is still recorded.
#[test]
fn more_keys_than_the_table_holds_are_counted_exactly() {
    let (_directory, settings) = new_directory();
    let journal = open_journal(&settings);
    block_on(async {
        for _ in 0..12_000 {
            refuse(&journal, Caller::random(), LIMITED, 12).await;
        }
        journal.close().await;
    });
    assert_eq!((uses(&all_records(&settings)), assert_intact(&settings).uses), (144_000, 144_000));
    assert!(fs::metadata(settings.path.join("refusals")).unwrap().len() <= 10_000 * 4096);
}
