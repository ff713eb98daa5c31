//! Idempotency keys: the change of a request is made once, and its record is there exactly as long as it says.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::key::{KeyDigest, PlainKey};
use domain::management_token::{PlainToken, TokenId};
use futures_util::future::join_all;
use state::{Change, ChangeError, IdempotencyPlace, IdempotencyRecord, IdempotentRequest, Key, Org, State, User};

use super::fixture::{Fixture, fixture_with_key, new_fixture, new_key, new_org, new_user, permission, record};
use crate::support::decide::rotation;
use crate::support::eventually;

const HOUR: Duration = Duration::from_secs(3600);
/// Equal requests at the same time.
pub(super) const TASKS: u32 = 64;

pub(super) fn new_token() -> TokenId {
    PlainToken::generate().unwrap().id()
}

/// A request with a fresh idempotency key.
pub(super) fn request(caller: TokenId, resource: impl ToString) -> IdempotentRequest {
    let now = clock::now();
    IdempotentRequest {
        id: *PlainToken::generate().unwrap().digest().as_bytes(),
        caller: caller.to_string(),
        body: [7; 32],
        status: 201,
        resource: resource.to_string(),
        now,
        expires: now.after(24 * HOUR),
        max_live: IdempotentRequest::MAX_LIVE,
    }
}

/// The record of a request whose change is not made again.
#[track_caller]
pub(super) fn repeated(result: Result<(), ChangeError>) -> IdempotencyRecord {
    match result {
        Err(ChangeError::Repeated(record)) => record,
        other => panic!("not repeated: {other:?}"),
    }
}

/// The resource of equal requests at the same time, one of which made its change.
#[track_caller]
pub(super) fn only_resource(results: Vec<(String, Result<(), ChangeError>)>) -> String {
    let (made, others): (Vec<_>, Vec<_>) = results.into_iter().partition(|(_, result)| result.is_ok());
    assert_eq!(made.len(), 1, "{others:?}");
    let (resource, _) = made.into_iter().next().unwrap();
    for (_, result) in others {
        assert_eq!(repeated(result).resource, resource);
    }
    resource
}

async fn find(state: &State, place: IdempotencyPlace, request: &IdempotentRequest) -> Option<IdempotencyRecord> {
    state.idempotency_record(place, &request.id, clock::now()).await.unwrap()
}

fn place(fixture: &Fixture) -> IdempotencyPlace {
    IdempotencyPlace::Org(fixture.tag)
}

pub(super) async fn equal_requests_make_one_key(state: &State) {
    // Several times: whether the requests overlap is up to the machine.
    for _ in 0..4 {
        one_key_for_equal_requests(state).await;
    }
}

async fn one_key_for_equal_requests(state: &State) {
    let fixture = new_fixture(state).await;
    let equal = request(new_token(), "");
    let results = join_all((0..TASKS).map(async |_| {
        let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
        let resource = key.id.to_string();
        let once =
            Change::CreateKey { key, digest }.once(IdempotentRequest { resource: resource.clone(), ..equal.clone() });
        (resource, state.change(once).await)
    }));
    let resource = only_resource(results.await);
    let keys = state.keys(fixture.org).await.unwrap();
    let ids: Vec<String> = keys.iter().map(|key| key.id.to_string()).collect();
    assert_eq!(ids, std::slice::from_ref(&resource));
    let found = find(state, place(&fixture), &equal).await.unwrap();
    assert_eq!((found.body, found.status, found.resource), (equal.body, 201, resource));

    // Another body is for the caller to refuse: the record has the first one.
    let other = IdempotentRequest { body: [8; 32], status: 200, ..equal.clone() };
    let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let of_first = repeated(state.change(Change::CreateKey { key, digest }.once(other)).await);
    assert_eq!((of_first.body, of_first.status), (equal.body, 201));
    assert_eq!(state.keys(fixture.org).await.unwrap().len(), 1);
}

