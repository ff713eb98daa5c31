//! Compressed segments: read like plain ones, a tenth of their size, and whole after a crash at any moment.

use std::fs;
use std::path::PathBuf;

use domain::clock::{self, Micros};
use domain::trace_context::TraceId;
use journal::audit::{Filter, Journal, Record, Settings, Use, UseEnd};
use platform::metrics::Metrics;
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use super::mixed_journal::MixedJournal;
use super::support::{
    Caller, END, all_records, assert_intact, block_on, export_records, index_file, open_journal, open_reader,
    remove_index, segment_files, settings, wait_until_compressed, write_uses,
};
use crate::support::{SmallDisk, eventually, until};

/// Bytes for each use on the disk, at most.
const BYTES_PER_USE: u64 = 60;

/// Has all closed segments compressed and sealed.
fn compress(settings: &Settings) {
    let journal = open_journal(settings);
    wait_until_compressed(settings);
    block_on(journal.close());
}

#[test]
fn compressed_segments_are_read_like_plain_ones() {
    let mixed = MixedJournal::complete();
    let plain = all_records(&mixed.settings);
    compress(&mixed.settings);
    assert!(segment_files(&mixed.settings).len() > 3);
    let check = || {
        assert!(all_records(&mixed.settings) == plain);
        assert_intact(&mixed.settings);
        mixed.check();
        let key = mixed.caller[1].key;
        let of_key = |record: &&Record| record.key_id == Some(key);
        let filter = Filter { key: Some(key), ..Filter::default() };
        assert!(export_records(&mixed.settings, filter).iter().eq(plain.iter().filter(of_key)));
        let one = &plain[plain.len() / 3];
        let by_id = Filter { id: Some(one.id), ..Filter::default() };
        assert_eq!(export_records(&mixed.settings, by_id), std::slice::from_ref(one));
        let (mut listed, mut before) = (Vec::new(), None);
        loop {
            let page = open_reader(&mixed.settings).list(&Filter::default(), 700, before).unwrap();
            listed.extend(page.records);
            let Some(next) = page.next else { break };
            before = Some(next);
        }
        assert!(listed.iter().rev().eq(plain.iter()));
    };
    check();
    remove_index(&mixed.settings);
    check();
    mixed.index();
    check();
    let journal = open_journal(&mixed.settings);
    assert!(journal.uses_since(Micros(0)).unwrap().uses.len() > 3000);
    block_on(journal.close());
}

/// Writes realistic traffic, and asserts that a use takes so many bytes on the disk at most.
fn assert_bytes_per_use(most: u64, is_traced: bool) {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 1 << 20, ..settings(directory.path()) };
    let callers: Vec<Caller> = (0..200).map(|_| Caller::random()).collect();
    let journal = open_journal(&settings);
    block_on(async {
        for n in 0..20_000_usize {
            // A few keys have most of the traffic.
            let place = n * 7919 % 200 * (n % 7) / 7;
            let path = format!("/api/queries/{}", n * 7919 % 10_007);
            let agents = ["curl/8.5.0", "python-requests/2.31.0", "Go-http-client/2.0"];
            let opening = Use {
                number: Some(n as u64 / 200),
                path: &path,
                user_agent: Some(agents[place % 3].as_bytes()),
                trace_id: is_traced.then(|| TraceId::from_bits(Uuid::new_v4().as_u128())).flatten(),
                ..callers[place].opening()
            };
            let end = UseEnd { duration_us: 800 + n as u64 * 31 % 900, ..END };
            journal.begin(&opening).await.unwrap().close(end);
        }
    });
    wait_until_compressed(&settings);
    block_on(journal.close());
    let files = segment_files(&settings);
    let (open, closed) = files.split_last().unwrap();
    let left = fs::read_to_string(open).unwrap().lines().filter(|line| line.starts_with('u')).count() as u64;
    let uses = 20_000 - left;
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let bytes: u64 = closed.iter().chain([&index_file(&settings)]).map(size).sum();
    assert!(uses > 10_000 && bytes <= most * uses, "{bytes} bytes for {uses} uses");
    let records = all_records(&settings);
    assert_eq!(records.len(), 20_000);
    assert!(records.iter().all(|record| record.trace_id.is_some() == is_traced));
    assert_intact(&settings);
}

#[test]
fn realistic_traffic_takes_little_space() {
    assert_bytes_per_use(BYTES_PER_USE, false);
}

/// The id of a trace has 16 random bytes, and the lines of each frame have a few more.
#[test]
fn trace_ids_cost_their_bytes_alone() {
    assert_bytes_per_use(BYTES_PER_USE + 17, true);
}

/// A crash may leave a part of a compressed segment under its other name, or both files.
#[test]
fn crash_in_the_middle_of_compressing_loses_nothing() {
    let (_directory, settings, plain) = until("closed segments are seen before they are compressed", || {
        let directory = TempDir::new().unwrap();
        let settings = Settings { segment_size: 20_000, ..settings(directory.path()) };
        write_uses(&settings, 300);
        let plain = segment_files(&settings).into_iter().map(|path| (path.clone(), fs::read(path).unwrap()));
        let plain: Vec<_> = plain.collect();
        plain[1].0.ends_with("0000000002.jsonl").then_some((directory, settings, plain))
    });
    let records = all_records(&settings);
    compress(&settings);
    let compressed = segment_files(&settings);
    assert!(compressed.len() >= 3);
    let (second, content) = &plain[1];
    let whole = fs::read(&compressed[1]).unwrap();
    let part = second.with_extension("jsonl.zst.tmp");
    for length in [0, 1, whole.len() / 2, whole.len()] {
        fs::write(&part, &whole[..length]).unwrap();
        fs::write(second, content).unwrap();
        assert!(all_records(&settings) == records, "both files are there");
        compress(&settings);
        assert!(!part.exists() && !second.exists(), "nothing is left behind");
        assert!(all_records(&settings) == records);
        assert_intact(&settings);
    }
    // Before the rename, only the plain file and a part are there.
    fs::write(&part, &whole[..whole.len() / 2]).unwrap();
    fs::write(second, content).unwrap();
    fs::remove_file(&compressed[1]).unwrap();
    assert!(all_records(&settings) == records);
    block_on(open_journal(&settings).close());
    assert!(all_records(&settings) == records && !part.exists());
}

