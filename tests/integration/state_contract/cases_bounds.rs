//! Bounds of what people create: keys, rotations and sessions; and keys whose revocation is long past.

use std::time::Duration;

use domain::clock;
use domain::identity::{OrgId, PersonId, UserId, Voucher};
use domain::key::PlainKey;
use domain::management_token::{ManagementToken, TokenId};
use domain::quota::Quota;
use domain::refusal::Refusal;
use futures_util::future::join_all;
use state::{ADMIN, ActorName, Bounds, Change, ChangeError, Decision, LastRotation, Membership, Session, State};

use crate::migration::records::new_token;

use super::cases_sessions::{create, end, new_session};
use super::fixture::{
    Fixture, HeldKey, decide, fixture_with_key, new_fixture, new_key, new_user, permission, refuse, revoke,
};
use crate::support::decide::rotation;

const HOUR: Duration = Duration::from_secs(3600);
/// A bucket that binds in none of the cases that count keys.
const PLENTY: Quota = Quota { requests: 1000, per: HOUR, burst: 1000, strict: false };

/// Creates a key of the fixture's user, as that user.
async fn create_as_person(state: &State, fixture: &Fixture) -> Result<HeldKey, ChangeError> {
    let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
    let held = HeldKey { id: key.id, digest };
    by_person(state, fixture.user, Change::CreateKey { key, digest }).await.map(|()| held)
}

async fn by_person(state: &State, person: UserId, change: Change) -> Result<(), ChangeError> {
    state.change(Change::ByPerson { person, change: Box::new(change) }).await
}

pub(super) async fn keys_of_a_person_are_bounded_at_once(state: &State) {
    state.set_bounds(Bounds { key_creation: PLENTY, keys_per_user: 100, ..Bounds::DEFAULT });
    let (fixture, first) = fixture_with_key(state).await;
    revoke(state, &first).await;
    fixture.session_quota_key(state, fixture.user).await;
    let attempts = join_all((0..150).map(|_| create_as_person(state, &fixture))).await;
    assert!(attempts.iter().flat_map(Result::as_ref).count() == 100, "revoked and session quota keys do not count");
    for refused in attempts.iter().filter_map(|attempt| attempt.as_ref().err()) {
        assert!(matches!(refused, ChangeError::TooManyKeys(100)), "{refused}");
    }
    let active = state.keys(fixture.org).await.unwrap().into_iter().filter(|key| key.revoked.is_none());
    assert_eq!(active.count(), 100);
    // A revoked key makes room for one more; the operator is not bound.
    revoke(state, attempts.iter().flatten().next().unwrap()).await;
    create_as_person(state, &fixture).await.unwrap();
    assert!(create_as_person(state, &fixture).await.is_err());
    fixture.key(state).await;
}

pub(super) async fn tokens_of_an_organization_are_bounded_at_once(state: &State) {
    let fixture = new_fixture(state).await;
    let token = |org, age: Duration| {
        let created = clock::now().before(age);
        ManagementToken { org, created, expires: created.after(HOUR), ..new_token("pipeline") }
    };
    let create = async |org, age| state.change(Change::CreateToken(Box::new(token(org, age)))).await;
    for _ in 0..3 {
        create(Some(fixture.org), 2 * HOUR).await.unwrap();
    }
    let attempts = join_all((0..150).map(|_| create(Some(fixture.org), Duration::ZERO))).await;
    assert_eq!(attempts.iter().flatten().count(), 100, "expired ones do not count");
    for refused in attempts.iter().filter_map(|attempt| attempt.as_ref().err()) {
        assert!(matches!(refused, ChangeError::TooManyTokens(100)), "{refused}");
    }
    // Each that is revoked makes room for one; other organizations, and tokens of all organizations, have room.
    let of_org = state.management_tokens().await.unwrap().into_iter().filter(|token| token.org == Some(fixture.org));
    for token in of_org.filter(|token| token.expires > clock::now()).take(3) {
        state.change(Change::RevokeToken { token: token.id, at: clock::now() }).await.unwrap();
    }
    let attempts = join_all((0..10).map(|_| create(Some(fixture.org), Duration::ZERO))).await;
    assert_eq!(attempts.iter().flatten().count(), 3, "live ones count: {attempts:?}");
    let other = new_fixture(state).await;
    create(Some(other.org), Duration::ZERO).await.unwrap();
    create(None, Duration::ZERO).await.unwrap();
}

