//! The contract of the shared state, as cases that every variant of [`State`] passes, and below them what the embedded
//! state promises of its file.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use keygate::clock::{self, Micros};
use keygate::identity::{OrgId, Permission, UserId};
use keygate::key::{KeyDigest, KeyId, OrgTag, PlainKey};
use keygate::quota::{Quota, Standing};
use keygate::state::embedded::{OpenError, Replay, Settings};
use keygate::state::{Admitted, Ask, Change, ChangeError, Decision, Embedded, Key, Org, Refusal, State, User};

/// The configured quota of all cases: a token each second, five at once.
const QUOTA: Quota = Quota { requests: 10, per: Duration::from_secs(10), burst: 5 };
/// The configured concurrency of all cases.
const CONCURRENT: u32 = 3;
/// How long a test waits for what happens within a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two tokens.
const TOKEN: Duration = Duration::from_secs(1);

macro_rules! contract {
    ($variant:ident, $open:expr, [$($case:ident),* $(,)?]) => {
        mod $variant {
            $(
                #[test]
                fn $case() {
                    let (state, _kept) = $open;
                    super::block_on(super::$case(&state));
                    assert_eq!(state.in_flight(), 0, "a slot was kept");
                }
            )*
        }
    };
}

contract!(
    embedded,
    super::embedded_state(),
    [
        an_unknown_key_is_refused_without_a_principal,
        an_admission_says_who_and_where_they_stand,
        each_use_has_the_next_number,
        a_refusal_takes_nothing,
        refusals_come_in_their_order,
        a_bucket_gives_its_burst_and_then_its_rate,
        slots_are_limited_per_organization_and_come_back,
        a_refusal_for_slots_costs_no_token,
        a_revocation_holds_at_once_and_for_good,
        a_rotation_replaces_the_secret_and_nothing_else,
        an_overlap_keeps_one_secret_for_its_time,
        permissions_follow_the_user,
        a_removed_user_takes_its_keys_along,
        a_suspension_holds_until_resumed,
        limits_of_an_organization_hold_at_once,
        another_quota_keeps_the_tokens,
        what_is_unique_is_taken_once,
        changes_to_what_does_not_exist_are_refused,
        a_change_that_fails_does_not_undo_its_neighbours,
        records_are_listed_in_the_order_of_creation,
        no_decision_begun_after_a_change_misses_it,
        threads_share_a_bucket_exactly,
        threads_never_exceed_the_slots,
        a_storm_of_rate_limited_requests_holds_no_slot,
    ]
);

// Setting up.

/// An organization with one user, which may `queries:read`.
struct Tenancy {
    org: OrgId,
    tag: OrgTag,
    user: UserId,
}

/// A key as its holder has it.
#[derive(Clone, Copy)]
struct Held {
    id: KeyId,
    digest: KeyDigest,
}

/// Waits for a future on this thread. The state needs no runtime, and this may be called within a case.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn settings(path: impl Into<PathBuf>) -> Settings {
    Settings { path: path.into(), quota: QUOTA, concurrent: CONCURRENT }
}

fn embedded_state() -> (State, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (State::Embedded(Embedded::open(&settings(dir.path().join("state.db"))).unwrap()), dir)
}

fn permission(text: &str) -> Permission {
    text.parse().unwrap()
}

fn new_org(name: &str) -> Org {
    let tag = OrgTag::generate().unwrap();
    Org { id: OrgId::generate(), tag, name: name.into(), created: clock::now(), suspended: false, concurrent: None }
}

fn new_user(org: OrgId, email: &str) -> User {
    let permissions = vec![permission("queries:read")];
    User { id: UserId::generate(), org, email: email.into(), permissions, created: clock::now(), removed: None }
}

fn new_key(tag: OrgTag, org: OrgId, user: UserId) -> (Key, KeyDigest) {
    let plain = PlainKey::generate(KeyId::generate(tag).unwrap()).unwrap();
    let key = Key {
        id: plain.id(),
        org,
        user,
        name: "ci".into(),
        imported: false,
        created: clock::now(),
        rotated: None,
        previous_until: None,
        revoked: None,
        quota: None,
        last_used: None,
        uses: 0,
    };
    (key, plain.digest())
}

async fn tenancy(state: &State) -> Tenancy {
    let org = new_org(&format!("org {}", OrgId::generate()));
    let user = new_user(org.id, "ann@example.com");
    let tenancy = Tenancy { org: org.id, tag: org.tag, user: user.id };
    state.change(Change::CreateOrg(org)).await.unwrap();
    state.change(Change::CreateUser(user)).await.unwrap();
    tenancy
}

impl Tenancy {
    async fn key(&self, state: &State) -> Held {
        self.key_of(state, self.user).await
    }

    async fn key_of(&self, state: &State, user: UserId) -> Held {
        let (key, digest) = new_key(self.tag, self.org, user);
        let id = key.id;
        state.change(Change::CreateKey { key, digest }).await.unwrap();
        Held { id, digest }
    }

    async fn user(&self, state: &State, email: &str) -> UserId {
        let user = new_user(self.org, email);
        let id = user.id;
        state.change(Change::CreateUser(user)).await.unwrap();
        id
    }

    async fn suspend(&self, state: &State, suspended: bool) {
        state.change(Change::SuspendOrg { org: self.org, suspended }).await.unwrap();
    }
}

