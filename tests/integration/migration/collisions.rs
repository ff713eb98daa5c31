//! Records that collide with others of the state, which the file does not have: each is a conflict, and the state can
//! be exported afterwards.

use domain::key::KeyDigest;
use serde_json::json;
use state::migration::file::verify;
use state::migration::{Report, import};
use state::{Change, KeyExport, StateRecord, User, UserExport, session_quota_digest};

use super::backup::{Directory, export, on_both, on_redis};
use super::conflicts::edited;
use super::installation::runtime;
use super::records::{RecordMaker, new_key, new_org, new_user};
use super::{exported_keys, records_of};
use crate::support::redis::Redis;

fn user_record(user: &User) -> StateRecord {
    StateRecord::User(Box::new(UserExport { user: user.clone(), creation: None }))
}

fn problems(report: &Report) -> Vec<String> {
    report.conflicts.iter().map(|finding| finding.problem.to_string()).collect()
}

#[test]
fn user_of_another_organization_is_not_created_again() {
    on_both(async |state| {
        let maker = RecordMaker::new(&state);
        let org = maker.org("acme").await;
        let users = ["ada", "bob"].map(|name| new_user(org.id, &format!("{name}@example.com")));
        for user in &users {
            maker.change(Change::CreateUser(user.clone())).await;
        }
        // The sessions of this one have a quota, which is that of the id alone.
        let (mut key, _) = new_key(&org, users[1].id, "web sessions");
        key.session_quota_key = true;
        maker.change(Change::CreateKey { key, digest: session_quota_digest(users[1].id) }).await;
        let other = new_org("globex");
        let [ada, bob] = users.map(|user| User { org: other.id, ..user });
        let bob = User { email: "robert@example.com".into(), ..bob };
        let records = [StateRecord::Org(other.clone()), user_record(&ada), user_record(&bob)];
        let report = import(&records, &state).await.unwrap();
        let found = problems(&report);
        assert!(found.len() == 2 && found.iter().all(|found| found.starts_with("it is there, and is not the same")));
        assert!(found[0].ends_with(": org") && found[1].ends_with(": email, org"), "{found:?}");
        assert_eq!(state.users(other.id).await.unwrap(), []);
        assert!(verify(&*export(&state).await).is_ok());
    });
}

#[test]
fn service_of_a_service_or_of_another_organization_is_a_conflict() {
    on_both(async |state| {
        let maker = RecordMaker::new(&state);
        let (org, person) = maker.org_with_user().await;
        let service = User { responsible: Some(person), ..new_user(org.id, "nightly") };
        maker.change(Change::CreateUser(service.clone())).await;
        let elsewhere = maker.org("globex").await;
        let stranger = maker.user(&elsewhere, "eve@example.com").await;
        let (mut key, _) = new_key(&elsewhere, stranger, "web sessions");
        key.session_quota_key = true;
        maker.change(Change::CreateKey { key, digest: session_quota_digest(stranger) }).await;
        let unknown = new_user(org.id, "x").id;
        let of = |name: &str, responsible| User { responsible: Some(responsible), ..new_user(org.id, name) };
        let services = [of("a", service.id), of("b", stranger), of("c", person), of("d", unknown)];
        let report = import(&services.each_ref().map(user_record), &state).await.unwrap();
        assert_eq!((report.users.copied, report.conflicts.len()), (2, 2), "{report:?}");
        for (found, user) in problems(&report).iter().zip([service.id, stranger]) {
            assert!(found.ends_with(&format!("is a service, or one of another organization: {user}")), "{found}");
        }
        assert!(verify(&*export(&state).await).is_ok());
    });
}

