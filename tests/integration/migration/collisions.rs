//! Records that collide with others of the state, which the file does not have: each is a conflict, and the state can
//! be exported afterwards.

use state::migration::file::verify;
use state::migration::{Report, import};
use state::{Change, StateRecord, User, UserExport, session_quota_digest};

use super::backup::{export, on_both};
use super::records::{RecordMaker, new_key, new_org, new_user};

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