/// A tenancy with one key.
async fn tenant(state: &State) -> (Tenancy, Held) {
    let tenancy = tenancy(state).await;
    let key = tenancy.key(state).await;
    (tenancy, key)
}

async fn decide(state: &State, digest: &KeyDigest, now: Micros) -> Decision {
    state.decide(Ask { digest, id: None, required: None, now }).await.unwrap()
}

async fn require(state: &State, digest: &KeyDigest, required: &str, now: Micros) -> Decision {
    state.decide(Ask { digest, id: None, required: Some(&permission(required)), now }).await.unwrap()
}

async fn admit(state: &State, key: &Held, now: Micros) -> Admitted {
    admitted(decide(state, &key.digest, now).await)
}

async fn refuse(state: &State, key: &Held, now: Micros) -> Refusal {
    refused(&decide(state, &key.digest, now).await)
}

fn admitted(decision: Decision) -> Admitted {
    match decision {
        Decision::Admitted(admitted) => admitted,
        Decision::Refused { refusal, .. } => panic!("refused: {refusal:?}"),
    }
}

fn refused(decision: &Decision) -> Refusal {
    match decision {
        Decision::Refused { refusal, .. } => *refusal,
        Decision::Admitted(_) => panic!("admitted"),
    }
}

/// Takes all tokens of a bucket, keeping no slot.
async fn drain(state: &State, key: &Held, now: Micros) {
    while matches!(decide(state, &key.digest, now).await, Decision::Admitted(_)) {}
}

async fn revoke(state: &State, key: &Held) {
    state.change(Change::RevokeKey { key: key.id, at: clock::now() }).await.unwrap();
}

async fn rotate(state: &State, key: &Held, at: Micros, previous_until: Micros) -> Held {
    let digest = PlainKey::generate(key.id).unwrap().digest();
    state.change(Change::RotateKey { key: key.id, digest, at, previous_until }).await.unwrap();
    Held { id: key.id, digest }
}

/// Everything that a decision could take.
async fn everything(state: &State, key: &Held, now: Micros) -> (Standing, Key) {
    (state.standing(key.id, now).await.unwrap().unwrap(), state.key(key.id).await.unwrap().unwrap())
}

// The contract.

async fn an_unknown_key_is_refused_without_a_principal(state: &State) {
    tenant(state).await;
    let decision = decide(state, &KeyDigest::of(b"never seen"), clock::now()).await;
    let Decision::Refused { refusal, principal, standing } = decision else { panic!("admitted") };
    assert_eq!((refusal, principal.is_none(), standing), (Refusal::Unknown, true, None));
}

async fn an_admission_says_who_and_where_they_stand(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let now = clock::now();
    let admitted = admitted(require(state, &key.digest, "queries:read", now).await);
    let principal = &admitted.principal;
    assert_eq!((principal.key_id, principal.user_id), (Some(key.id), tenancy.user));
    assert_eq!(principal.org_id, tenancy.org);
    assert_eq!(principal.headers.key_id.as_ref().unwrap(), key.id.as_str());
    assert_eq!(principal.headers.user_id, tenancy.user.to_string());
    assert_eq!(principal.headers.org_id, tenancy.org.to_string());
    assert_eq!(principal.headers.permissions, "queries:read");
    let expected = Standing {
        quota: QUOTA,
        remaining: 4,
        full_in_us: 1_000_000,
        token_in_us: 0,
        concurrent: CONCURRENT,
        in_flight: 1,
    };
    assert_eq!(admitted.standing, expected);
    assert_eq!(state.in_flight(), 1);
    assert_eq!(state.key(key.id).await.unwrap().unwrap().last_used, Some(now));
}

async fn each_use_has_the_next_number(state: &State) {
    let (_, key) = tenant(state).await;
    let now = clock::now();
    for number in 1..=5 {
        assert_eq!(admit(state, &key, now).await.number, number);
    }
    assert_eq!(refuse(state, &key, now).await, Refusal::RateLimited);
    assert_eq!(admit(state, &key, now.after(TOKEN)).await.number, 6);
    assert_eq!(state.key(key.id).await.unwrap().unwrap().uses, 6);
}

async fn a_refusal_takes_nothing(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let now = clock::now();
    let before = everything(state, &key, now).await;
    assert_eq!(refused(&require(state, &key.digest, "queries:write", now).await), Refusal::Forbidden);
    assert_eq!(everything(state, &key, now).await, before);
    tenancy.suspend(state, true).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::OrgSuspended);
    tenancy.suspend(state, false).await;
    assert_eq!(everything(state, &key, now).await, before);

    let held = [admit(state, &key, now).await, admit(state, &key, now).await, admit(state, &key, now).await];
    let full = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    assert_eq!(everything(state, &key, now).await, full);
    drop(held);

    drain(state, &key, now).await;
    let empty = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::RateLimited);
    assert_eq!(everything(state, &key, now).await, empty);
    revoke(state, &key).await;
    let revoked = everything(state, &key, now).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::Revoked);
    assert_eq!(everything(state, &key, now).await, revoked);
}