/// The tokens that a revoked token has made end with it, and those that these made; it makes none afterwards.
pub(super) async fn descendants_of_a_token_are_revoked_with_it(state: &State) {
    let root = new_token("leaked");
    state.change(Change::CreateToken(Box::new(root.clone()))).await.unwrap();
    let create = async |by: TokenId| {
        let name = ActorName::of_token(by);
        let token = ManagementToken { created_by: name.to_string(), ..new_token("backdoor") };
        let id = token.id;
        state.change(Change::CreateToken(Box::new(token)).by(name.as_str())).await.map(|()| id)
    };
    let other = new_token("other");
    state.change(Change::CreateToken(Box::new(other.clone()))).await.unwrap();
    let kept = create(other.id).await.unwrap();
    let mut chain = vec![root.id];
    for _ in 0..3 {
        chain.push(create(*chain.last().unwrap()).await.unwrap());
    }
    // Others are created at once with the revocation: they end, too, or are refused.
    let revoke = state.change(Change::RevokeToken { token: root.id, at: clock::now() });
    let creations = join_all(chain.iter().cycle().take(20).map(|by| create(*by)));
    let (revoked, made) = tokio::join!(revoke, creations);
    revoked.unwrap();
    for id in chain.iter().copied().chain(made.into_iter().flatten()) {
        let token = state.management_token(id).await.unwrap().unwrap();
        assert!(token.revoked.is_some(), "{id} goes on");
        assert!(matches!(create(id).await, Err(ChangeError::TokenEnded(_))));
    }
    for id in [other.id, kept] {
        assert!(state.management_token(id).await.unwrap().unwrap().revoked.is_none());
    }
}

pub(super) async fn creations_and_rotations_of_a_person_share_a_bucket(state: &State) {
    let quota = Quota { requests: 20, per: HOUR, burst: 5, strict: false };
    state.set_bounds(Bounds { key_creation: quota, ..Bounds::DEFAULT });
    let fixture = new_fixture(state).await;
    for _ in 0..4 {
        let key = create_as_person(state, &fixture).await.unwrap();
        revoke(state, &key).await;
    }
    let key = fixture.key(state).await;
    let rotation = || {
        let (digest, at) = (PlainKey::generate(key.id).unwrap().digest(), clock::now());
        Change::RotateKey { key: key.id, digest, at, previous_until: at.after(HOUR), last: LastRotation::Any }
    };
    by_person(state, fixture.user, rotation()).await.unwrap();
    let (refused, digest) = match rotation() {
        Change::RotateKey { key, digest, at, previous_until, last } => {
            (Change::RotateKey { key, digest, at, previous_until, last }, digest)
        }
        _ => unreachable!(),
    };
    let attempts = [by_person(state, fixture.user, refused).await, create_as_person(state, &fixture).await.map(drop)];
    for attempt in attempts {
        let Err(ChangeError::KeyCreationLimited { wait_us }) = attempt else { panic!("{attempt:?}") };
        assert!((1..=180_000_000).contains(&wait_us), "one token flows in every three minutes: {wait_us}");
    }
    assert_eq!(state.key_of(&digest).await.unwrap(), None, "a refused rotation leaves nothing behind");
    // Another person of the organization has a bucket of its own, and the operator none.
    let other = fixture.user(state, "bob@example.com").await;
    state.change(Change::permit_user(fixture.org, other, vec![permission(ADMIN)], None)).await.unwrap();
    by_person(state, other, rotation()).await.unwrap();
    state.change(rotation()).await.unwrap();
}

pub(super) async fn creations_at_once_take_each_token_once(state: &State) {
    let quota = Quota { requests: 1, per: 24 * HOUR, burst: 7, strict: false };
    state.set_bounds(Bounds { key_creation: quota, ..Bounds::DEFAULT });
    let fixture = new_fixture(state).await;
    let attempts = join_all((0..30).map(|_| create_as_person(state, &fixture))).await;
    assert_eq!(attempts.iter().flatten().count(), 7);
}

