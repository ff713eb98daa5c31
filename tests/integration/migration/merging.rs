//! Import of single records into a state that has them already, and the confirmation by replicas.

use std::time::Duration;

use domain::clock;
use domain::key::{KeyDigest, KeyId};
use domain::refusal::Refusal;
use state::migration::file::{Writer, verify};
use state::migration::{MigrationError, Report, import};
use state::{Bounds, Change, DecideRequest, Decision, KeyExport, LastRotation, RouteAccess, State, StateRecord};

use super::backup::{Directory, assert_same_file, export, import_file, on_both, on_redis};
use super::installation::{Installation, runtime};
use super::records::RecordMaker;
use crate::support::redis::Redis;

/// The only key of a state, as it is exported.
async fn exported_key(state: &State) -> KeyExport {
    let mut exporter = state::Exporter::begin(state).await.unwrap();
    let mut found = Vec::new();
    while let Some(records) = exporter.next().await.unwrap() {
        found.extend(records.into_iter().filter_map(|record| match record {
            StateRecord::Key(key) => Some(*key),
            _ => None,
        }));
    }
    let [key] = <[KeyExport; 1]>::try_from(found).expect("one key");
    key
}

async fn import_key(state: &State, key: &KeyExport) -> Report {
    import(&[StateRecord::Key(Box::new(key.clone()))], state).await.unwrap()
}

/// Each of them is stricter in one of the two, and the others are the same.
#[test]
fn bucket_uses_and_last_use_are_merged_each_by_itself() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (_, digest) = maker.key(&org, user, "laptop").await;
        maker.take(&digest, 3).await;
        let before = exported_key(&state).await;
        assert_eq!(import_key(&state, &before).await.caught_up, 0);

        let mut emptier = before.clone();
        emptier.bucket.level = 0;
        assert_eq!(import_key(&state, &emptier).await.caught_up, 1);
        let after = exported_key(&state).await;
        assert_eq!((after.key.uses, after.key.last_used), (before.key.uses, before.key.last_used));
        // Little has flowed in since: a token a minute.
        let now = domain::clock::now();
        let token = before.bucket.level / i64::from(before.quota.burst - 3);
        assert!(after.bucket.refill(after.quota, now).level < 20 * token, "{after:?}");

        let mut later = before.clone();
        later.key.last_used = before.key.last_used.map(|at| at.after(std::time::Duration::from_secs(5)));
        import_key(&state, &later).await;
        let mut more = before.clone();
        more.key.uses += 7;
        import_key(&state, &more).await;
        let after = exported_key(&state).await;
        assert_eq!((after.key.uses, after.key.last_used), (more.key.uses, later.key.last_used));
        assert!(after.bucket.refill(after.quota, domain::clock::now()).level < 20 * token, "{after:?}");
    });
}

/// The write-back of memory may come after a crash.
#[test]
fn merged_usage_is_in_the_file_at_once() {
    let (directory, crashed) = (Directory::new(), Directory::new());
    runtime().block_on(async {
        let state = directory.open();
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        let mut used = exported_key(&state).await;
        used.key.uses += 7;
        import_key(&state, &used).await;
        for entry in std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap()) {
            std::fs::copy(entry.path(), crashed.path().join(entry.file_name())).unwrap();
        }
        assert_eq!(exported_key(&crashed.open()).await.key.uses, 7);
    });
}

#[test]
fn old_file_does_not_fill_the_bucket_of_the_keys_that_a_person_creates() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let org = maker.org("acme").await;
        let person = maker.user(&org, "person@example.com").await;
        maker.keys_by(&org, person, 3).await;
        let old = export(&state).await;
        maker.keys_by(&org, person, 5).await;
        let before = export(&state).await;
        import_file(&old, &state).await;
        assert_same_file(&before, &export(&state).await);
    });
}

#[test]
fn digests_without_their_key_or_of_another_key_are_in_the_way() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (one, _) = maker.key(&org, user, "one").await;
        let (_, taken) = maker.key(&org, user, "two").await;
        let report = import(&[StateRecord::Digests(one, vec![taken])], &state).await.unwrap();
        assert_eq!((report.in_the_way.len(), report.digests.copied), (1, 0), "{report:?}");
        let missing = "abcDEF123".parse().unwrap();
        let report = import(&[StateRecord::Digests(missing, vec![KeyDigest::of(b"x")])], &state).await.unwrap();
        assert_eq!((report.in_the_way.len(), report.digests.copied), (1, 0), "{report:?}");
    });
}

/// A file whose lines are those of an export, and in which two keys have the same digest. Its sums are right.
async fn file_with_a_digest_twice(maker: &mut RecordMaker<'_>) -> (Vec<u8>, [KeyId; 2], KeyDigest) {
    let (org, user) = maker.org_with_user().await;
    let (one, digest) = maker.key(&org, user, "one").await;
    let (other, _) = maker.key(&org, user, "other").await;
    let mut exporter = state::Exporter::begin(maker.state).await.unwrap();
    let (mut writer, mut file) = Writer::begin(clock::now(), "test");
    while let Some(mut records) = exporter.next().await.unwrap() {
        for record in &mut records {
            if let StateRecord::Key(key) = record {
                key.digest = digest;
            }
        }
        file.extend(writer.lines(&records));
    }
    file.extend(writer.end());
    (file, [one, other], digest)
}