/// Brings about one refusal after the other, from the last to the first, each while the later ones hold too.
async fn refusals_come_in_their_order(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let other = tenancy.key(state).await;
    let now = clock::now();
    let ask = async |old: &Held| {
        let decision = require(state, &old.digest, "queries:write", now).await;
        let Decision::Refused { refusal, principal, standing } = decision else { panic!("admitted") };
        assert_eq!(principal.unwrap().key_id, Some(key.id));
        assert_eq!(standing.is_some(), matches!(refusal, Refusal::OrgSuspended | Refusal::Forbidden));
        refusal
    };
    drain(state, &key, now).await;
    let held = [admit(state, &other, now).await, admit(state, &other, now).await, admit(state, &other, now).await];
    let rate_limited = decide(state, &key.digest, now).await;
    assert_eq!(refused(&rate_limited), Refusal::RateLimited);
    assert!(matches!(rate_limited, Decision::Refused { principal: Some(_), standing: Some(_), .. }));
    assert_eq!(ask(&key).await, Refusal::Forbidden);
    tenancy.suspend(state, true).await;
    assert_eq!(ask(&key).await, Refusal::OrgSuspended);
    state.change(Change::RemoveUser { org: tenancy.org, user: tenancy.user, at: now }).await.unwrap();
    assert_eq!(ask(&key).await, Refusal::UserRemoved);
    rotate(state, &key, now, now).await;
    assert_eq!(ask(&key).await, Refusal::Expired);
    revoke(state, &key).await;
    assert_eq!(ask(&key).await, Refusal::Revoked);
    drop(held);
}

async fn a_bucket_gives_its_burst_and_then_its_rate(state: &State) {
    let (_, key) = tenant(state).await;
    let start = clock::now();
    for left in (0..QUOTA.burst).rev() {
        assert_eq!(admit(state, &key, start).await.standing.remaining, left);
    }
    let decision = decide(state, &key.digest, start).await;
    let Decision::Refused { refusal: Refusal::RateLimited, standing: Some(standing), .. } = decision else { panic!() };
    assert_eq!((standing.remaining, standing.token_in_us, standing.full_in_us), (0, 1_000_000, 5_000_000));
    for early in [1, 500_000, 999_999] {
        assert_eq!(refuse(state, &key, start.after(Duration::from_micros(early))).await, Refusal::RateLimited);
    }
    admit(state, &key, start.after(TOKEN)).await;
    assert_eq!(refuse(state, &key, start.after(TOKEN)).await, Refusal::RateLimited);
    let rested = start.after(Duration::from_secs(24 * 3600));
    assert_eq!(admit(state, &key, rested).await.standing.remaining, QUOTA.burst - 1);
}

async fn slots_are_limited_per_organization_and_come_back(state: &State) {
    let (tenancy, first) = tenant(state).await;
    let second = tenancy.key(state).await;
    let (_, foreign) = tenant(state).await;
    let now = clock::now();
    let one = admit(state, &first, now).await;
    let two = admit(state, &first, now).await;
    let three = admit(state, &second, now).await;
    assert_eq!([&one, &two, &three].map(|admitted| admitted.standing.in_flight), [1, 2, 3]);
    for key in [&first, &second] {
        let decision = decide(state, &key.digest, now).await;
        assert_eq!(refused(&decision), Refusal::TooManyInFlight);
        let Decision::Refused { standing: Some(standing), .. } = decision else { panic!("no standing") };
        assert_eq!((standing.concurrent, standing.in_flight), (CONCURRENT, 3));
    }
    assert_eq!(admit(state, &foreign, now).await.standing.in_flight, 1);
    drop(two.permit);
    assert_eq!(admit(state, &second, now).await.standing.in_flight, 3);
    assert_eq!(state.in_flight(), 2);
}

async fn a_refusal_for_slots_costs_no_token(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let other = tenancy.key(state).await;
    let now = clock::now();
    let held = [admit(state, &other, now).await, admit(state, &other, now).await, admit(state, &other, now).await];
    for _ in 0..100 {
        assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    }
    drop(held);
    assert_eq!(admit(state, &key, now).await.standing.remaining, QUOTA.burst - 1);
}

async fn a_revocation_holds_at_once_and_for_good(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let other = tenancy.key(state).await;
    let at = clock::now();
    state.change(Change::RevokeKey { key: key.id, at }).await.unwrap();
    assert_eq!(refuse(state, &key, at.before(TOKEN)).await, Refusal::Revoked);
    state.change(Change::RevokeKey { key: key.id, at: at.after(TOKEN) }).await.unwrap();
    assert_eq!(state.key(key.id).await.unwrap().unwrap().revoked, Some(at));
    admit(state, &other, at).await;
    let digest = KeyDigest::of(b"new");
    let rotation = Change::RotateKey { key: key.id, digest, at, previous_until: at };
    assert!(matches!(state.change(rotation).await, Err(ChangeError::Revoked(id)) if id == key.id));
    assert_eq!(refused(&decide(state, &digest, at).await), Refusal::Unknown);
}

async fn a_rotation_replaces_the_secret_and_nothing_else(state: &State) {
    let (_, key) = tenant(state).await;
    let now = clock::now();
    admit(state, &key, now).await;
    let new = rotate(state, &key, now, now).await;
    // Whatever time the decision comes with: an empty overlap is empty.
    for now in [now.before(TOKEN), now, now.after(TOKEN)] {
        assert_eq!(refuse(state, &key, now).await, Refusal::Expired);
    }
    let admitted = admit(state, &new, now).await;
    assert_eq!((admitted.principal.key_id, admitted.number, admitted.standing.remaining), (Some(key.id), 2, 3));
    assert_eq!(state.key(key.id).await.unwrap().unwrap().rotated, Some(now));
}

