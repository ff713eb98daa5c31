//! Records of the directory: uniqueness, missing records, and lists.

use domain::clock::{self, Micros};
use domain::identity::{OrgId, UserId};
use domain::key::KeyId;
use domain::refusal::Refusal;
use state::{Change, ChangeError, Key, LOOK_TAKEN, Org, State, User};

use super::fixture::{
    Fixture, admit, decide, fixture_with_key, new_fixture, new_key, new_org, new_user, refused, rotate,
};
use crate::support::decide::rotation;

pub(super) async fn unique_fields_are_taken_once(state: &State) {
    let (fixture, held) = fixture_with_key(state).await;
    let org = fixture.record(state).await;
    let user = state.users(org.id).await.unwrap().remove(0);
    let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let old = held.digest;
    let replaced = rotate(state, &held, clock::now(), clock::now()).await;
    let cases = [
        ("name", Change::CreateOrg(Org { name: org.name.clone(), ..new_org() })),
        ("tag", Change::CreateOrg(Org { tag: org.tag, ..new_org() })),
        ("id", Change::CreateOrg(Org { id: org.id, ..new_org() })),
        ("email", Change::CreateUser(new_user(org.id, &user.email))),
        ("id", Change::CreateUser(User { id: user.id, ..new_user(org.id, "c") })),
        ("id", Change::CreateKey { key: Key { id: held.id, ..key.clone() }, digest }),
        ("digest", Change::CreateKey { key: key.clone(), digest: replaced.digest }),
        ("digest", Change::CreateKey { key: key.clone(), digest: old }),
        ("digest", rotation(held.id, old, Micros(1))),
        ("digest", rotation(held.id, replaced.digest, Micros(1))),
    ];
    for (what, change) in cases {
        let result = state.change(change.clone()).await;
        assert!(matches!(result, Err(ChangeError::Taken(taken)) if taken == what), "{what} {change:?}: {result:?}");
    }
    let alike = state.orgs().await.unwrap().into_iter().filter(|other| other.name == org.name || other.tag == org.tag);
    assert_eq!(alike.count(), 1);
    let (users, keys) = (state.users(org.id).await.unwrap(), state.keys(org.id).await.unwrap());
    assert_eq!((users.len(), keys.len()), (1, 1));
    assert_eq!(refused(&decide(state, &digest, clock::now()).await), Refusal::Unknown);
    let elsewhere = super::fixture::new_fixture(state).await;
    state.change(Change::CreateUser(new_user(elsewhere.org, "c"))).await.unwrap();
    state.change(Change::CreateUser(new_user(fixture.org, "c"))).await.unwrap();
}

pub(super) async fn organizations_have_names_that_do_not_look_the_same(state: &State) {
    let org = Org { name: format!("Acme {}", OrgId::generate()), ..new_org() };
    state.change(Change::CreateOrg(org.clone())).await.unwrap();
    let looks = [org.name.replace('c', "\u{441}"), org.name.replace(' ', "\u{a0}"), format!("\u{34f}{}", org.name)];
    for like in looks.into_iter().chain([org.name.to_uppercase(), org.name.to_lowercase()]) {
        let created = state.change(Change::CreateOrg(Org { name: like.clone(), ..new_org() })).await;
        assert!(matches!(created, Err(ChangeError::Taken(LOOK_TAKEN))), "{like:?}: {created:?}");
        assert_eq!(state.org_by_name(&like).await.unwrap(), None);
    }
    let other = Org { name: format!("{} 2", org.name.to_uppercase()), ..new_org() };
    state.change(Change::CreateOrg(other)).await.unwrap();
    assert_eq!(state.org_by_name(&org.name).await.unwrap().map(|found| found.id), Some(org.id));
}

