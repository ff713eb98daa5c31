//! Export and import of a state: identical after a round trip over every pair of states.

use std::time::Duration;

use domain::clock;
use domain::quota::Quota;
use state::migration::file::{Reader, Writer, verify};
use state::migration::{Report, import};
use state::redis::{Clock, Settings};
use state::{
    Bounds, Change, Embedded, Exporter, KeyActors, OrgPatch, Redis as RedisState, State, StateRecord, embedded,
};

use super::installation::{Installation, On, runtime};
use super::records::{RecordMaker, monthly};
use crate::support::decide::rotation;
use crate::support::redis::{Cluster, Redis, Sentinels};

/// The whole export of a state.
pub(super) async fn export(state: &State) -> Vec<u8> {
    let (mut writer, mut file) = Writer::begin(clock::now(), "test");
    let mut exporter = Exporter::begin(state).await.unwrap();
    while let Some(records) = exporter.next().await.unwrap() {
        file.extend(writer.lines(&records));
    }
    file.extend(writer.end());
    file
}

/// Imports a whole file, some records at a time.
pub(super) async fn import_file(file: &[u8], state: &State) -> Report {
    let (mut reader, _) = Reader::begin(file).unwrap();
    let mut report = Report::default();
    let mut part = Vec::new();
    loop {
        let record = reader.next_record().unwrap();
        let is_end = record.is_none();
        part.extend(record);
        if part.len() == 300 || is_end {
            report.add(import(&part, state).await.unwrap());
            part.clear();
        }
        if is_end {
            return report;
        }
    }
}

/// All lines but the first, which has the time.
pub(super) fn content(file: &[u8]) -> &str {
    std::str::from_utf8(file).unwrap().split_once('\n').unwrap().1
}

/// Asserts that two files are the same but for the time, and shows the first line that differs.
pub(super) fn assert_same_file(one: &[u8], other: &[u8]) {
    for (number, (one, other)) in content(one).lines().zip(content(other).lines()).enumerate() {
        assert_eq!(one, other, "line {}", number + 2);
    }
    assert_eq!(content(one).len(), content(other).len());
}

/// An embedded state in a directory of its own.
pub(super) struct Directory(tempfile::TempDir);

impl Directory {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn open(&self) -> State {
        let path = self.0.path().join("state.db");
        let quota = Quota { requests: 60, per: Duration::from_secs(3600), burst: 40, strict: false };
        State::Embedded(
            Embedded::open(&embedded::Settings { path, quota, concurrent: 9, plans: state::LimitPlans::NONE }).unwrap(),
        )
    }
}

/// A Redis state of an installation that is configured like the embedded one.
pub(super) async fn on_redis(urls: &[String]) -> State {
    let quoted: Vec<String> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    Installation::moving_to(&quoted, "").target().await
}

/// Runs a test on an embedded state, and on one in Redis.
pub(super) fn on_both(test: impl AsyncFn(State)) {
    let directory = Directory::new();
    let redis = Redis::start();
    runtime().block_on(async {
        for state in [directory.open(), on_redis(&[redis.url()]).await] {
            test(state).await;
        }
    });
}

/// Asserts that a file comes back as it was after an import into an empty state, and that a second import changes
/// nothing.
pub(super) async fn assert_round_trip(file: &[u8], state: &State) {
    let report = import_file(file, state).await;
    assert!(report.is_complete(), "{report:?}");
    assert_same_file(file, &export(state).await);
    let again = import_file(file, state).await;
    let counts = [again.orgs, again.users, again.keys, again.digests, again.rules, again.tokens, again.spent];
    let copied = counts.map(|count| count.copied);
    assert_eq!((copied, again.withdrawn, again.is_complete()), ([0; 7], 0, true), "{again:?}");
    assert_same_file(file, &export(state).await);
}

/// A state with every kind of record and two thousand keys more, as a file.
async fn populated(state: &State) -> Vec<u8> {
    let mut maker = RecordMaker::new(state);
    maker.everything().await;
    maker.many("many", 2000).await;
    let org = maker.org("people").await;
    let person = maker.user(&org, "person@example.com").await;
    maker.keys_by(&org, person, 3).await;
    let patch = OrgPatch { budget: monthly(1000), ..OrgPatch::default() };
    maker.change(Change::UpdateOrg { org: org.id, patch }).await;
    maker.take(maker.digests.last().unwrap(), 3).await;
    maker.programs(&org, person).await;
    export(state).await
}

#[test]
fn export_is_identical_after_a_round_trip_over_every_pair_of_states() {
    let (redis, other, cluster, sentinels) = (Redis::start(), Redis::start(), Cluster::start(3, 0), Sentinels::start());
    let directories = [Directory::new(), Directory::new(), Directory::new(), Directory::new()];
    runtime().block_on(async {
        let source = directories[0].open();
        let file = populated(&source).await;
        assert_eq!(verify(&*file).unwrap().1.counts.spent, 5);
        for by in
            ["created_by\":\"unix:ada", "created_by\":\"usr_", "rotated_by\":\"unix:bob", "revoked_by\":\"unix:root"]
        {
            assert!(content(&file).contains(by), "{by}");
        }
        // Each of these has the file of the one before it: together they are pairs in both directions.
        assert_round_trip(&file, &directories[1].open()).await;
        let on_one = on_redis(&[redis.url()]).await;
        assert_round_trip(&file, &on_one).await;
        assert_round_trip(&export(&on_one).await, &directories[2].open()).await;
        let on_cluster = on_redis(&cluster.urls()).await;
        assert_round_trip(&export(&on_one).await, &on_cluster).await;
        assert_round_trip(&export(&on_cluster).await, &on_redis(&[other.url()]).await).await;
        assert_round_trip(&export(&on_cluster).await, &directories[3].open()).await;
        let by_sentinel = on_redis(&[sentinels.url(Sentinels::SERVICE)]).await;
        assert_round_trip(&export(&on_cluster).await, &by_sentinel).await;
        assert_same_file(&file, &export(&by_sentinel).await);
    });
}