async fn an_overlap_keeps_one_secret_for_its_time(state: &State) {
    let (_, first) = tenant(state).await;
    let now = clock::now();
    let until = now.after(10 * TOKEN);
    let second = rotate(state, &first, now, until).await;
    admit(state, &first, now).await;
    admit(state, &second, now).await;
    admit(state, &first, Micros(until.0 - 1)).await;
    assert_eq!(refuse(state, &first, until).await, Refusal::Expired);
    assert_eq!(state.key(first.id).await.unwrap().unwrap().previous_until, Some(until));
    let third = rotate(state, &second, now, until).await;
    assert_eq!(refuse(state, &first, now).await, Refusal::Expired);
    admit(state, &second, Micros(until.0 - 1)).await;
    admit(state, &third, until).await;
}

async fn permissions_follow_the_user(state: &State) {
    let (Tenancy { org, user, .. }, key) = tenant(state).await;
    let now = clock::now();
    let both = vec![permission("queries:read"), permission("queries:write")];
    assert_eq!(refused(&require(state, &key.digest, "queries:write", now).await), Refusal::Forbidden);
    state.change(Change::PermitUser { org, user, permissions: both.clone() }).await.unwrap();
    let principal = admitted(require(state, &key.digest, "queries:write", now).await).principal;
    assert_eq!(principal.headers.permissions, "queries:read,queries:write");
    assert_eq!(state.users(org).await.unwrap()[0].permissions, both);
    state.change(Change::PermitUser { org, user, permissions: Vec::new() }).await.unwrap();
    assert_eq!(refused(&require(state, &key.digest, "queries:read", now).await), Refusal::Forbidden);
    assert_eq!(admit(state, &key, now).await.principal.headers.permissions, "");
}

async fn a_removed_user_takes_its_keys_along(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let Tenancy { org, user, tag } = tenancy;
    let stranger = tenancy.user(state, "bob@example.com").await;
    let kept = tenancy.key_of(state, stranger).await;
    let at = clock::now();
    state.change(Change::RemoveUser { org, user, at }).await.unwrap();
    assert_eq!(refuse(state, &key, at).await, Refusal::UserRemoved);
    admit(state, &kept, at).await;
    assert_eq!(state.users(org).await.unwrap()[0].removed, Some(at));
    let (orphan, digest) = new_key(tag, org, user);
    for change in [
        Change::RemoveUser { org, user, at },
        Change::PermitUser { org, user, permissions: Vec::new() },
        Change::CreateKey { key: orphan, digest },
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoUser(id)) if id == user));
    }
    state.change(Change::CreateUser(new_user(org, "ann@example.com"))).await.unwrap();
    assert_eq!(refuse(state, &key, at).await, Refusal::UserRemoved);
}

async fn a_suspension_holds_until_resumed(state: &State) {
    let (tenancy, key) = tenant(state).await;
    let (_, foreign) = tenant(state).await;
    let now = clock::now();
    tenancy.suspend(state, true).await;
    assert_eq!(refuse(state, &key, now).await, Refusal::OrgSuspended);
    assert!(state.orgs().await.unwrap()[0].suspended);
    admit(state, &foreign, now).await;
    tenancy.suspend(state, false).await;
    admit(state, &key, now).await;
}

async fn limits_of_an_organization_hold_at_once(state: &State) {
    let (Tenancy { org, .. }, key) = tenant(state).await;
    let now = clock::now();
    state.change(Change::LimitOrg { org, concurrent: Some(1) }).await.unwrap();
    let held = admit(state, &key, now).await;
    assert_eq!(held.standing.concurrent, 1);
    assert_eq!(refuse(state, &key, now).await, Refusal::TooManyInFlight);
    assert_eq!(state.orgs().await.unwrap()[0].concurrent, Some(1));
    state.change(Change::LimitOrg { org, concurrent: None }).await.unwrap();
    assert_eq!(admit(state, &key, now).await.standing.concurrent, CONCURRENT);
}

async fn another_quota_keeps_the_tokens(state: &State) {
    let (_, key) = tenant(state).await;
    let limit = async |quota| state.change(Change::LimitKey { key: key.id, quota }).await.unwrap();
    admit(state, &key, clock::now()).await;
    // So slow that what flows in during the test is no token.
    let larger = Quota { requests: 1, per: Duration::from_secs(360_000), burst: 100 };
    limit(Some(larger)).await;
    let standing = state.standing(key.id, clock::now()).await.unwrap().unwrap();
    assert_eq!((standing.quota, standing.remaining), (larger, 4));
    limit(Some(Quota { burst: 2, ..larger })).await;
    assert_eq!(state.standing(key.id, clock::now()).await.unwrap().unwrap().remaining, 2);
    assert_eq!(state.key(key.id).await.unwrap().unwrap().quota, Some(Quota { burst: 2, ..larger }));
    limit(None).await;
    let standing = state.standing(key.id, clock::now()).await.unwrap().unwrap();
    assert_eq!((standing.quota, standing.remaining), (QUOTA, 2));
}

