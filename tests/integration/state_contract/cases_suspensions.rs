//! Suspensions: those of the operator, and what is created in a suspended organization.

use std::time::Duration;

use domain::clock;
use domain::identity::UserId;
use domain::refusal::Refusal;
use state::{Change, ChangeError, State};

use super::fixture::{admit, new_fixture, new_key, refuse};

const LATER: Duration = Duration::from_secs(1);

/// The operator alone takes back a suspension of its own, also where an administrator had suspended the user before.
pub(super) async fn suspension_by_the_operator_is_taken_back_by_the_operator_alone(state: &State) {
    let (fixture, now) = (new_fixture(state).await, clock::now());
    let (org, user) = (fixture.org, fixture.user);
    let key = fixture.key(state).await;
    let record = async || state.member(org, user).await.unwrap().unwrap().1;
    let set = async |at, by_operator| state.change(Change::suspend_user(org, user, at, by_operator)).await;
    set(Some(now), false).await.unwrap();
    assert!(!record().await.suspended_by_operator);
    set(None, false).await.unwrap();
    for first in [true, false] {
        set(Some(now), first).await.unwrap();
        set(Some(now.after(LATER)), true).await.unwrap();
        set(Some(now.after(LATER)), false).await.unwrap();
        let suspended = record().await;
        assert_eq!((suspended.suspended, suspended.suspended_by_operator), (Some(now), true), "{first}");
        let refused = set(None, false).await;
        assert!(matches!(refused, Err(ChangeError::SuspendedByOperator(id)) if id == user), "{refused:?}");
        assert_eq!(record().await, suspended, "nothing was changed");
        assert_eq!(refuse(state, &key, now).await, Refusal::UserSuspended);
        set(None, true).await.unwrap();
        let resumed = record().await;
        assert_eq!((resumed.suspended, resumed.suspended_by_operator), (None, false));
        admit(state, &key, now).await;
    }
}

/// A person makes no key in a suspended organization; the operator does.
pub(super) async fn suspended_organization_gets_no_key_of_a_person(state: &State) {
    let fixture = new_fixture(state).await;
    let create = async |person: Option<UserId>| {
        let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
        let change = Change::CreateKey { key, digest };
        let bounded = match person {
            Some(person) => Change::ByPerson { person, change: Box::new(change) },
            None => change,
        };
        state.change(bounded).await
    };
    create(Some(fixture.user)).await.unwrap();
    state.change(Change::suspend_org(fixture.org, true)).await.unwrap();
    let refused = create(Some(fixture.user)).await;
    assert!(matches!(refused, Err(ChangeError::OrgSuspended(id)) if id == fixture.org), "{refused:?}");
    create(None).await.unwrap();
    state.change(Change::suspend_org(fixture.org, false)).await.unwrap();
    create(Some(fixture.user)).await.unwrap();
}
