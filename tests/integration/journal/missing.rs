//! Ids without a record: each id that a client was sent is answered by the records that cover its time, or by a reason.

use std::fs;

use domain::clock::{self, Micros};
use domain::refusal::Refusal;
use journal::audit::{
    AuditView, Filter, Journal, MissingReason, MissingRecord, Outcome, Record, Settings, Use, UseEnd,
};
use uuid::{NoContext, Timestamp, Uuid};

use super::support::{
    Caller, END, block_on, index_file, new_directory, open_journal, segment_files, settings, wait_until_compressed,
    write_uses,
};
use crate::support::eventually;

const LIMITED: Outcome = Outcome::Refused(Refusal::RateLimited);

/// A request that arrives now, with an id of its time, as the gateway makes it.
pub fn opening(caller: Caller) -> Use<'static> {
    let time = clock::now();
    Use { id: id_at(time), number: None, ..caller.opening_at(time) }
}

fn id_at(time: Micros) -> Uuid {
    let nanos = u32::try_from(time.0 % 1_000_000).unwrap() * 1000;
    Uuid::new_v7(Timestamp::from_unix(NoContext, time.0 / 1_000_000, nanos))
}

/// Refuses requests of a caller, and returns their ids.
pub fn refuse(journal: &Journal, caller: Caller, count: usize) -> Vec<Uuid> {
    let end = UseEnd { outcome: LIMITED, status: Some(429), ..END };
    let refuse = |_| {
        let opening = opening(caller);
        assert!(block_on(journal.record_refusal(&opening, end)).unwrap());
        opening.id
    };
    (0..count).map(refuse).collect()
}

/// The record of an id, or the explanation why there is none.
fn find(view: &AuditView, filter: Filter) -> Result<Record, MissingRecord> {
    let page = view.list(&filter, 10, None, 64 << 20).unwrap();
    assert!(page.records.len() <= 1 && page.records.is_empty() == page.missing.is_some(), "{page:?}");
    page.records.into_iter().next().ok_or_else(|| page.missing.unwrap())
}

pub fn find_id(view: &AuditView, id: Uuid) -> Result<Record, MissingRecord> {
    find(view, Filter { id: Some(id), ..Filter::default() })
}

fn reason(view: &AuditView, filter: Filter) -> MissingReason {
    find(view, filter).unwrap_err().reason
}

/// Asserts that each id of refused requests of a caller is answered by a record of that caller.
fn assert_answered(view: &AuditView, caller: Caller, ids: &[Uuid]) -> usize {
    let mut folded = 0;
    for id in ids {
        let Err(missing) = find_id(view, *id) else { continue };
        let MissingRecord { reason, time: Some(time), records, .. } = &missing else { panic!("{missing:?}") };
        assert!(matches!(reason, MissingReason::Folded | MissingReason::Ambiguous), "{missing:?}");
        assert_eq!(*reason == MissingReason::Ambiguous, records.len() > 1, "{missing:?}");
        assert!(records.iter().any(|record| record.key_id == Some(caller.key)), "{missing:?}");
        for record in records {
            assert!(
                record.uses() > 1 && record.time.0 / 1000 <= time.0 / 1000 && *time <= record.last(),
                "{missing:?}"
            );
        }
        folded += 1;
    }
    folded
}

/// Opens the journal with small segments.
fn small(directory: &std::path::Path) -> Settings {
    Settings { segment_size: 20_000, ..settings(directory) }
}