pub(super) async fn key_revoked_long_ago_is_refused_and_not_listed(state: &State) {
    state.set_bounds(Bounds { keep_revoked: 2000 * HOUR, ..Bounds::DEFAULT });
    let (fixture, old) = fixture_with_key(state).await;
    let rotated = PlainKey::generate(old.id).unwrap().digest();
    let (now, long_ago) = (clock::now(), clock::now().before(3 * HOUR));
    let rotation = rotation(old.id, rotated, long_ago);
    state.change(rotation).await.unwrap();
    let recent = fixture.key(state).await;
    revoke(state, &recent).await;
    state.change(Change::RevokeKey { key: old.id, at: long_ago }).await.unwrap();
    let listed = async || {
        let keys = state.keys(fixture.org).await.unwrap();
        keys.iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, [old.id, recent.id]);
    state.set_bounds(Bounds { keep_revoked: HOUR, ..Bounds::DEFAULT });
    let third = fixture.key(state).await;
    assert_eq!(listed().await, [recent.id, third.id]);
    for digest in [old.digest, rotated] {
        let Decision::Denied { refusal, principal: Some(principal), .. } = decide(state, &digest, now).await else {
            panic!("the audit record would not name the key")
        };
        assert_eq!((refusal, principal.key_id, principal.user_id), (Refusal::Revoked, Some(old.id), fixture.user));
        assert_eq!(state.key_of(&digest).await.unwrap(), Some(old.id));
    }
    assert_eq!(refuse(state, &recent, now).await, Refusal::Revoked);
    let record = state.key(old.id).await.unwrap().expect("its record stays, for the audit");
    assert_eq!((record.revoked, record.user), (Some(long_ago), fixture.user));
    // Revoking it again is no error, as before, and does not list it again.
    state.change(Change::RevokeKey { key: old.id, at: now }).await.unwrap();
    assert_eq!(listed().await, [recent.id, third.id]);
    let taken = new_key(fixture.tag, fixture.org, fixture.user).0;
    let again = state.change(Change::CreateKey { key: taken, digest: old.digest }).await;
    assert!(matches!(again, Err(ChangeError::Taken("digest"))), "{again:?}");
}

/// A session of the person with this `sub` at one issuer, with a membership in this organization.
fn session_of(subject: &str, org: OrgId) -> (Session, domain::session::TokenDigest) {
    let (session, digest) = new_session();
    let memberships = vec![Membership { org, user: UserId::generate() }];
    let person = PersonId::from_subject("https://login.example", subject);
    let email = "person@example.com".into();
    (Session { person, email, memberships, chosen: org, ..session }, digest)
}

pub(super) async fn sessions_of_a_person_are_bounded_at_once(state: &State) {
    state.set_bounds(Bounds { sessions_per_person: 3, ..Bounds::DEFAULT });
    let org = OrgId::generate();
    let ada = format!("ada of {org}");
    let sessions: Vec<_> = (0..12).map(|_| session_of(&ada, org)).collect();
    let attempts = join_all(sessions.iter().map(|(session, digest)| create(state, session, *digest))).await;
    assert_eq!(attempts.iter().flatten().count(), 3);
    assert!(
        attempts
            .iter()
            .flat_map(|attempt| attempt.as_ref().err())
            .all(|e| matches!(e, ChangeError::TooManySessions(3)))
    );
    let open = state.sessions_of_person(&sessions[0].0.person).await.unwrap();
    assert_eq!(open.len(), 3);
    assert!(open.is_sorted_by_key(|session| session.created));
    end(state, open[0].id).await;
    let (next, digest) = session_of(&ada, org);
    create(state, &next, digest).await.unwrap();
    // Others with the same address, by another `sub`, another issuer and a link, have bounds of their own.
    let (other, digest) = session_of(&format!("someone else of {org}"), org);
    create(state, &other, digest).await.unwrap();
    for person in [PersonId::from_subject("https://b.example", &ada), PersonId::from_user(UserId::generate())] {
        let (other, digest) = session_of(&ada, org);
        create(state, &Session { person, ..other }, digest).await.unwrap();
        assert_eq!(state.sessions_of_person(&person).await.unwrap().len(), 1);
    }
    assert_eq!(state.sessions_of_person(&next.person).await.unwrap().len(), 3);
}