pub(super) async fn equal_requests_with_a_digest_make_one_key(state: &State) {
    let fixture = new_fixture(state).await;
    for _ in 0..10 {
        let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
        let equal = request(new_token(), key.id);
        let results = join_all((0..8).map(async |task| {
            // Some begin at the same time, some do not: the claims of the digest are equal, or not.
            let created = Micros(key.created.0 + task % 2);
            let once = Change::CreateKey { key: Key { created, ..key.clone() }, digest }.once(equal.clone());
            (key.id.to_string(), state.change(once).await)
        }));
        only_resource(results.await);
        // Its digest is still claimed: no other key gets it.
        let other = new_key(fixture.tag, fixture.org, fixture.user).0;
        let taken = state.change(Change::CreateKey { key: other, digest }).await.unwrap_err();
        assert!(matches!(taken, ChangeError::Taken("digest")), "{taken}");
        assert_eq!(state.key_of(&digest).await.unwrap(), Some(key.id));
    }
}

pub(super) async fn equal_requests_make_one_organization_and_one_user(state: &State) {
    let (token, name) = (new_token(), new_org().name);
    let equal = request(token, "");
    let results = join_all((0..TASKS).map(async |_| {
        let org = Org { name: name.clone(), ..new_org() };
        let resource = org.id.to_string();
        let once = Change::CreateOrg(org).once(IdempotentRequest { resource: resource.clone(), ..equal.clone() });
        (resource, state.change(once).await)
    }));
    let resource = only_resource(results.await);
    let orgs = state.orgs().await.unwrap();
    assert_eq!(orgs.iter().filter(|org| org.name == name).count(), 1);
    let org = state.org_by_name(&name).await.unwrap().unwrap();
    assert_eq!(org.id.to_string(), resource);
    assert_eq!(find(state, IdempotencyPlace::Installation, &equal).await.unwrap().resource, resource);

    let equal = request(token, "");
    let results = join_all((0..TASKS).map(async |_| {
        let user = new_user(org.id, "ada@example.com");
        let resource = user.id.to_string();
        let once = Change::CreateUser(user).once(IdempotentRequest { resource: resource.clone(), ..equal.clone() });
        (resource, state.change(once).await)
    }));
    let resource = only_resource(results.await);
    let users: Vec<User> = state.users(org.id).await.unwrap();
    assert_eq!(users.iter().map(|user| user.id.to_string()).collect::<Vec<_>>(), [resource]);
}

pub(super) async fn every_kind_of_change_is_made_once(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (org, user, token, now) = (fixture.org, fixture.user, new_token(), clock::now());
    let digest = PlainKey::generate(key.id).unwrap().digest();
    let changes = [
        Change::limit_org(org, Some(7)),
        Change::permit_user(org, user, vec![permission("a")], None),
        Change::limit_key(key.id, None),
        rotation(key.id, digest, now).by("unix:a(1)"),
        Change::RevokeKey { key: key.id, at: now }.by("unix:a(1)"),
        Change::WithdrawUser { org, user, at: now },
        Change::RemoveUser { org, user, at: now },
    ];
    for change in changes {
        let named = format!("{change:?}");
        let request = request(token, &named);
        state.change(change.clone().once(request.clone())).await.unwrap();
        assert_eq!(repeated(state.change(change.once(request)).await).resource, named);
    }
    assert_eq!(record(state, &key).await.revoked, Some(now));
    // A repeated request finds its record whatever the entity tag is by then.
    let tag = fixture.record(state).await.etag();
    let twice = Change::limit_org(org, Some(8)).once(request(token, "org")).if_match(tag);
    state.change(twice.clone()).await.unwrap();
    repeated(state.change(twice).await);
}