#[test]
fn ids_of_folded_refusals_are_answered_in_open_closed_and_compressed_segments() {
    let directory = tempfile::TempDir::new().unwrap();
    let settings = small(directory.path());
    let [ada, bob] = [Caller::random(), Caller::random()];
    let journal = open_journal(&settings);
    let live = AuditView::of_journal(journal.clone());
    let mut refused = refuse(&journal, ada, 200);
    // The record is written when the second has ended.
    let last = *refused.last().unwrap();
    let first = find_id(&live, last).unwrap_err();
    assert!(matches!(first.reason, MissingReason::Pending | MissingReason::Folded), "{first:?}");
    eventually("the record is written", || find_id(&live, last).unwrap_err().reason == MissingReason::Folded);
    assert!(assert_answered(&live, ada, &refused) > 100, "in the open segment");
    block_on(async {
        for _ in 0..1000 {
            journal.begin(&bob.opening()).await.unwrap().close(END);
        }
    });
    refused.extend(refuse(&journal, ada, 200));
    let of_bob = refuse(&journal, bob, 200);
    wait_until_compressed(&settings);
    block_on(journal.close());
    assert!(segment_files(&settings).len() > 2);
    let view = AuditView::of_directory(&settings.path).unwrap();
    assert!(assert_answered(&view, ada, &refused) > 200);
    assert!(assert_answered(&view, bob, &of_bob) > 100);
    // An export says the same: it has no record of the id.
    let mut exported = Vec::new();
    let filter = Filter { id: Some(last), ..Filter::default() };
    view.export(&filter, &mut |record| {
        exported.push(record);
        Ok(())
    })
    .unwrap();
    assert_eq!(exported, []);
}

#[test]
fn refusals_of_two_keys_at_one_time_are_candidates() {
    let (_directory, settings) = new_directory();
    let [ada, bob] = [Caller::random(), Caller::random()];
    let journal = open_journal(&settings);
    let mut ids = Vec::new();
    for _ in 0..100 {
        for caller in [ada, bob] {
            ids.extend(refuse(&journal, caller, 1).into_iter().map(|id| (caller, id)));
        }
    }
    block_on(journal.close());
    let view = AuditView::of_directory(&settings.path).unwrap();
    let ambiguous = |(_, id): &&(Caller, Uuid)| {
        find_id(&view, *id)
            .is_err_and(|missing| missing.reason == MissingReason::Ambiguous && missing.records.len() == 2)
    };
    let (caller, id) = ids.iter().rfind(ambiguous).expect("the spans of two records overlap");
    let both = find_id(&view, *id).unwrap_err();
    assert!([ada, bob].iter().all(|caller| both.detail.contains(&caller.key.to_string())), "{both:?}");
    assert_eq!(both.key(), None, "neither is asserted");
    // Another condition tells which it was, and an organization is told of its own only.
    let id = Some(*id);
    for filter in
        [Filter { key: Some(caller.key), ..Filter::default() }, Filter { org: Some(caller.org), ..Filter::default() }]
    {
        let one = find(&view, Filter { id, ..filter }).unwrap_err();
        assert_eq!((one.reason, one.key()), (MissingReason::Folded, Some(caller.key)));
    }
    let stranger = Filter { id, org: Some(Caller::random().org), ..Filter::default() };
    assert_eq!(reason(&view, stranger), MissingReason::Unrecorded);
    assert_eq!(reason(&view, Filter { id, refused: Some(false), ..Filter::default() }), MissingReason::Unrecorded);
}

/// A page that ends before the journal does says so: a later one may have the record.
#[test]
fn covering_record_is_not_the_only_one_before_everything_was_searched() {
    let directory = tempfile::TempDir::new().unwrap();
    let settings = small(directory.path());
    write_uses(&settings, 1000);
    let journal = open_journal(&settings);
    let id = *refuse(&journal, Caller::random(), 50).last().unwrap();
    block_on(journal.close());
    assert!(segment_files(&settings).len() > 2);
    // Without an index, a record may be anywhere.
    fs::remove_file(index_file(&settings)).unwrap();
    let view = AuditView::of_directory(&settings.path).unwrap();
    let page = view.list(&Filter { id: Some(id), ..Filter::default() }, 10, None, 1).unwrap();
    let missing = page.missing.expect("no record has the id");
    assert!(page.records.is_empty() && page.next.is_some());
    assert_eq!((missing.reason, missing.records.len()), (MissingReason::Ambiguous, 1), "{missing:?}");
    assert!(missing.detail.contains("the next page may have one"), "{missing:?}");
    assert_eq!(find_id(&view, id).unwrap_err().reason, MissingReason::Folded);
}

