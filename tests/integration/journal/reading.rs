//! Reading: replay, pages, and following.

use keygate::audit::{Filter, Outcome, Record, Settings, Use, UsedBy};
use keygate::clock::Micros;
use keygate::identity::AuthMethod;
use tempfile::TempDir;

use super::support::{Caller, END, block_on, open_journal, open_reader, settings, write_uses};
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
        let seen = journal.uses_since(times[from]).unwrap();
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
