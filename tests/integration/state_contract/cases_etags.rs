//! Entity tags: they change with every change of a record and with nothing else, and a change can depend on one.

use std::collections::HashSet;
use std::time::Duration;

use domain::clock;
use domain::identity::OrgId;
use domain::key::policy::{Field, PolicyPatch};
use domain::key::{KeyId, PlainKey};
use domain::quota::Quota;
use futures_util::future::join_all;
use state::{
    Change, ChangeError, ETag, KeyPatch, LastRotation, OrgPatch, OrgPolicy, PolicyChange, PolicyScope, State,
    UnusedKeys, User,
};

use super::TOKEN;
use super::fixture::{Fixture, HeldKey, admit, fixture_with_key, new_org, new_user, permission, record};

/// Uses of a key between two looks at its tag.
const USES: u32 = 1000;

async fn org_tag(state: &State, fixture: &Fixture) -> ETag {
    fixture.record(state).await.etag()
}

async fn user_tag(state: &State, fixture: &Fixture) -> ETag {
    state.member(fixture.org, fixture.user).await.unwrap().unwrap().1.etag()
}

async fn key_tag(state: &State, key: &HeldKey) -> ETag {
    record(state, key).await.etag()
}

/// Makes changes one after the other, each on the condition of the tag before it. All tags differ.
async fn make_all(state: &State, tag: impl AsyncFn() -> ETag, changes: Vec<Change>) {
    let mut before = tag().await;
    let mut seen = HashSet::from([before]);
    for change in changes {
        let named = format!("{change:?}");
        state.change(change.if_match(before)).await.unwrap();
        before = tag().await;
        assert!(seen.insert(before), "{named} did not change the tag");
    }
}

fn key_policy(key: KeyId, patch: PolicyPatch) -> Change {
    Change::set_key_policy(key, Box::new(patch), PolicyScope::Operator)
}

pub(super) async fn tag_changes_with_every_change_of_a_record(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (org, user) = (fixture.org, fixture.user);
    let now = clock::now();
    let policy = OrgPolicy { unused_keys: Some(UnusedKeys::Never), ..OrgPolicy::default() };
    let changes = vec![
        Change::suspend_org(org, true),
        Change::limit_org(org, Some(7)),
        Change::set_org_policy(org, policy),
        Change::UpdateOrg { org, patch: OrgPatch { concurrent: Field::Set(8), ..OrgPatch::default() } },
        Change::suspend_org(org, false),
    ];
    make_all(state, async || org_tag(state, &fixture).await, changes).await;

    let quota = Quota { requests: 7, per: Duration::from_secs(60), burst: 9, strict: false };
    let digest = PlainKey::generate(key.id).unwrap().digest();
    let changes = vec![
        Change::limit_key(key.id, Some(quota)),
        key_policy(key.id, PolicyPatch { concurrent: Field::Set(3), ..PolicyPatch::default() }),
        key_policy(key.id, PolicyPatch { expires: Field::Set(now.after(TOKEN * 1000)), ..PolicyPatch::default() }),
        Change::RotateKey { key: key.id, digest, at: now, previous_until: now.after(TOKEN), last: LastRotation::Any },
        Change::limit_key(key.id, None),
        Change::RevokeKey { key: key.id, at: now },
    ];
    make_all(state, async || key_tag(state, &key).await, changes).await;

    let changes = vec![
        Change::permit_user(org, user, vec![permission("a"), permission("b")], None),
        Change::suspend_user(org, user, Some(now), true),
        Change::WithdrawUser { org, user, at: now },
        Change::suspend_user(org, user, None, true),
        Change::permit_user(org, user, vec![permission("c")], None),
        Change::RemoveUser { org, user, at: now },
    ];
    make_all(state, async || user_tag(state, &fixture).await, changes).await;
}

pub(super) async fn tag_of_a_service_changes_with_its_responsible_person(state: &State) {
    let (fixture, _) = fixture_with_key(state).await;
    let other = fixture.user(state, "other@example.com").await;
    let service = User { responsible: Some(fixture.user), ..new_user(fixture.org, "service") };
    state.change(Change::CreateUser(service.clone())).await.unwrap();
    let (org, user) = (fixture.org, service.id);
    let tag = async || state.member(org, user).await.unwrap().unwrap().1.etag();
    assert_eq!(tag().await, service.etag(), "the created record");
    make_all(state, tag, vec![Change::reassign_user(org, user, other)]).await;
}