pub(super) async fn failed_change_leaves_no_record(state: &State) {
    let fixture = new_fixture(state).await;
    let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let stranger = Key { user: domain::identity::UserId::generate(), ..key.clone() };
    let once = IdempotentRequest { max_live: 1, ..request(new_token(), key.id) };
    for _ in 0..3 {
        let failed = state.change(Change::CreateKey { key: stranger.clone(), digest }.once(once.clone())).await;
        assert!(matches!(failed, Err(ChangeError::NoUser(_))), "{failed:?}");
        assert_eq!(find(state, place(&fixture), &once).await, None);
    }
    let stale = Change::limit_org(fixture.org, Some(7)).once(once.clone()).if_match(key.etag());
    assert!(matches!(state.change(stale).await, Err(ChangeError::Stale)));
    // It does not count either.
    state.change(Change::CreateKey { key, digest }.once(once)).await.unwrap();
}

pub(super) async fn record_expires(state: &State) {
    let fixture = new_fixture(state).await;
    let now = clock::now();
    let expires = now.after(Duration::from_millis(1500));
    let once = IdempotentRequest { now, expires, max_live: 1, ..request(new_token(), "key") };
    let create = |once: &IdempotentRequest| {
        let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
        Change::CreateKey { key, digest }.once(once.clone())
    };
    state.change(create(&once)).await.unwrap();
    repeated(state.change(create(&once)).await);
    eventually("the record expires", || super::runtime::block_on(find(state, place(&fixture), &once)).is_none());
    assert!(clock::now() >= Micros(expires.0 - 1000), "it expired too early");
    // A little later than the record, which expires by whole milliseconds.
    std::thread::sleep(Duration::from_millis(5));
    let later = IdempotentRequest { now: clock::now(), expires: clock::now().after(HOUR), ..once };
    state.change(create(&later)).await.unwrap();
    assert_eq!(state.keys(fixture.org).await.unwrap().len(), 2);
}

pub(super) async fn live_records_of_a_token_are_bounded(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let elsewhere = new_fixture(state).await;
    let token = new_token();
    let once = |number: u32| IdempotentRequest { max_live: 5, ..request(token, number) };
    // In several organizations at the same time.
    let results = join_all((0..30).map(async |number| {
        let org = [fixture.org, elsewhere.org][number as usize % 2];
        let user = new_user(org, &format!("{number}@example.com"));
        state.change(Change::CreateUser(user).once(once(number))).await
    }))
    .await;
    let is_refused = |result: &&Result<(), ChangeError>| matches!(result, Err(ChangeError::TooManyIdempotencyKeys(5)));
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 5, "{results:?}");
    assert_eq!(results.iter().filter(is_refused).count(), 25, "{results:?}");
    // Another token has its own bound, and what has no key has none.
    let other = IdempotentRequest { caller: new_token().to_string(), ..once(0) };
    state.change(Change::CreateUser(new_user(fixture.org, "other@example.com")).once(other)).await.unwrap();
    // A withdrawal is made without a record.
    let beyond = once(31);
    state.change(Change::RevokeKey { key: key.id, at: clock::now() }.once(beyond.clone())).await.unwrap();
    assert!(record(state, &key).await.revoked.is_some());
    assert!(find(state, place(&fixture), &beyond).await.is_none());
}

pub(super) async fn rotations_at_once_for_one_request_rotate_once(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let equal = request(new_token(), key.id);
    let digests: Vec<KeyDigest> = (0..16).map(|_| PlainKey::generate(key.id).unwrap().digest()).collect();
    let results = join_all(digests.iter().map(async |digest| {
        let at = clock::now();
        let rotate = rotation(key.id, *digest, at);
        (key.id.to_string(), state.change(rotate.once(equal.clone())).await)
    }))
    .await;
    only_resource(results);
    assert!(find(state, place(&fixture), &equal).await.is_some());
    let owners = join_all(digests.iter().map(|digest| state.key_of(digest))).await;
    let owned = owners.into_iter().filter(|owner| owner.as_ref().unwrap().is_some()).count();
    assert_eq!(owned, 1, "the digests of the others are claimed");
}