/// A digest that the state has lost comes back also with a key that conflicts in something else; not with another key.
#[test]
fn former_digests_are_added_to_a_key_in_conflict_unless_it_is_another_one() {
    on_both(async |state| {
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let other = maker.user(&org, "bob@example.com").await;
        let (id, _) = maker.key(&org, user, "laptop").await;
        let stored = exported_keys(&state).await.remove(0);
        let lost = |text: &str| KeyDigest::of(text.as_bytes());
        let renamed = |text: &str| {
            let mut export = KeyExport { replaced: vec![lost(text)], ..stored.clone() };
            export.key.name = "phone".into();
            export
        };
        let report = import(&[StateRecord::Key(Box::new(renamed("lost")))], &state).await.unwrap();
        assert_eq!(
            (problems(&report), report.digests.copied),
            (vec!["it is there, and is not the same: name".into()], 1)
        );
        assert_eq!(state.key_of(&lost("lost")).await.unwrap(), Some(id));
        let mut of_other = renamed("of another user");
        of_other.key.user = other;
        let new_secret = KeyExport { digest: lost("secret"), ..renamed("of another secret") };
        for export in [of_other, new_secret] {
            let more = vec![lost("more")];
            let records = [StateRecord::Key(Box::new(export.clone())), StateRecord::Digests(id, more.clone())];
            let report = import(&records, &state).await.unwrap();
            assert_eq!((report.conflicts.len(), report.digests.copied), (1, 0), "{report:?}");
            for digest in export.replaced.iter().chain(&more) {
                assert_eq!(state.key_of(digest).await.unwrap(), None);
            }
        }
    });
}

/// A failover lost the digest of a secret: the key is refused until an import, also one of a file in which its quota is
/// another one.
#[test]
fn lost_secret_comes_back_with_a_key_in_conflict() {
    let redis = Redis::start();
    runtime().block_on(async {
        let state = on_redis(&[redis.url()]).await;
        let mut maker = RecordMaker::new(&state);
        let (org, user) = maker.org_with_user().await;
        let (id, digest) = maker.key(&org, user, "laptop").await;
        let file = export(&state).await;
        let hex: String = digest.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        redis.cli::<()>(&["DEL", &format!("keygate:digest:{hex}")]);
        let quota = json!({ "quota": { "requests": 7, "per_s": 60, "burst": 9 } });
        let report = import(&[edited(&file, "\"laptop\"", &quota)], &state).await.unwrap();
        assert_eq!((problems(&report).len(), report.digests.copied), (1, 1), "{report:?}");
        assert_eq!(state.key_of(&digest).await.unwrap(), Some(id));
    });
}

/// An import ended between the record of an organization and the list, and another one took the name meanwhile.
#[test]
fn unlisted_organization_whose_name_was_taken_is_a_conflict() {
    let (redis, directory) = (Redis::start(), Directory::new());
    runtime().block_on(async {
        let source = directory.open();
        let maker = RecordMaker::new(&source);
        let orgs = [maker.org("acme").await, maker.org("globex").await, maker.org("initech").await];
        let records = records_of(&source).await;
        let state = on_redis(&[redis.url()]).await;
        assert!(import(&records[..2], &state).await.unwrap().is_complete());
        for org in &orgs[..2] {
            let id = org.id.to_string();
            redis.cli::<()>(&["HDEL", "keygate:{orgs}:tags", &id]);
            redis.cli::<()>(&["HDEL", "keygate:{orgs}:names", &org.name]);
            redis.cli::<()>(&["LREM", "keygate:{orgs}:list", "0", &id]);
        }
        redis.cli::<()>(&["DEL", "keygate:{orgs}:looks"]);
        let taken = RecordMaker::new(&state).org("acme").await;
        // The record of the file has another name than the one that is there: it is listed under its own.
        let file = export(&source).await;
        let renamed = edited(&file, "\"globex\"", &json!({ "name": "hooli" }));
        let report = import(&[records[0].clone(), renamed, records[2].clone()], &state).await.unwrap();
        let found = problems(&report);
        assert_eq!(
            found,
            [
                format!("another organization has its name, acme: {}", taken.id),
                "it is there, and is not the same: name".into(),
            ]
        );
        let listed: Vec<String> = state.orgs().await.unwrap().into_iter().map(|org| org.name).collect();
        assert_eq!(listed, ["acme", "globex", "initech"]);
        assert_eq!(state.org_by_name("globex").await.unwrap().map(|org| org.id), Some(orgs[1].id));
        assert_eq!(state.org_by_name("hooli").await.unwrap(), None);
        assert!(verify(&*export(&state).await).is_ok());
    });
}
