//! Pages of the directory's lists: a walk over all pages returns each entry exactly once, also while others come.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::{SessionId, UserId};
use domain::key::KeyId;
use domain::page::Page;
use state::{Change, Key, KeyList, KeyPosition, Membership, Session, SessionList, SessionPosition, State};

use super::cases_sessions::{self, create, end, new_session};
use super::fixture::{Fixture, created, new_fixture, new_key, revoke};
use crate::support::Random;

/// Entries on a page.
const LIMITS: [usize; 5] = [1, 7, 20, 100, 1000];

/// Number of keys of each list; `KEYGATE_LISTED_KEYS` sets another.
fn keys_per_list() -> usize {
    std::env::var("KEYGATE_LISTED_KEYS").map_or(26, |number| number.parse().unwrap())
}

/// Creates a key of a user with this time of creation.
async fn key_created_at(state: &State, fixture: &Fixture, user: UserId, created: Micros) -> KeyPosition {
    let (key, digest) = new_key(fixture.tag, fixture.org, user);
    let key = Key { created, ..key };
    let position = KeyPosition::from(&key);
    state.change(Change::CreateKey { key, digest }).await.unwrap();
    position
}

/// Reads all pages of a list of keys.
async fn walk(state: &State, list: KeyList, limit: usize) -> Vec<KeyPosition> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = state.page_of_keys(list, after, limit).await.unwrap();
        assert!(page.items.len() == limit || page.next.is_none(), "only the last page is short");
        assert_eq!(page.next.is_some(), page.items.last().map(KeyPosition::from) == page.next && page.next.is_some());
        found.extend(page.items.iter().map(KeyPosition::from));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

pub(super) async fn keys_are_listed_a_page_at_a_time(state: &State) {
    let fixture = new_fixture(state).await;
    let other = fixture.user(state, "bob@example.com").await;
    let (mut of_all, mut of_other) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..keys_per_list() {
        // Five keys at a time have the same time of creation, and every third key is another user's.
        let created = Micros(1_700_000_000_000_000 + number as u64 / 5);
        let user = if number % 3 == 0 { other } else { fixture.user };
        let position = key_created_at(state, &fixture, user, created).await;
        of_all.insert(position);
        of_other.extend(Some(position).filter(|_| user == other));
    }
    // Neither session quota keys nor keys of other organizations are listed.
    fixture.session_quota_key(state, fixture.user).await;
    fixture.session_quota_key(state, other).await;
    new_fixture(state).await.key(state).await;
    for (owner, expected) in [(None, of_all), (Some(other), of_other)] {
        let oldest: Vec<KeyPosition> = expected.into_iter().collect();
        let newest: Vec<KeyPosition> = oldest.iter().rev().copied().collect();
        let list = KeyList { org: fixture.org, owner, newest_first: false };
        assert_eq!(state.count_of_keys(list).await.unwrap(), oldest.len() as u64);
        for limit in LIMITS {
            assert_eq!(walk(state, list, limit).await, oldest, "{limit}");
            assert_eq!(walk(state, KeyList { newest_first: true, ..list }, limit).await, newest, "{limit}");
        }
    }
    let no_user = KeyList { org: fixture.org, owner: Some(UserId::generate()), newest_first: false };
    assert_eq!(walk(state, no_user, 7).await, []);
    assert_eq!(state.count_of_keys(no_user).await.unwrap(), 0);
}

pub(super) async fn walk_over_keys_is_exact_while_others_come(state: &State) {
    let mut random = Random::new(13);
    for (limit, newest_first) in [(1, false), (7, false), (7, true), (20, true)] {
        let fixture = new_fixture(state).await;
        let time = |number: u64| Micros(1_700_000_000_000_000 + 1_000 * number);
        let (mut present, mut come) = (BTreeSet::new(), 0);
        for number in 0..30 {
            present.insert(key_created_at(state, &fixture, fixture.user, time(number)).await);
        }
        let list = KeyList { org: fixture.org, owner: None, newest_first };
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = state.page_of_keys(list, after, limit).await.unwrap();
            found.extend(page.items.iter().map(KeyPosition::from));
            after = page.next;
            if after.is_none() {
                break;
            }
            // Anywhere in the order, also where the walk has been, and at the times of other keys.
            if come < 20 {
                key_created_at(state, &fixture, fixture.user, time(random.below(35))).await;
                come += 1;
            }
            let revoked = *present.iter().nth(random.index(present.len())).unwrap();
            state.change(Change::RevokeKey { key: revoked.id, at: clock::now() }).await.unwrap();
        }
        let distinct: BTreeSet<KeyId> = found.iter().map(|position| position.id).collect();
        assert_eq!(distinct.len(), found.len(), "a key twice");
        assert!(present.iter().all(|position| found.contains(position)), "a key was skipped");
        assert!(found.is_sorted_by(|a, b| if newest_first { a > b } else { a < b }));
    }
}

