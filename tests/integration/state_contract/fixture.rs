//! Fixtures of the cases: organizations, users and keys, and short functions for decisions and changes.
//!
//! Every organization has a name and a tag of its own, so that many cases can share one state.

use crate::support::decide::decide_request;
use domain::clock::{self, Micros};
use domain::identity::{OrgId, Permission, UserId};
use domain::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;
use state::{
    Admitted, Change, ChangeError, DecideRequest, Decision, Key, LastRotation, Org, RouteAccess, State, User,
    session_quota_digest,
};

/// An organization with one user, which may `queries:read`.
pub(super) struct Fixture {
    pub(super) org: OrgId,
    pub(super) tag: OrgTag,
    pub(super) user: UserId,
}

/// A key as a caller has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldKey {
    pub(super) id: KeyId,
    pub(super) digest: KeyDigest,
}

pub(super) fn permission(text: &str) -> Permission {
    text.parse().unwrap()
}

/// An organization to be created, with a unique name.
pub(super) fn new_org() -> Org {
    let (id, tag) = (OrgId::generate(), OrgTag::generate().unwrap());
    Org::new(id, tag, format!("org {id}"), clock::now())
}

pub(super) fn new_user(org: OrgId, email: &str) -> User {
    let permissions = vec![permission("queries:read")];
    User { permissions, ..User::new(UserId::generate(), org, email, clock::now()) }
}

pub(super) fn new_key(tag: OrgTag, org: OrgId, user: UserId) -> (Key, KeyDigest) {
    let plain = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
    let key = Key::new(plain.id(), org, user, "ci", clock::now());
    (key, plain.digest())
}

pub(super) async fn new_fixture(state: &State) -> Fixture {
    let org = created(state).await;
    let user = new_user(org.id, "ann@example.com");
    let fixture = Fixture { org: org.id, tag: org.tag, user: user.id };
    state.change(Change::CreateUser(user)).await.unwrap();
    fixture
}

/// Creates an organization. Tags are so few that a random one may be taken, in a state that many cases share.
pub(super) async fn created(state: &State) -> Org {
    loop {
        let org = new_org();
        match state.change(Change::CreateOrg(org.clone())).await {
            Err(ChangeError::Taken("tag")) => {}
            made => return made.map(|()| org).unwrap(),
        }
    }
}

impl Fixture {
    pub(super) async fn key(&self, state: &State) -> HeldKey {
        self.key_of(state, self.user).await
    }

    pub(super) async fn key_of(&self, state: &State, user: UserId) -> HeldKey {
        loop {
            let (key, digest) = new_key(self.tag, self.org, user);
            let id = key.id;
            match state.change(Change::CreateKey { key, digest }).await {
                // The id is taken: by chance, or by a try of this change whose reply was lost.
                Err(ChangeError::Taken("id")) => {}
                made => return made.map(|()| HeldKey { id, digest }).unwrap(),
            }
        }
    }

    /// Creates the session quota key of a user.
    pub(super) async fn session_quota_key(&self, state: &State, user: UserId) -> HeldKey {
        let (key, _) = new_key(self.tag, self.org, user);
        let (id, digest) = (key.id, session_quota_digest(user));
        state.change(Change::CreateKey { key: Key { session_quota_key: true, ..key }, digest }).await.unwrap();
        HeldKey { id, digest }
    }

    pub(super) async fn user(&self, state: &State, email: &str) -> UserId {
        let user = new_user(self.org, email);
        let id = user.id;
        state.change(Change::CreateUser(user)).await.unwrap();
        id
    }

    /// The organization as management sees it.
    pub(super) async fn record(&self, state: &State) -> Org {
        let orgs = state.orgs().await.unwrap();
        orgs.into_iter().find(|org| org.id == self.org).unwrap()
    }

    pub(super) async fn suspend(&self, state: &State, suspended: bool) {
        state.change(Change::suspend_org(self.org, suspended)).await.unwrap();
    }
}

/// Creates a fixture with one key.
pub(super) async fn fixture_with_key(state: &State) -> (Fixture, HeldKey) {
    let fixture = new_fixture(state).await;
    let key = fixture.key(state).await;
    (fixture, key)
}

pub(super) async fn decide(state: &State, digest: &KeyDigest, now: Micros) -> Decision {
    state.decide(decide_request(digest, now)).await.unwrap()
}

pub(super) async fn require(state: &State, digest: &KeyDigest, required: &str, now: Micros) -> Decision {
    state
        .decide(DecideRequest { access: RouteAccess::Permission(&permission(required)), ..decide_request(digest, now) })
        .await
        .unwrap()
}

pub(super) async fn admit(state: &State, key: &HeldKey, now: Micros) -> Admitted {
    admitted(decide(state, &key.digest, now).await)
}

pub(super) async fn refuse(state: &State, key: &HeldKey, now: Micros) -> Refusal {
    refused(&decide(state, &key.digest, now).await)
}

pub(super) fn admitted(decision: Decision) -> Admitted {
    match decision {
        Decision::Admitted(admitted) => admitted,
        Decision::Denied { refusal, .. } => panic!("refused: {refusal:?}"),
    }
}

pub(super) fn refused(decision: &Decision) -> Refusal {
    match decision {
        Decision::Denied { refusal, .. } => *refusal,
        Decision::Admitted(_) => panic!("admitted"),
    }
}

/// Takes all tokens of a bucket, keeping no slot.
pub(super) async fn drain(state: &State, key: &HeldKey, now: Micros) {
    while matches!(decide(state, &key.digest, now).await, Decision::Admitted(_)) {}
}

pub(super) async fn revoke(state: &State, key: &HeldKey) {
    state.change(Change::RevokeKey { key: key.id, at: clock::now() }).await.unwrap();
}

pub(super) async fn rotate(state: &State, key: &HeldKey, at: Micros, previous_until: Micros) -> HeldKey {
    let digest = PlainKey::generate(key.id).unwrap().digest();
    state.change(Change::RotateKey { key: key.id, digest, at, previous_until, last: LastRotation::Any }).await.unwrap();
    HeldKey { id: key.id, digest }
}

/// All values that a decision can change.
pub(super) async fn everything(state: &State, key: &HeldKey, now: Micros) -> (RateLimitStatus, Key) {
    (rate_limit_status(state, key, now).await, record(state, key).await)
}

pub(super) async fn rate_limit_status(state: &State, key: &HeldKey, now: Micros) -> RateLimitStatus {
    state.rate_limit_status(key.id, now).await.unwrap().unwrap()
}

/// The key as management sees it.
pub(super) async fn record(state: &State, key: &HeldKey) -> Key {
    state.key(key.id).await.unwrap().unwrap()
}
