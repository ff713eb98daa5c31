//! Accounts of services: each has a responsible person of its organization, whom nothing of it depends on.

use domain::clock;
use domain::identity::UserId;
use state::{Change, ChangeError, State, User};

use super::fixture::{admit, new_fixture, new_user};

pub(super) async fn service_has_a_responsible_person_and_goes_on_without(state: &State) {
    let (fixture, now) = (new_fixture(state).await, clock::now());
    let org = fixture.org;
    let other = fixture.user(state, "other@example.com").await;
    let service = User { responsible: Some(fixture.user), ..new_user(org, "nightly report") };
    let user = service.id;
    state.change(Change::CreateUser(service.clone())).await.unwrap();
    let record = async || state.member(org, user).await.unwrap().unwrap().1;
    assert_eq!(record().await, service);
    assert_eq!(state.user_by_email(org, "nightly report").await.unwrap(), Some(service.clone()));
    let again = state.change(Change::CreateUser(User { id: UserId::generate(), ..service.clone() })).await;
    assert!(matches!(again, Err(ChangeError::Taken("email"))), "{again:?}");

    let key = fixture.key_of(state, user).await;
    admit(state, &key, now).await;
    state.change(Change::reassign_user(org, user, other)).await.unwrap();
    assert_eq!(record().await, User { responsible: Some(other), ..service.clone() });
    for at in [Some(now), None, Some(now)] {
        state.change(Change::suspend_user(org, other, at, true)).await.unwrap();
        admit(state, &key, now).await;
    }
    state.change(Change::RemoveUser { org, user: other, at: now }).await.unwrap();
    admit(state, &key, now).await;
    assert_eq!(record().await.responsible, Some(other), "nobody else is responsible by themselves");
    // Permissions and a suspension of its own leave the person as it is.
    state.change(Change::permit_user(org, user, Vec::new(), None)).await.unwrap();
    state.change(Change::suspend_user(org, user, Some(now), false)).await.unwrap();
    let expected = User { responsible: Some(other), permissions: Vec::new(), suspended: Some(now), ..service };
    assert_eq!(record().await, expected);
    let listed = state.users(org).await.unwrap();
    assert_eq!(listed.into_iter().filter(User::is_service).collect::<Vec<_>>(), [expected]);
}

pub(super) async fn responsible_person_is_one_of_the_organization(state: &State) {
    let (fixture, elsewhere, now) = (new_fixture(state).await, new_fixture(state).await, clock::now());
    let org = fixture.org;
    let removed = fixture.user(state, "removed@example.com").await;
    state.change(Change::RemoveUser { org, user: removed, at: now }).await.unwrap();
    let service = |responsible| User { responsible: Some(responsible), ..new_user(org, "nightly") };
    let valid = service(fixture.user);
    let user = valid.id;
    state.change(Change::CreateUser(valid.clone())).await.unwrap();

    let create = async |responsible| {
        let created = User { email: "weekly".into(), ..service(responsible) };
        state.change(Change::CreateUser(created)).await.unwrap_err()
    };
    let reassign =
        async |user, responsible| state.change(Change::reassign_user(org, user, responsible)).await.unwrap_err();
    for nobody in [elsewhere.user, removed, UserId::generate()] {
        for error in [create(nobody).await, reassign(user, nobody).await, reassign(nobody, fixture.user).await] {
            assert!(matches!(error, ChangeError::NoUser(id) if id == nobody), "{error:?}");
        }
    }
    for error in [create(user).await, reassign(user, user).await] {
        assert!(matches!(error, ChangeError::NotPerson(id) if id == user), "{error:?}");
    }
    let person = reassign(fixture.user, fixture.user).await;
    assert!(matches!(person, ChangeError::NotService(id) if id == fixture.user), "{person:?}");
    assert_eq!(state.user_by_email(org, "weekly").await.unwrap(), None);
    assert_eq!(state.member(org, user).await.unwrap().unwrap().1, valid, "nothing was changed");
    assert!(!state.member(org, fixture.user).await.unwrap().unwrap().1.is_service());
}
