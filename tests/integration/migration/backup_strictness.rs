//! Import into a state that has the records already: of both, the stricter wins.

use domain::clock;
use domain::identity::Permission;
use state::{Change, Key, LastRotation, OrgPolicy, State, User};

use super::backup::{Directory, assert_same_file, assert_same_records, content, export, import_file, on_redis};
use super::installation::runtime;
use super::records::{OVERLAP, RecordMaker, new_user};
use crate::support::decide::decide_request;
use crate::support::redis::Redis;

/// Changes a state that an older file was exported of: everything becomes stricter.
async fn make_stricter(state: &State) {
    let at = clock::now();
    for org in state.orgs().await.unwrap().into_iter().filter(|org| org.name == "acme" || org.name == "globex") {
        let users = state.users(org.id).await.unwrap();
        let keys = state.keys(org.id).await.unwrap();
        let named = |name: &str| keys.iter().find(|key: &&Key| key.name == name).unwrap().id;
        state.change(Change::RevokeKey { key: named("never used"), at }.by("unix:eve(1002)")).await.unwrap();
        let ada = users.iter().find(|user| user.email.starts_with("ada")).unwrap().id;
        if org.name == "acme" {
            let bob = users.iter().find(|user| user.email.starts_with("bob") && user.is_active()).unwrap().id;
            state.change(Change::WithdrawUser { org: org.id, user: bob, at }).await.unwrap();
            state.change(Change::suspend_user(org.id, ada, Some(at), true)).await.unwrap();
        } else {
            state.change(Change::RemoveUser { org: org.id, user: ada, at }).await.unwrap();
            state.change(Change::suspend_org(org.id, true)).await.unwrap();
        }
    }
}

/// Uses keys of a state up to their limit.
async fn use_up(state: &State, digests: &[domain::key::KeyDigest]) {
    for digest in digests.iter().take(20) {
        for _ in 0..50 {
            let ask = decide_request(digest, clock::now());
            drop(state.decide(ask).await.unwrap());
        }
    }
}

#[test]
fn old_file_makes_nothing_less_strict() {
    let directory = Directory::new();
    let redis = Redis::start();
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        maker.everything().await;
        let digests = std::mem::take(&mut maker.digests);
        let old = export(&source).await;
        let on_redis = on_redis(&[redis.url()]).await;
        import_file(&old, &on_redis).await;
        for state in [&source, &on_redis] {
            use_up(state, &digests).await;
            make_stricter(state).await;
            let before = export(state).await;
            assert_ne!(content(&before), content(&old));
            let report = import_file(&old, state).await;
            assert_eq!((report.caught_up, report.withdrawn, report.kept.len()), (0, 0, 0), "{report:?}");
            assert_same_file(&before, &export(state).await);
        }
    });
}

#[test]
fn new_file_makes_an_old_state_as_strict() {
    let (directory, old_directory, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        maker.everything().await;
        let digests = std::mem::take(&mut maker.digests);
        let old = export(&source).await;
        let targets = [old_directory.open(), on_redis(&[redis.url()]).await];
        for target in &targets {
            import_file(&old, target).await;
        }
        use_up(&source, &digests).await;
        make_stricter(&source).await;
        let new = export(&source).await;
        assert!(content(&new).contains("\"revoked_by\":\"unix:eve(1002)\""));
        for target in &targets {
            let report = import_file(&new, target).await;
            assert!(report.caught_up > 5 && report.is_complete(), "{report:?}");
            // Two keys, a removed, a withdrawn and a suspended user, one organization.
            assert_eq!((report.withdrawn, report.kept.len()), (6, 0), "{report:?}");
            assert_same_records(&new, &export(target).await);
        }
        let State::Embedded(_) = &targets[0] else { unreachable!() };
        drop(targets);
        // The merged records are in the file, not in memory alone.
        assert_same_records(&new, &export(&old_directory.open()).await);
    });
}

#[test]
fn fields_without_a_stricter_side_stay_and_are_reported() {
    let (directory, other, redis) = (Directory::new(), Directory::new(), Redis::start());
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        let (key, digest) = maker.key(&org, user, "laptop").await;
        let person = maker.user(&org, "bob@example.com").await;
        let service = User { responsible: Some(user), ..new_user(org.id, "nightly report") };
        maker.change(Change::CreateUser(service.clone())).await;
        let old = export(&source).await;
        for state in [other.open(), on_redis(&[redis.url()]).await] {
            import_file(&old, &state).await;
            let permissions: Vec<Permission> = vec!["queries:write".parse().unwrap()];
            state.change(Change::permit_user(org.id, user, permissions, None)).await.unwrap();
            let at = clock::now();
            let new = domain::key::KeyDigest::of(b"rotated");
            let rotate =
                Change::RotateKey { key, digest: new, at, previous_until: at.after(OVERLAP), last: LastRotation::Any };
            state.change(rotate).await.unwrap();
            state.change(Change::limit_org(org.id, Some(3))).await.unwrap();
            let policy = OrgPolicy { max_expiry: Some(10 * OVERLAP), ..OrgPolicy::default() };
            state.change(Change::set_org_policy(org.id, policy)).await.unwrap();
            state.change(Change::reassign_user(org.id, service.id, person)).await.unwrap();
            let before = export(&state).await;
            let report = import_file(&old, &state).await;
            let kept: Vec<String> = report.kept.iter().map(ToString::to_string).collect();
            assert_eq!(kept.len(), 4, "{kept:?}");
            assert!(kept[0].ends_with("keeps what it has there: concurrent, policy"), "{kept:?}");
            assert!(kept[1].ends_with("permissions"), "{kept:?}");
            assert!(kept[2].ends_with("responsible"), "{kept:?}");
            assert!(kept[3].contains("digest") && kept[3].contains("rotated"), "{kept:?}");
            assert!(report.in_the_way.is_empty());
            assert_same_file(&before, &export(&state).await);
            assert_eq!(state.key_of(&digest).await.unwrap(), Some(key));
        }
    });
}

#[test]
fn conflicting_records_are_left_out_and_named() {
    let (directory, redis, other) = (Directory::new(), Redis::start(), Directory::new());
    runtime().block_on(async {
        let source = directory.open();
        let mut maker = RecordMaker::new(&source);
        let (org, user) = maker.org_with_user().await;
        maker.key(&org, user, "laptop").await;
        let file = export(&source).await;
        for state in [other.open(), on_redis(&[redis.url()]).await] {
            // Another organization of the same name, without which its users and keys have no place.
            RecordMaker::new(&state).org("acme").await;
            let before = export(&state).await;
            let report = import_file(&file, &state).await;
            let found: Vec<String> = report.in_the_way.iter().map(ToString::to_string).collect();
            assert!(found.len() == 1 && found[0].contains("another organization has its name, acme"), "{found:?}");
            assert_eq!((report.left_out.users, report.left_out.keys), (1, 1));
            assert_same_file(&before, &export(&state).await);
        }
    });
}