#[test]
fn counts_of_a_killed_gateway_are_pending_until_it_starts() {
    let (directory, settings) = new_directory();
    let journal = open_journal(&settings);
    let caller = Caller::random();
    let copy = Settings { path: directory.path().join("copy"), ..settings.clone() };
    fs::create_dir(&copy.path).unwrap();
    // Of a second that ends in between, the record is written before its count is copied.
    let id = loop {
        let id = *refuse(&journal, caller, 50).last().unwrap();
        for file in std::iter::once(settings.path.join("refusals")).chain(segment_files(&settings)) {
            fs::copy(&file, copy.path.join(file.file_name().unwrap())).unwrap();
        }
        let view = AuditView::of_directory(&copy.path).unwrap();
        if find_id(&view, id).is_err_and(|missing| missing.reason == MissingReason::Pending) {
            break id;
        }
    };
    block_on(open_journal(&copy).close());
    let view = AuditView::of_directory(&copy.path).unwrap();
    assert_eq!(assert_answered(&view, caller, &[id]), 1);
    block_on(journal.close());
}

#[test]
fn ids_that_nothing_explains_have_a_reason() {
    let directory = tempfile::TempDir::new().unwrap();
    let settings = small(directory.path());
    let journal = open_journal(&settings);
    let caller = Caller::random();
    let before = id_at(Micros(clock::now().0 - 60_000_000));
    let single = refuse(&journal, caller, 1)[0];
    let folded = refuse(&journal, caller, 50);
    let unknown = UseEnd { outcome: Outcome::Refused(Refusal::Unknown), status: Some(401), ..END };
    let attempt = || {
        let opening = Use { key_id: None, user_id: None, org_id: None, ..opening(caller) };
        (opening.id, journal.record_unknown_key(&opening, unknown))
    };
    let sampled = loop {
        let (id, is_recorded) = attempt();
        if !is_recorded {
            break id;
        }
    };
    block_on(journal.close());
    let view = AuditView::of_directory(&settings.path).unwrap();
    assert_eq!(find_id(&view, single).unwrap().id, single);
    let other = Filter { id: Some(single), outcome: Some(Outcome::Completed), ..Filter::default() };
    assert_eq!(reason(&view, other), MissingReason::Excluded);
    let of = |id| Filter { id: Some(id), ..Filter::default() };
    assert_eq!(reason(&view, of(before)), MissingReason::BeforeAudit);
    let in_sample = find_id(&view, sampled).unwrap_err();
    // The refusals may have been in the same second, and are not in the same millisecond for sure.
    assert!(matches!(in_sample.reason, MissingReason::Sampled | MissingReason::Folded), "{in_sample:?}");
    let now = clock::now().0;
    assert_eq!(reason(&view, of(id_at(Micros(now + 5_000_000)))), MissingReason::Unrecorded);
    assert_eq!(reason(&view, of(id_at(Micros(now + 3_600_000_000)))), MissingReason::Future);
    for id in [Uuid::new_v4(), Uuid::nil()] {
        let missing = find_id(&view, id).unwrap_err();
        assert_eq!((missing.reason, missing.time), (MissingReason::NoRequestId, None));
    }
    // A retention has removed the segments.
    let old = segment_files(&settings);
    write_uses(&settings, 1000);
    old.iter()
        .for_each(|file| fs::remove_file(file).or_else(|_| fs::remove_file(file.with_extension("jsonl.zst"))).unwrap());
    let view = AuditView::of_directory(&settings.path).unwrap();
    for id in [single, *folded.last().unwrap(), sampled] {
        assert_eq!(reason(&view, of(id)), MissingReason::BeforeAudit);
    }
}