#[test]
fn digest_that_is_twice_in_a_file_is_that_of_one_key() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        let (file, keys, digest) = file_with_a_digest_twice(&mut RecordMaker::new(&source)).await;
        assert!(verify(&*file).is_ok(), "the lines alone do not show it");
        for state in [other.open(), on_redis(&[redis.url()]).await] {
            let report = import_file(&file, &state).await;
            let found: Vec<String> = report.in_the_way.iter().map(ToString::to_string).collect();
            assert!(found.len() == 1 && found[0].contains("has, or had, one of its digests"), "{found:?}");
            let owner = state.key_of(&digest).await.unwrap().expect("one of them has it");
            assert!(keys.contains(&owner) && found[0].contains(owner.as_str()), "{found:?}");
            let org = state.orgs().await.unwrap()[0].id;
            let listed: Vec<KeyId> = state.keys(org).await.unwrap().iter().map(|key| key.id).collect();
            assert_eq!(listed, [owner], "the other key is not there");
            // An import that is repeated changes nothing.
            let before = export(&state).await;
            assert_eq!(import_file(&file, &state).await.in_the_way.len(), 1);
            assert_same_file(&before, &export(&state).await);
        }
    });
}

#[test]
fn digest_that_is_twice_among_the_former_ones_is_that_of_one_key() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (one, _) = maker.key(&org, user, "one").await;
        let (two, _) = maker.key(&org, user, "two").await;
        let twice = vec![KeyDigest::of(b"former")];
        let records = [StateRecord::Digests(one, twice.clone()), StateRecord::Digests(two, twice.clone())];
        let report = import(&records, &state).await.unwrap();
        assert_eq!((report.in_the_way.len(), report.digests.copied), (1, 1), "{report:?}");
        assert_eq!(state.key_of(&twice[0]).await.unwrap(), Some(one));
    });
}

/// Rotations and the retirement of a revoked key are the target's: of an older export, the uses alone count.
#[test]
fn uses_of_keys_that_were_rotated_or_retired_meanwhile_are_merged() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (key, digest) = maker.key(&org, user, "laptop").await;
        maker.take(&digest, 3).await;
        let mut old = exported_key(&state).await;
        old.key.uses += 7;
        old.key.last_used = old.key.last_used.map(|at| at.after(Duration::from_secs(5)));

        let at = maker.now;
        let new = KeyDigest::of(b"rotated");
        maker.change(Change::RotateKey { key, digest: new, at, previous_until: at, last: LastRotation::Any }).await;
        assert_eq!(import_key(&state, &old).await.caught_up, 1);
        let merged = exported_key(&state).await;
        assert_eq!((merged.key.uses, merged.key.last_used), (10, old.key.last_used));
        assert_eq!((merged.digest, merged.key.rotated), (new, Some(at)));
        assert_eq!(refusal(&state, &digest).await, Some(Refusal::Expired), "the old secret stays refused");

        maker.change(Change::RevokeKey { key, at }).await;
        state.set_bounds(Bounds { keep_revoked: Duration::ZERO, ..Bounds::DEFAULT });
        // The next change is made after the key was retired.
        maker.org("later").await;
        assert!(state.keys(org.id).await.unwrap().is_empty());
        old.key.uses += 1;
        assert_eq!(import_key(&state, &old).await.caught_up, 1);
        let retired = exported_key(&state).await;
        assert_eq!((retired.key.uses, retired.key.revoked), (11, Some(at)));
        for digest in [&digest, &new] {
            assert_eq!(refusal(&state, digest).await, Some(Refusal::Revoked));
        }
        assert_eq!(exported_key(&state).await.key.uses, 11, "a refusal is no use");
    });
}

/// Reason for which a key is refused; none when it is admitted.
async fn refusal(state: &State, digest: &KeyDigest) -> Option<Refusal> {
    let ask = DecideRequest { digest, id: None, access: RouteAccess::Everyone, client: None, now: clock::now() };
    match state.decide(ask).await.unwrap() {
        Decision::Admitted(_) => None,
        Decision::Denied { refusal, .. } => Some(refusal),
    }
}

#[test]
fn import_waits_for_the_replicas_that_are_configured() {
    let directory = Directory::new();
    let redis = Redis::start();
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        let key = exported_key(&source).await;
        let url = format!("\"{}\"", redis.url());
        let target = Installation::moving_to(&[url], ", durability: { replicas: 1, timeout: 500ms }").target().await;
        let records = [StateRecord::Org(org.clone()), StateRecord::Key(Box::new(key))];
        let imported = import(&records, &target).await;
        assert!(matches!(imported, Err(MigrationError::NotReplicated(_))), "{imported:?}");
    });
}