async fn what_is_unique_is_taken_once(state: &State) {
    let (tenancy, held) = tenant(state).await;
    let org = state.orgs().await.unwrap().remove(0);
    let user = state.users(org.id).await.unwrap().remove(0);
    let (key, digest) = new_key(tenancy.tag, tenancy.org, tenancy.user);
    let old = held.digest;
    let replaced = rotate(state, &held, clock::now(), clock::now()).await;
    let cases = [
        ("name", Change::CreateOrg(Org { name: org.name.clone(), ..new_org("") })),
        ("tag", Change::CreateOrg(Org { tag: org.tag, ..new_org("a") })),
        ("id", Change::CreateOrg(Org { id: org.id, ..new_org("b") })),
        ("email", Change::CreateUser(new_user(org.id, &user.email))),
        ("id", Change::CreateUser(User { id: user.id, ..new_user(org.id, "c") })),
        ("id", Change::CreateKey { key: Key { id: held.id, ..key.clone() }, digest }),
        ("digest", Change::CreateKey { key: key.clone(), digest: replaced.digest }),
        ("digest", Change::CreateKey { key: key.clone(), digest: old }),
        ("digest", Change::RotateKey { key: held.id, digest: old, at: Micros(1), previous_until: Micros(1) }),
        (
            "digest",
            Change::RotateKey { key: held.id, digest: replaced.digest, at: Micros(1), previous_until: Micros(1) },
        ),
    ];
    for (what, change) in cases {
        let result = state.change(change.clone()).await;
        assert!(matches!(result, Err(ChangeError::Taken(taken)) if taken == what), "{what} {change:?}: {result:?}");
    }
    assert_eq!(
        (
            state.orgs().await.unwrap().len(),
            state.users(org.id).await.unwrap().len(),
            state.keys(org.id).await.unwrap().len()
        ),
        (1, 1, 1)
    );
    assert_eq!(refused(&decide(state, &digest, clock::now()).await), Refusal::Unknown);
    let elsewhere = crate::state_contract::tenancy(state).await;
    state.change(Change::CreateUser(new_user(elsewhere.org, "c"))).await.unwrap();
    state.change(Change::CreateUser(new_user(tenancy.org, "c"))).await.unwrap();
}

async fn changes_to_what_does_not_exist_are_refused(state: &State) {
    let (Tenancy { org, user, tag }, held) = tenant(state).await;
    let elsewhere = tenancy(state).await;
    let (at, nobody, nowhere) = (clock::now(), UserId::generate(), OrgId::generate());
    let nothing = KeyId::generate(tag).unwrap();
    let (key, digest) = new_key(tag, org, user);
    for change in [
        Change::SuspendOrg { org: nowhere, suspended: true },
        Change::LimitOrg { org: nowhere, concurrent: None },
        Change::CreateUser(new_user(nowhere, "x")),
        Change::PermitUser { org: nowhere, user, permissions: Vec::new() },
        Change::CreateKey { key: Key { org: nowhere, ..key.clone() }, digest },
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoOrg(id)) if id == nowhere));
    }
    for (user, change) in [
        (nobody, Change::RemoveUser { org, user: nobody, at }),
        (user, Change::RemoveUser { org: elsewhere.org, user, at }),
        (user, Change::PermitUser { org: elsewhere.org, user, permissions: Vec::new() }),
        (user, Change::CreateKey { key: Key { org: elsewhere.org, ..key.clone() }, digest }),
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoUser(id)) if id == user));
    }
    for change in [
        Change::RevokeKey { key: nothing, at },
        Change::RotateKey { key: nothing, digest, at, previous_until: at },
        Change::LimitKey { key: nothing, quota: None },
    ] {
        assert!(matches!(state.change(change).await, Err(ChangeError::NoKey(id)) if id == nothing));
    }
    admit(state, &held, at).await;
    assert!(state.key(nothing).await.unwrap().is_none() && state.standing(nothing, at).await.unwrap().is_none());
    assert!(state.users(nowhere).await.unwrap().is_empty() && state.keys(nowhere).await.unwrap().is_empty());
}

async fn a_change_that_fails_does_not_undo_its_neighbours(state: &State) {
    let (first, second) = (new_org("first"), new_org("second"));
    let duplicate = Org { name: "first".into(), ..new_org("") };
    // Handed over before any of them can be answered, so that they are committed together.
    let (one, refused, two) = tokio::join!(
        state.change(Change::CreateOrg(first)),
        state.change(Change::CreateOrg(duplicate)),
        state.change(Change::CreateOrg(second)),
    );
    assert!(one.is_ok() && two.is_ok());
    assert!(matches!(refused, Err(ChangeError::Taken("name"))));
    let names: Vec<String> = state.orgs().await.unwrap().into_iter().map(|org| org.name).collect();
    assert_eq!(names, ["first", "second"]);
}

async fn records_are_listed_in_the_order_of_creation(state: &State) {
    let mut orgs = Vec::new();
    for _ in 0..3 {
        let tenancy = tenancy(state).await;
        let users = [tenancy.user, tenancy.user(state, "z").await, tenancy.user(state, "a").await];
        let keys = [tenancy.key(state).await.id, tenancy.key(state).await.id, tenancy.key(state).await.id];
        assert_eq!(state.users(tenancy.org).await.unwrap().iter().map(|user| user.id).collect::<Vec<_>>(), users);
        assert_eq!(state.keys(tenancy.org).await.unwrap().iter().map(|key| key.id).collect::<Vec<_>>(), keys);
        orgs.push(tenancy.org);
    }
    assert_eq!(state.orgs().await.unwrap().iter().map(|org| org.id).collect::<Vec<_>>(), orgs);
}

/// One key that is refused from some moment on, and what its holders know of that.
struct Doomed {
    key: Held,
    change: Change,
    expected: Refusal,
    /// Set when the change has returned.
    returned: AtomicBool,
}