pub(super) async fn page_begins_behind_a_key_that_is_not_listed(state: &State) {
    let fixture = new_fixture(state).await;
    let mut all = Vec::new();
    for number in 0..6 {
        all.push(key_created_at(state, &fixture, fixture.user, Micros(1_000 + number / 3)).await);
    }
    all.sort_unstable();
    for newest_first in [false, true] {
        let list = KeyList { org: fixture.org, owner: None, newest_first };
        for number in 0..40 {
            let id = KeyId::generate(fixture.tag).unwrap();
            let after = KeyPosition { created: Micros(999 + number % 4), id };
            let page = state.page_of_keys(list, Some(after), 100).await.unwrap();
            let found: Vec<KeyPosition> = page.items.iter().map(KeyPosition::from).collect();
            let is_behind = |position: &KeyPosition| if newest_first { *position < after } else { *position > after };
            let mut expected: Vec<KeyPosition> = all.iter().copied().filter(is_behind).collect();
            if newest_first {
                expected.reverse();
            }
            assert_eq!(found, expected, "{after:?}");
        }
    }
}

pub(super) async fn users_and_organizations_are_listed_a_page_at_a_time(state: &State) {
    let fixture = new_fixture(state).await;
    let mut users = vec![fixture.user];
    for number in 0..24 {
        users.push(fixture.user(state, &format!("user{number}@example.com")).await);
    }
    state.change(Change::RemoveUser { org: fixture.org, user: users[3], at: clock::now() }).await.unwrap();
    for limit in LIMITS {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(position) = from {
            let Page { items, next } = state.page_of_users(fixture.org, position, limit).await.unwrap();
            assert!(items.len() == limit || next.is_none(), "only the last page is short");
            found.extend(items.into_iter().map(|user| user.id));
            from = next;
        }
        assert_eq!(found, users, "{limit}");
    }
    let orgs = [created(state).await.id, created(state).await.id, created(state).await.id];
    for limit in [1, 7, 1000] {
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(position) = from {
            let Page { items, next } = state.page_of_orgs(position, limit).await.unwrap();
            found.extend(items.into_iter().map(|org| org.id).filter(|id| orgs.contains(id)));
            from = next;
        }
        assert_eq!(found, orgs, "{limit}");
    }
    assert_eq!(state.page_of_users(fixture.org, u64::MAX, 1000).await.unwrap().items, []);
}

pub(super) async fn revoked_keys_are_listed(state: &State) {
    let fixture = new_fixture(state).await;
    let key = fixture.key(state).await;
    revoke(state, &key).await;
    let list = KeyList { org: fixture.org, owner: Some(fixture.user), newest_first: false };
    let page = state.page_of_keys(list, None, 20).await.unwrap();
    assert_eq!(page.items.iter().map(|key| (key.id, key.revoked.is_some())).collect::<Vec<_>>(), [(key.id, true)]);
    assert_eq!(state.cursor_secret().await.unwrap().as_bytes(), state.cursor_secret().await.unwrap().as_bytes());
}

pub(super) async fn walk_over_sessions_is_exact_while_others_come_and_end(state: &State) {
    let fixture = new_fixture(state).await;
    let member = Membership { org: fixture.org, user: fixture.user };
    let begin = async |number: u64| {
        let (session, digest) = new_session();
        let created = session.created.before(Duration::from_secs(number));
        let email = format!("person{number}@example.com");
        let session = Session { created, email, memberships: vec![member], chosen: fixture.org, ..session };
        create(state, &session, digest).await.unwrap();
        SessionPosition::from(&session)
    };
    // Sessions of other organizations are not listed.
    cases_sessions::created(state).await;
    let mut random = Random::new(14);
    for (limit, newest_first) in [(1, false), (7, true)] {
        let (mut kept, mut ending) = (Vec::new(), Vec::new());
        for number in 0..16 {
            let list = if number % 3 == 0 { &mut ending } else { &mut kept };
            list.push(begin(10 * number).await);
        }
        let list = SessionList { org: Some(fixture.org), owner: Some(fixture.user), newest_first };
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = state.page_of_sessions(list, after, limit, clock::now()).await.unwrap();
            found.extend(page.items.iter().map(SessionPosition::from));
            after = page.next;
            if after.is_none() {
                break;
            }
            if let Some(ended) = ending.pop() {
                end(state, ended.id).await;
                begin(random.below(150)).await;
            }
        }
        let distinct: BTreeSet<SessionId> = found.iter().map(|position| position.id).collect();
        assert_eq!(distinct.len(), found.len(), "a session twice");
        assert!(kept.iter().all(|position| found.contains(position)), "a session was skipped");
        assert!(found.is_sorted_by(|a, b| if newest_first { a > b } else { a < b }));
        for position in found.into_iter().chain(kept) {
            end(state, position.id).await;
        }
    }
}