pub(super) async fn sessions_are_listed_by_organization(state: &State) {
    let [ours, theirs] = [(); 2].map(|()| OrgId::generate());
    let (one, digest) = session_of(&format!("{ours}@example.com"), ours);
    create(state, &one, digest).await.unwrap();
    let (mut both, digest) = session_of(&format!("{theirs}@example.com"), ours);
    both.memberships.push(Membership { org: theirs, user: UserId::generate() });
    create(state, &both, digest).await.unwrap();
    let (ended, digest) = session_of(&format!("{theirs}@example.com"), theirs);
    create(state, &ended, digest).await.unwrap();
    end(state, ended.id).await;
    let listed = async |org, now| {
        let sessions = state.sessions_of_org(org, now).await.unwrap();
        sessions.into_iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(ours, one.created).await, [one.id, both.id]);
    assert_eq!(listed(theirs, one.created).await, [both.id]);
    assert_eq!(listed(ours, one.expires.after(HOUR)).await, []);
}

/// A user for whom a provider vouches as the person with this `sub`.
fn vouched(subject: &str) -> Voucher {
    Voucher { provider: "corp".into(), person: PersonId::from_subject("https://login.example", subject) }
}

pub(super) async fn users_are_found_by_person_in_all_organizations(state: &State) {
    let (here, there) = (new_fixture(state).await, new_fixture(state).await);
    let (ada, eve) = (vouched(&format!("ada of {}", here.org)), vouched(&format!("eve of {}", here.org)));
    let found = async |voucher: &Voucher| {
        let users = state.users_by_person(&voucher.person).await.unwrap();
        assert!(users.iter().all(|user| user.vouched_by.as_ref() == Some(voucher)));
        let mut ids: Vec<_> = users.into_iter().map(|user| user.id).collect();
        ids.sort();
        ids
    };
    assert_eq!(found(&ada).await, []);
    let mut one = new_user(here.org, "ada@example.com");
    one.vouched_by = Some(ada.clone());
    state.change(Change::CreateUser(one.clone())).await.unwrap();
    assert_eq!(state.users_by_person(&ada.person).await.unwrap(), [one.clone()]);
    // A user of the operator's becomes the provider's, and another person's after another claim.
    let permit = async |vouched_by: Option<&Voucher>| {
        let (org, user, vouched_by) = (there.org, there.user, vouched_by.cloned());
        state.change(Change::permit_user(org, user, Vec::new(), vouched_by)).await.unwrap();
    };
    let mut both = [one.id, there.user];
    both.sort();
    permit(Some(&ada)).await;
    assert_eq!(found(&ada).await, both);
    permit(None).await;
    assert_eq!(found(&ada).await, both, "the operator's change of permissions leaves who vouches");
    permit(Some(&eve)).await;
    assert_eq!((found(&ada).await, found(&eve).await), (vec![one.id], vec![there.user]));
    let at = clock::now();
    state.change(Change::RemoveUser { org: here.org, user: one.id, at }).await.unwrap();
    assert_eq!(found(&ada).await, [one.id]);
}

pub(super) async fn users_are_found_by_email_in_all_organizations(state: &State) {
    let (here, there) = (new_fixture(state).await, new_fixture(state).await);
    let email = format!("{}@example.com", here.user);
    let [one, two, removed] = [here.org, there.org, there.org].map(|org| new_user(org, &email));
    state.change(Change::CreateUser(one.clone())).await.unwrap();
    state.change(Change::CreateUser(removed.clone())).await.unwrap();
    let at = clock::now();
    state.change(Change::RemoveUser { org: there.org, user: removed.id, at }).await.unwrap();
    state.change(Change::CreateUser(two.clone())).await.unwrap();
    let mut found = state.users_by_email(&email).await.unwrap();
    found.sort_by_key(|user| user.id);
    let mut wanted = [one.id, two.id, removed.id];
    wanted.sort();
    assert_eq!(found.iter().map(|user| user.id).collect::<Vec<_>>(), wanted);
    let marked = found.iter().filter(|user| user.removed == Some(at)).map(|user| user.id);
    assert_eq!(marked.collect::<Vec<_>>(), [removed.id]);
    assert_eq!(state.users_by_email("nobody@example.com").await.unwrap(), []);
    let org = here.record(state).await;
    assert_eq!(state.org_by_name(&org.name).await.unwrap().map(|org| org.id), Some(here.org));
}