#[test]
fn export_has_keys_that_are_no_longer_listed() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        RecordMaker::new(&source).everything().await;
        // Closed and opened: the file has the uses of a key before the key leaves the memory.
        drop(source);
        let source = directory.open();
        let file = export(&source).await;
        // A revoked key leaves the lists after so long; here at once.
        let bounds = Bounds { keep_revoked: Duration::ZERO, ..Bounds::DEFAULT };
        let listed = async |state: &State| {
            let mut listed = 0;
            for org in state.orgs().await.unwrap() {
                listed += state.keys(org.id).await.unwrap().len();
            }
            listed
        };
        let before = listed(&source).await;
        source.set_bounds(bounds);
        // The next change is made after the keys were retired.
        RecordMaker::new(&source).org("later").await;
        assert_eq!(listed(&source).await, before - 2);
        let later = export(&source).await;
        assert!(content(&later).contains(content(&file).lines().find(|line| line.contains("\"revoked\":\"")).unwrap()));
        let on_redis = on_redis(&[redis.url()]).await;
        assert_round_trip(&later, &on_redis).await;
        on_redis.set_bounds(bounds);
        assert_eq!(listed(&on_redis).await, before - 2);
        assert_round_trip(&export(&on_redis).await, &other.open()).await;
        // Retired keys are known to the target of an import, too.
        assert_round_trip(&later, &source).await;
    });
}

/// Files of version 1 have no actors.
#[test]
fn file_of_the_version_before_is_imported_without_actors() {
    let directories = [Directory::new(), Directory::new()];
    runtime().block_on(async {
        let source = directories[0].open();
        RecordMaker::new(&source).everything().await;
        let file = export(&source).await;
        let (mut reader, _) = Reader::begin(&*file).unwrap();
        let (mut writer, header) = Writer::begin(clock::now(), "test");
        let mut old = String::from_utf8(header).unwrap().replace("\"version\":4", "\"version\":1").into_bytes();
        while let Some(mut record) = reader.next_record().unwrap() {
            if let StateRecord::Key(key) = &mut record {
                key.actors = KeyActors::default();
            }
            old.extend(writer.lines(&[record]));
        }
        old.extend(writer.end());
        assert!(old.starts_with(b"{\"format\":\"keygate-state\",\"version\":1,"));
        assert!(content(&file).contains("\"created_by\"") && !content(&old).contains("\"created_by\""));
        assert!(verify(&*old).is_ok());
        assert_round_trip(&old, &directories[1].open()).await;
    });
}

#[test]
fn key_with_many_former_digests_takes_several_lines() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        let (key, _) = maker.key(&org, user, "rotated").await;
        for number in 0..2100_u32 {
            let digest = domain::key::KeyDigest::of(&number.to_le_bytes());
            let rotate = rotation(key, digest, maker.now);
            source.change(rotate).await.unwrap();
        }
        let file = export(&source).await;
        assert_eq!(content(&file).lines().filter(|line| line.starts_with("{\"digests\"")).count(), 2);
        let (_, summary) = verify(&*file).unwrap();
        assert_eq!(summary.counts.digests, 2101);
        assert_round_trip(&file, &other.open()).await;
        assert_round_trip(&file, &on_redis(&[redis.url()]).await).await;
    });
}

#[test]
fn export_of_one_prefix_has_nothing_of_another() {
    let redis = Redis::start();
    let (directory, other) = (Directory::new(), Directory::new());
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        maker.everything().await;
        let file = export(&source).await;
        let prefixed = async |prefix: &str| {
            let installation = Installation::moving_to(&[redis.url()], &format!(", prefix: {prefix}"));
            let state::Settings::Redis(settings) = installation.config(On::Redis).state else { unreachable!() };
            State::Redis(RedisState::open(Settings { clock: Clock::Caller, ..*settings }).await.unwrap())
        };
        let (one, two) = (prefixed("k").await, prefixed("kk").await);
        assert_round_trip(&file, &one).await;
        let source = other.open();
        RecordMaker::new(&source).org("another").await;
        let another = export(&source).await;
        assert_round_trip(&another, &two).await;
        assert_same_file(&file, &export(&one).await);
    });
}

/// The figure of `docs/backup.md`: `cargo test --test integration -- --ignored --nocapture hundred_thousand_keys`.
#[test]
#[ignore = "takes a minute: prints the time of a round trip with 100,000 keys"]
fn hundred_thousand_keys_are_exported_and_imported() {
    let (redis, cluster) = (Redis::start(), Cluster::start(3, 0));
    let directories = [Directory::new(), Directory::new()];
    runtime().block_on(async {
        let source = directories[0].open();
        RecordMaker::new(&source).many("many", 100_000).await;
        let file = export(&source).await;
        let targets = [
            ("embedded", directories[1].open()),
            ("redis", on_redis(&[redis.url()]).await),
            ("cluster", on_redis(&cluster.urls()).await),
        ];
        for (name, target) in targets {
            let begun = std::time::Instant::now();
            let first = export(&source).await;
            let exported = begun.elapsed();
            import_file(&first, &target).await;
            let imported = begun.elapsed();
            assert_same_file(&file, &export(&target).await);
            let (total, bytes) = (begun.elapsed(), file.len());
            println!(
                "{name}: export {exported:.1?}, import {:.1?}, export {:.1?}, together {total:.1?}, {bytes} bytes",
                imported - exported,
                total - imported
            );
        }
    });
}