#[test]
fn segment_that_had_no_room_is_compressed_once_there_is_some() {
    let test = "journal::compression::segment_that_had_no_room_is_compressed_once_there_is_some";
    let Some(disk) = SmallDisk::mount(test, 40) else { return };
    let settings = Settings { segment_size: 20_000, ..settings(disk.path()) };
    let plain = || -> Vec<PathBuf> {
        segment_files(&settings).into_iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect()
    };
    let path = format!("/{}", "x".repeat(1000));
    eventually("segments are closed after the last round of maintenance", || {
        let journal = open_journal(&settings);
        block_on(async {
            for _ in 0..150 {
                journal.begin(&Use { path: &path, ..Caller::random().opening() }).await.unwrap().close(END);
            }
            journal.close().await;
        });
        plain().len() > 3
    });
    let (before, records) = (plain(), all_records(&settings));
    disk.fill();
    let metrics = Metrics::new().audit;
    let journal = Journal::open(settings.clone(), metrics.clone()).unwrap();
    metrics.disk_free.set(-1);
    eventually("a round of maintenance has tried", || metrics.disk_free.get() >= 0);
    assert_eq!((plain(), disk.free()), (before, 0));
    assert!(all_records(&settings) == records);
    disk.make_room();
    // All but the open one, and the oldest one, which was sealed so that retention may remove it.
    eventually("the segments are compressed", || plain().len() <= 2);
    block_on(journal.close());
    assert!(all_records(&settings) == records);
    assert_intact(&settings);
}

/// After a power failure, the segments behind a compressed one may be lost.
#[test]
fn journal_continues_in_a_compressed_segment_that_is_the_last() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 20_000, ..settings(directory.path()) };
    write_uses(&settings, 300);
    compress(&settings);
    let files = segment_files(&settings);
    files[2..].iter().for_each(|path| fs::remove_file(path).unwrap());
    let before = all_records(&settings);
    assert!(before.len() > 50);
    let journal = open_journal(&settings);
    block_on(async {
        journal.begin(&Caller::random().opening()).await.unwrap().close(END);
        journal.close().await;
    });
    let after = all_records(&settings);
    assert_eq!(after.len(), before.len() + 1);
    assert!(after.iter().zip(&before).all(|(after, before)| after.id == before.id));
    assert_intact(&settings);
}

#[test]
fn damaged_compressed_segment_is_reported_and_the_gateway_starts() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 20_000, ..settings(directory.path()) };
    write_uses(&settings, 300);
    compress(&settings);
    assert_intact(&settings);
    let second = segment_files(&settings)[1].clone();
    let whole = fs::read(&second).unwrap();
    for at in (0..whole.len()).step_by(197).chain([whole.len() - 1, whole.len() - 12]) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&second, &changed).unwrap();
        assert_ne!(open_reader(&settings).verify().unwrap().problems, [], "byte {at}");
    }
    fs::write(&second, &whole[..whole.len() / 2]).unwrap();
    let export = open_reader(&settings).export(&Filter::default(), &mut |_| Ok(()));
    assert!(export.is_err(), "an export is never short of records");
    let journal = open_journal(&settings);
    assert!(journal.uses_since(Micros(0)).unwrap().uses.len() > 100);
    assert!(journal.uses_since(clock::now()).unwrap().uses.is_empty());
    block_on(journal.close());
    fs::write(&second, &whole).unwrap();
    assert_intact(&settings);
}

#[test]
fn follower_continues_when_its_segment_is_compressed() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { segment_size: 20_000, ..settings(directory.path()) };
    let journal = open_journal(&settings);
    let mut follow = open_reader(&settings).follow(Filter::default(), 0).unwrap();
    let mut expected = Vec::new();
    block_on(async {
        for _ in 0..300 {
            let opening = Caller::random().opening();
            journal.begin(&opening).await.unwrap().close(END);
            expected.push(opening.id);
        }
    });
    wait_until_compressed(&settings);
    let mut seen = Vec::new();
    eventually("all records are returned", || {
        seen.extend(follow.poll().unwrap().iter().map(|record| record.id));
        seen.len() >= expected.len()
    });
    assert_eq!(seen, expected);
    block_on(journal.close());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Whatever clients send, a compressed segment gives back.
    #[test]
    fn text_of_requests_survives_compression(
        texts in prop::collection::vec((".{0,40}", prop::collection::vec(any::<u8>(), 0..40)), 60..90),
    ) {
        let directory = TempDir::new().unwrap();
        let settings = Settings { segment_size: 4_000, ..settings(directory.path()) };
        let journal = open_journal(&settings);
        block_on(async {
            for (path, agent) in &texts {
                let opening = Use { path, action: path, user_agent: Some(agent), ..Caller::random().opening() };
                journal.begin(&opening).await.unwrap().close(END);
            }
            journal.close().await;
        });
        let plain = all_records(&settings);
        compress(&settings);
        prop_assert!(segment_files(&settings).len() > 2);
        prop_assert!(all_records(&settings) == plain);
        assert_intact(&settings);
    }
}