async fn doomed(state: &State, tenancy: &Tenancy, number: usize) -> Doomed {
    let user = tenancy.user(state, &format!("{number}@example.com")).await;
    let key = tenancy.key_of(state, user).await;
    let (org, at) = (tenancy.org, clock::now());
    let (change, expected) = match number % 4 {
        0 => (Change::RevokeKey { key: key.id, at }, Refusal::Revoked),
        1 => (Change::RemoveUser { org, user, at }, Refusal::UserRemoved),
        2 => (Change::PermitUser { org, user, permissions: Vec::new() }, Refusal::Forbidden),
        _ => {
            let digest = PlainKey::generate(key.id).unwrap().digest();
            (Change::RotateKey { key: key.id, digest, at, previous_until: at }, Refusal::Expired)
        }
    };
    Doomed { key, change, expected, returned: AtomicBool::new(false) }
}

async fn no_decision_begun_after_a_change_misses_it(state: &State) {
    let tenancy = tenancy(state).await;
    let unlimited = Change::LimitOrg { org: tenancy.org, concurrent: Some(1_000_000) };
    state.change(unlimited).await.unwrap();
    let mut all = Vec::new();
    for number in 0..400 {
        all.push(doomed(state, &tenancy, number).await);
    }
    let (next, checked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let read = permission("queries:read");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| block_on(watch(state, &all, &next, &read, &checked)));
        }
        for doomed in &all {
            block_on(state.change(doomed.change.clone())).unwrap();
            let before = checked.load(Ordering::SeqCst);
            doomed.returned.store(true, Ordering::SeqCst);
            // At least one decision that began after the change is looked at before the next change is made.
            let patience = Instant::now() + PATIENCE;
            while checked.load(Ordering::SeqCst) == before {
                assert!(Instant::now() < patience, "nobody looked at the change");
                std::thread::yield_now();
            }
            next.fetch_add(1, Ordering::SeqCst);
        }
    });
}

/// Uses the key that is changed next, over and over, until all are changed.
async fn watch(state: &State, all: &[Doomed], next: &AtomicUsize, read: &Permission, checked: &AtomicUsize) {
    while let Some(doomed) = all.get(next.load(Ordering::SeqCst)) {
        let patience = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < patience, "the change never returned");
            let returned = doomed.returned.load(Ordering::SeqCst);
            let ask = Ask { digest: &doomed.key.digest, id: None, required: Some(read), now: clock::now() };
            let decision = state.decide(ask).await.unwrap();
            if returned {
                assert_eq!(refused(&decision), doomed.expected);
                checked.fetch_add(1, Ordering::SeqCst);
                break;
            }
        }
    }
}