pub(super) async fn changes_to_missing_records_are_refused(state: &State) {
    let (Fixture { org, user, tag }, held) = fixture_with_key(state).await;
    let elsewhere = new_fixture(state).await;
    let (at, unknown, nowhere) = (clock::now(), UserId::generate(), OrgId::generate());
    let nothing = KeyId::generate(tag).unwrap();
    let (key, digest) = new_key(tag, org, user);
    for change in [
        Change::suspend_org(nowhere, true),
        Change::limit_org(nowhere, None),
        Change::CreateUser(new_user(nowhere, "x")),
        Change::permit_user(nowhere, user, Vec::new(), None),
        Change::CreateKey { key: Key { org: nowhere, ..key.clone() }, digest },
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoOrg(id)) if id == nowhere));
    }
    for (user, change) in [
        (unknown, Change::RemoveUser { org, user: unknown, at }),
        (user, Change::RemoveUser { org: elsewhere.org, user, at }),
        (user, Change::permit_user(elsewhere.org, user, Vec::new(), None)),
        (user, Change::CreateKey { key: Key { org: elsewhere.org, ..key.clone() }, digest }),
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoUser(id)) if id == user));
    }
    for change in
        [Change::RevokeKey { key: nothing, at }, rotation(nothing, digest, at), Change::limit_key(nothing, None)]
    {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoKey(id)) if id == nothing));
    }
    admit(state, &held, at).await;
    assert_eq!((state.key(nothing).await.unwrap(), state.rate_limit_status(nothing, at).await.unwrap()), (None, None));
    assert_eq!(state.users(nowhere).await.unwrap(), []);
    assert_eq!(state.keys(nowhere).await.unwrap(), []);
}

pub(super) async fn failed_change_does_not_undo_its_neighbours(state: &State) {
    let (first, second) = (new_org(), new_org());
    let duplicate = Org { name: first.name.clone(), ..new_org() };
    // Submitted before any of them is answered: a state may make them in any order, and together.
    let (one, other, two) = tokio::join!(
        state.change(Change::CreateOrg(first.clone())),
        state.change(Change::CreateOrg(duplicate.clone())),
        state.change(Change::CreateOrg(second.clone())),
    );
    two.unwrap();
    let (made, refused) = if one.is_ok() { (&first, other) } else { (&duplicate, one.and(other)) };
    assert!(matches!(refused, Err(ChangeError::Taken("name"))), "{refused:?}");
    let orgs = state.orgs().await.unwrap().into_iter();
    let mut found: Vec<OrgId> =
        orgs.map(|org| org.id).filter(|id| [first.id, duplicate.id, second.id].contains(id)).collect();
    let mut expected = [made.id, second.id];
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

pub(super) async fn records_are_listed_in_the_order_of_creation(state: &State) {
    let mut orgs = Vec::new();
    for _ in 0..3 {
        let fixture = new_fixture(state).await;
        let users = [fixture.user, fixture.user(state, "z").await, fixture.user(state, "a").await];
        let keys = [fixture.key(state).await.id, fixture.key(state).await.id, fixture.key(state).await.id];
        assert_eq!(state.users(fixture.org).await.unwrap().iter().map(|user| user.id).collect::<Vec<_>>(), users);
        assert_eq!(state.keys(fixture.org).await.unwrap().iter().map(|key| key.id).collect::<Vec<_>>(), keys);
        orgs.push(fixture.org);
    }
    let listed = state.orgs().await.unwrap().into_iter().map(|org| org.id).filter(|id| orgs.contains(id));
    assert_eq!(listed.collect::<Vec<_>>(), orgs);
}

pub(super) async fn single_records_are_found(state: &State) {
    let (fixture, other) = (new_fixture(state).await, new_fixture(state).await);
    let org = state.org(fixture.org).await.unwrap().unwrap();
    assert_eq!((org.id, org.tag), (fixture.org, fixture.tag));
    assert_eq!(state.org(OrgId::generate()).await.unwrap(), None);
    let (of, user) = state.member(fixture.org, fixture.user).await.unwrap().unwrap();
    assert_eq!((of, user.id), (org, fixture.user));
    assert_eq!(state.member(fixture.org, other.user).await.unwrap(), None, "of another organization");
    let found = state.user_by_email(fixture.org, "ann@example.com").await.unwrap().unwrap();
    assert_eq!(found, user);
    assert_eq!(state.user_by_email(fixture.org, "bob@example.com").await.unwrap(), None);
    let remove = Change::RemoveUser { org: fixture.org, user: fixture.user, at: clock::now() };
    state.change(remove).await.unwrap();
    assert_eq!(state.user_by_email(fixture.org, "ann@example.com").await.unwrap(), None, "removed");
    assert!(state.member(fixture.org, fixture.user).await.unwrap().unwrap().1.removed.is_some());
}