pub(super) async fn tag_is_unchanged_by_uses(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let quota = Quota { requests: USES, per: Duration::from_secs(1), burst: USES, strict: false };
    state.change(Change::limit_key(key.id, Some(quota))).await.unwrap();
    // The tokens of before stay: a full bucket is waited for.
    let now = clock::now().after(TOKEN * 2);
    let tags = async || (org_tag(state, &fixture).await, user_tag(state, &fixture).await, key_tag(state, &key).await);
    let before = tags().await;
    for _ in 0..USES {
        admit(state, &key, now).await;
    }
    assert_eq!(record(state, &key).await.uses, u64::from(USES));
    assert_eq!(tags().await, before);
    state.change(Change::RevokeKey { key: key.id, at: now }.if_match(before.2)).await.unwrap();
}

pub(super) async fn change_with_a_stale_tag_changes_nothing(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    let (org, user) = (fixture.org, fixture.user);
    let tags = (org_tag(state, &fixture).await, user_tag(state, &fixture).await, key_tag(state, &key).await);
    let others = vec![
        Change::limit_org(org, Some(7)),
        Change::permit_user(org, user, vec![permission("a")], None),
        Change::limit_key(key.id, None),
        key_policy(key.id, PolicyPatch { concurrent: Field::Set(3), ..PolicyPatch::default() }),
    ];
    for other in others {
        state.change(other).await.unwrap();
    }
    let everything =
        async || (fixture.record(state).await, state.users(org).await.unwrap(), state.keys(org).await.unwrap());
    let before = everything().await;
    let now = clock::now();
    let policy = PolicyChange { patch: Box::new(PolicyPatch::default()), allowed: PolicyScope::Operator };
    let patch = KeyPatch { quota: Field::Clear, policy: Some(policy), ..KeyPatch::default() };
    let digest = PlainKey::generate(key.id).unwrap().digest();
    let stale = vec![
        Change::suspend_org(org, true).if_match(tags.0),
        Change::suspend_user(org, user, Some(now), true).if_match(tags.1),
        Change::WithdrawUser { org, user, at: now }.if_match(tags.1),
        Change::RemoveUser { org, user, at: now }.if_match(tags.1),
        Change::RevokeKey { key: key.id, at: now }.if_match(tags.2),
        Change::UpdateKey { key: key.id, patch }.if_match(tags.2),
        Change::RotateKey { key: key.id, digest, at: now, previous_until: now, last: LastRotation::Any }
            .if_match(tags.2),
        // No record has the tag before it is created.
        Change::CreateOrg(new_org()).if_match(tags.0),
        Change::CreateUser(new_user(org, "new@example.com")).if_match(tags.1),
    ];
    for change in stale {
        let named = format!("{:?}", change);
        let refused = state.change(change).await.unwrap_err();
        assert!(matches!(refused, ChangeError::Stale), "{named}: {refused}");
    }
    assert_eq!(everything().await, before);
    // A record that is missing is so with any tag.
    let missing = OrgId::generate();
    let refused = state.change(Change::suspend_org(missing, true).if_match(tags.0)).await.unwrap_err();
    assert!(matches!(refused, ChangeError::NoOrg(_)), "{refused}");
}

pub(super) async fn one_of_the_writers_with_the_same_tag_wins(state: &State) {
    let (fixture, key) = fixture_with_key(state).await;
    for round in 1..=10 {
        let tags = (org_tag(state, &fixture).await, user_tag(state, &fixture).await, key_tag(state, &key).await);
        let of_org = |writer| Change::limit_org(fixture.org, Some(round * 100 + writer)).if_match(tags.0);
        let of_user = |writer| {
            let permissions = vec![permission(&format!("p{round}-{writer}"))];
            Change::permit_user(fixture.org, fixture.user, permissions, None).if_match(tags.1)
        };
        let of_key = |writer| {
            let patch = PolicyPatch { concurrent: Field::Set(round * 100 + writer), ..PolicyPatch::default() };
            key_policy(key.id, patch).if_match(tags.2)
        };
        let kinds: [&dyn Fn(u32) -> Change; 3] = [&of_org, &of_user, &of_key];
        for (kind, change) in kinds.into_iter().enumerate() {
            let results = join_all((0..8).map(|writer| state.change(change(writer)))).await;
            let is_stale = |result: &&Result<(), ChangeError>| matches!(result, Err(ChangeError::Stale));
            let won = results.iter().filter(|result| result.is_ok()).count();
            assert_eq!((won, results.iter().filter(is_stale).count()), (1, 7), "{kind}: {results:?}");
        }
    }
}