async fn threads_share_a_bucket_exactly(state: &State) {
    let (tenancy, key) = tenant(state).await;
    state.change(Change::LimitOrg { org: tenancy.org, concurrent: Some(1000) }).await.unwrap();
    let quota = Quota { requests: 1, per: Duration::from_secs(3600), burst: 20_000 };
    state.change(Change::LimitKey { key: key.id, quota: Some(quota) }).await.unwrap();
    // The tokens stay, so the first ones must be waited for.
    let now = clock::now().after(quota.per * quota.burst);
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let take = || {
            let mut numbers = Vec::new();
            while let Decision::Admitted(admitted) = block_on(decide(state, &key.digest, now)) {
                numbers.push(admitted.number);
            }
            numbers
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(numbers.len(), 20_000);
    assert_eq!(numbers.into_iter().collect::<HashSet<_>>(), (1..=20_000).collect());
}

async fn threads_never_exceed_the_slots(state: &State) {
    let (tenancy, _) = tenant(state).await;
    let plenty = Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000 };
    let mut keys = Vec::new();
    for _ in 0..4 {
        let key = tenancy.key(state).await;
        state.change(Change::LimitKey { key: key.id, quota: Some(plenty) }).await.unwrap();
        keys.push(key);
    }
    let held = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for key in &keys {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let Decision::Admitted(admitted) = block_on(decide(state, &key.digest, clock::now())) else {
                        continue;
                    };
                    assert!(held.fetch_add(1, Ordering::SeqCst) < CONCURRENT);
                    assert!((1..=CONCURRENT).contains(&admitted.standing.in_flight));
                    std::thread::yield_now();
                    held.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
}

async fn a_storm_of_rate_limited_requests_holds_no_slot(state: &State) {
    let (tenancy, storming) = tenant(state).await;
    let polite = tenancy.key(state).await;
    state.change(Change::LimitOrg { org: tenancy.org, concurrent: Some(1) }).await.unwrap();
    let plenty = Quota { requests: 1_000_000_000, per: Duration::from_secs(1), burst: 1_000_000_000 };
    state.change(Change::LimitKey { key: polite.id, quota: Some(plenty) }).await.unwrap();
    let now = clock::now();
    drain(state, &storming, now).await;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                assert_eq!(block_on(refuse(state, &storming, now)), Refusal::RateLimited);
            }
        });
        for _ in 0..20_000 {
            let decision = block_on(decide(state, &polite.digest, clock::now().after(TOKEN)));
            if let Decision::Refused { refusal, .. } = decision {
                over.store(true, Ordering::SeqCst);
                panic!("{refusal:?} because of a request that was refused");
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}

// What the embedded state promises of its file.

/// Opens the state of a directory.
fn open(dir: &Path) -> State {
    State::Embedded(Embedded::open(&settings(dir.join("state.db"))).unwrap())
}

fn as_embedded(state: &State) -> &Embedded {
    let State::Embedded(embedded) = state;
    embedded
}

/// What a crash at this moment would leave, in a directory of its own.
fn crashed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["state.db", "state.db-wal"] {
        std::fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn everything_listed(state: &State) -> (Vec<Org>, Vec<User>, Vec<Key>) {
    let state = as_embedded(state);
    let orgs = state.orgs();
    let users = orgs.iter().flat_map(|org| state.users(org.id)).collect();
    let keys = orgs.iter().flat_map(|org| state.keys(org.id)).collect();
    (orgs, users, keys)
}

/// A directory with something of everything, used a little.
async fn furnish(state: &State, now: Micros) -> (Held, Held) {
    let (tenancy, key) = tenant(state).await;
    let (elsewhere, limited) = tenant(state).await;
    let quota = Quota { requests: 7, per: Duration::from_secs(60), burst: 9 };
    let gone = tenancy.user(state, "gone").await;
    let revoked = tenancy.key_of(state, gone).await;
    for change in [
        Change::LimitKey { key: limited.id, quota: Some(quota) },
        Change::LimitOrg { org: elsewhere.org, concurrent: Some(7) },
        Change::SuspendOrg { org: elsewhere.org, suspended: true },
        Change::RevokeKey { key: revoked.id, at: now },
        Change::RevokeKey { key: revoked.id, at: now.after(TOKEN) },
        Change::RemoveUser { org: tenancy.org, user: gone, at: now },
        Change::PermitUser {
            org: tenancy.org,
            user: tenancy.user,
            permissions: vec![permission("a"), permission("b")],
        },
    ] {
        state.change(change).await.unwrap();
    }
    let rotated = rotate(state, &key, now, now.after(TOKEN)).await;
    admit(state, &rotated, now).await;
    admit(state, &key, now).await;
    (key, rotated)
}

fn restart_keeps_everything(end: impl FnOnce(State)) {
    let dir = tempfile::tempdir().unwrap();
    let now = clock::now();
    let state = open(dir.path());
    let (old, key) = block_on(furnish(&state, now));
    let before = (everything_listed(&state), as_embedded(&state).standing(key.id, now));
    end(state);
    let state = open(dir.path());
    assert_eq!((everything_listed(&state), as_embedded(&state).standing(key.id, now)), before);
    assert!(as_embedded(&state).written_back_at() > Micros(0));
    block_on(async {
        assert_eq!(admit(&state, &old, now).await.number, 3);
        assert_eq!(refuse(&state, &old, now.after(TOKEN)).await, Refusal::Expired);
        assert_eq!(admit(&state, &key, now.after(TOKEN)).await.principal.headers.permissions, "a,b");
    });
}

#[test]
fn a_restart_after_close_keeps_everything() {
    restart_keeps_everything(|state| block_on(state.close()));
}

#[test]
fn a_restart_after_drop_keeps_everything() {
    restart_keeps_everything(drop);
}

#[test]
fn a_change_that_returned_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let (tenancy, key) = block_on(tenant(&state));
    let listed = everything_listed(&state);
    let left = crashed(dir.path());
    assert_eq!(everything_listed(&open(left.path())), listed);
    block_on(revoke(&state, &key));
    let left = crashed(dir.path());
    assert_eq!(block_on(refuse(&open(left.path()), &key, clock::now())), Refusal::Revoked);
    block_on(tenancy.suspend(&state, true));
    assert!(as_embedded(&open(crashed(dir.path()).path())).orgs()[0].suspended);
}

#[test]
fn uses_are_written_back_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let (_, key) = block_on(tenant(&state));
    let now = clock::now();
    block_on(admit(&state, &key, now));
    let written = || as_embedded(&open(crashed(dir.path()).path())).key(key.id).unwrap().uses == 1;
    let patience = Instant::now() + PATIENCE;
    while !written() {
        assert!(Instant::now() < patience, "never written back");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn changes_after_close_are_refused_and_decisions_go_on() {
    let (state, _dir) = embedded_state();
    block_on(async {
        let (tenancy, key) = tenant(&state).await;
        state.close().await;
        state.close().await;
        let change = Change::SuspendOrg { org: tenancy.org, suspended: true };
        assert!(matches!(state.change(change).await, Err(ChangeError::Closed)));
        admit(&state, &key, clock::now()).await;
    });
}

/// Uses a key at these times, and opens what a crash before all of them leaves.
fn used_and_crashed(dir: &Path, pauses: &[u64]) -> (State, State, KeyId, Vec<Replay>, tempfile::TempDir) {
    let state = open(dir);
    let (_, held) = block_on(tenant(&state));
    let left = crashed(dir);
    let mut now = clock::now();
    let mut uses = Vec::new();
    for pause in pauses {
        now = now.after(Duration::from_micros(*pause));
        if let Decision::Admitted(admitted) = block_on(decide(&state, &held.digest, now)) {
            uses.push(Replay { key: held.id, time: now, number: admitted.number });
        }
    }
    let restarted = open(left.path());
    (state, restarted, held.id, uses, left)
}

#[test]
fn a_replay_of_every_use_restores_what_was() {
    let dir = tempfile::tempdir().unwrap();
    let (state, restarted, key, mut uses, _left) = used_and_crashed(dir.path(), &[0, 10, 500_000, 2_000_000, 7, 1]);
    let stranger = Replay { key: "zzzzzzzzz".parse().unwrap(), ..uses[0] };
    let count = uses.len() as u64;
    uses.reverse();
    uses.push(stranger);
    uses.push(uses[0]);
    assert_eq!(as_embedded(&restarted).replay(&uses), count);
    let last = as_embedded(&state).key(key).unwrap().last_used.unwrap();
    assert_eq!(as_embedded(&restarted).standing(key, last), as_embedded(&state).standing(key, last));
    assert_eq!(as_embedded(&restarted).key(key), as_embedded(&state).key(key));
    assert_eq!(as_embedded(&restarted).replay(&uses), 0, "replayed twice");
    assert_eq!(as_embedded(&restarted).standing(key, last), as_embedded(&state).standing(key, last));
    let next = as_embedded(&restarted).standing(key, last).unwrap().remaining;
    drop(restarted);
    assert_eq!(
        as_embedded(&open(_left.path())).standing(key, last).unwrap().remaining,
        next,
        "the replay was not written back"
    );
}

#[test]
fn a_replay_charges_nothing_that_was_written_back() {
    let dir = tempfile::tempdir().unwrap();
    let (state, _, key, uses, _left) = used_and_crashed(dir.path(), &[0, 10, 500_000]);
    let last = uses[2].time;
    let before = as_embedded(&state).standing(key, last);
    drop(state);
    let state = open(dir.path());
    assert_eq!(as_embedded(&state).replay(&uses), 0);
    assert_eq!(as_embedded(&state).standing(key, last), before);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, failure_persistence: None, ..Default::default() })]

    /// Whatever part of the uses the journal kept.
    #[test]
    fn a_replay_never_leaves_a_bucket_fuller_than_it_was(
        pauses in proptest::collection::vec(0..2_000_000_u64, 1..40),
        kept in proptest::collection::vec(proptest::bool::ANY, 40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (state, restarted, key, uses, _left) = used_and_crashed(dir.path(), &pauses);
        let last = uses.last().copied().unwrap();
        let mut known: Vec<Replay> = uses.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(used, _)| used).collect();
        known.push(last);
        as_embedded(&restarted).replay(&known);
        let (was, is) = (as_embedded(&state).standing(key, last.time).unwrap(), as_embedded(&restarted).standing(key, last.time).unwrap());
        proptest::prop_assert!(is.full_in_us >= was.full_in_us, "{is:?} {was:?}");
        proptest::prop_assert!(is.token_in_us >= was.token_in_us, "{is:?} {was:?}");
    }
}

#[test]
fn another_configured_quota_keeps_the_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let now = clock::now();
    let state = open(dir.path());
    let (_, key) = block_on(tenant(&state));
    block_on(admit(&state, &key, now));
    drop(state);
    let quota = Quota { requests: 1000, per: Duration::from_secs(3600), burst: 1000 };
    let settings = Settings { quota, ..settings(dir.path().join("state.db")) };
    let state = Embedded::open(&settings).unwrap();
    assert_eq!(state.standing(key.id, now).unwrap().remaining, 4);
}

#[test]
fn only_one_process_has_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let again = || Embedded::open(&settings(dir.path().join("state.db")));
    assert!(matches!(again(), Err(OpenError::Locked(path)) if path == dir.path().join("state.db")));
    block_on(state.close());
    assert!(matches!(again(), Err(OpenError::Locked(_))));
    drop(state);
    again().unwrap();
}

#[test]
fn a_file_of_a_newer_version_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let path = dir.path().join("state.db");
    let version = |set: Option<i64>| {
        let file = rusqlite::Connection::open(&path).unwrap();
        set.inspect(|version| file.pragma_update(None, "user_version", version).unwrap());
        file.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
    };
    version(Some(99));
    let error = Embedded::open(&settings(&path)).unwrap_err();
    assert!(matches!(error, OpenError::Newer { found: 99, known: 1, .. }), "{error:?}");
    assert_eq!(version(None), 99);
}

#[test]
fn what_is_not_a_state_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    std::fs::write(&path, "certainly not a database ".repeat(1000)).unwrap();
    assert!(matches!(Embedded::open(&settings(&path)), Err(OpenError::Sqlite { .. })));
    assert!(matches!(Embedded::open(&settings(path.join("below"))), Err(OpenError::Io { .. })));
}

#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/er/state.db");
    let state = State::Embedded(Embedded::open(&settings(&path)).unwrap());
    block_on(tenant(&state));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", ".lock"] {
        let mut path = path.clone().into_os_string();
        path.push(suffix);
        assert_eq!(mode(path.as_ref()), 0o600, "{suffix}");
    }
}

#[test]
fn what_cannot_be_written_is_not_changed_and_nothing_used_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let (tenancy, key) = block_on(tenant(&state));
    let intruder = rusqlite::Connection::open(dir.path().join("state.db")).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let suspend = Change::SuspendOrg { org: tenancy.org, suspended: true };
    assert!(matches!(block_on(state.change(suspend.clone())), Err(ChangeError::Unavailable(_))));
    block_on(admit(&state, &key, clock::now()));
    // At least one write-back fails.
    std::thread::sleep(Duration::from_millis(1500));
    intruder.execute_batch("ROLLBACK").unwrap();
    block_on(state.change(suspend)).unwrap();
    drop(state);
    let state = open(dir.path());
    assert_eq!(as_embedded(&state).key(key.id).unwrap().uses, 1);
    assert_eq!(block_on(refuse(&state, &key, clock::now())), Refusal::OrgSuspended);
}
