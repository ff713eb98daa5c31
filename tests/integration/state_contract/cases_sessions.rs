//! Web sessions: found while they are live, and not afterwards.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::identity::{OrgId, PersonId, SessionId, UserId};
use domain::session::{Token, TokenDigest};
use state::{Change, ChangeError, Membership, Session, State};

/// Times for which the sessions of the cases may go unused, and for which they last.
const IDLE: Duration = Duration::from_secs(1800);
const LIFE: Duration = Duration::from_secs(8 * 3600);

/// A new session of a user of two organizations.
pub(super) fn new_session() -> (Session, TokenDigest) {
    let memberships = [(); 2].map(|()| Membership { org: OrgId::generate(), user: UserId::generate() });
    let (id, created) = (SessionId::generate(), clock::now());
    let session = Session {
        id,
        // Cases that share a state do not share a person, whose sessions are bounded.
        person: PersonId::from_subject("https://login.example", &id.to_string()),
        email: format!("{id}@example.com"),
        memberships: memberships.to_vec(),
        chosen: memberships[0].org,
        provider: Some("corporate".into()),
        id_token: Some("header.payload.signature".into()),
        created,
        expires: created.after(LIFE),
        idle: IDLE,
        seen: created,
        ip: Some([2001, 0xdb8, 0, 0, 0, 0, 0, 7].into()),
        user_agent: Some("Bröwser \"1\"\\ \u{1}\u{1F511}".into()),
    };
    (session, Token::generate().unwrap().digest())
}

pub(super) async fn created(state: &State) -> (Session, TokenDigest) {
    let (session, digest) = new_session();
    create(state, &session, digest).await.unwrap();
    (session, digest)
}

pub(super) async fn create(state: &State, session: &Session, digest: TokenDigest) -> Result<(), ChangeError> {
    state.change(Change::CreateSession { session: Box::new(session.clone()), digest }).await
}

pub(super) async fn find(state: &State, digest: &TokenDigest, now: Micros) -> Option<Session> {
    state.session(digest, now).await.unwrap()
}

pub(super) async fn end(state: &State, session: SessionId) {
    state.change(Change::EndSession { session }).await.unwrap();
}

/// Which of these are listed, in the order of the list.
async fn listed(state: &State, of: &[SessionId], now: Micros) -> Vec<SessionId> {
    let sessions = state.sessions(now).await.unwrap();
    sessions.into_iter().map(|session| session.id).filter(|id| of.contains(id)).collect()
}

pub(super) async fn session_is_found_as_it_was_created(state: &State) {
    let (session, digest) = created(state).await;
    assert_eq!(find(state, &digest, session.created).await, Some(session.clone()));
    assert_eq!(find(state, &Token::generate().unwrap().digest(), session.created).await, None);
    let all = state.sessions(session.created).await.unwrap();
    assert_eq!(all.into_iter().find(|other| other.id == session.id), Some(session));
}

pub(super) async fn session_in_use_ends_at_its_expiry(state: &State) {
    let (session, digest) = created(state).await;
    let mut now = session.created;
    while now < session.expires.before(IDLE) {
        now = now.after(IDLE - Duration::from_secs(60));
        assert!(find(state, &digest, now).await.is_some(), "{now} of {}", session.expires);
    }
    assert!(find(state, &digest, Micros(session.expires.0 - 1)).await.is_some());
    assert_eq!(find(state, &digest, session.expires).await, None);
    assert_eq!(listed(state, &[session.id], session.expires).await, []);
}

pub(super) async fn unused_session_ends(state: &State) {
    let (session, digest) = created(state).await;
    let last = Micros(session.created.after(IDLE).0 - 1);
    assert_eq!(find(state, &digest, last).await.unwrap().seen, last);
    assert!(find(state, &digest, last.after(IDLE / 2)).await.is_some(), "it was used");
    let over = last.after(IDLE / 2).after(IDLE);
    assert_eq!(listed(state, &[session.id], Micros(over.0 - 1)).await, [session.id], "being listed is no use");
    assert_eq!(listed(state, &[session.id], over).await, []);
    assert_eq!(find(state, &digest, over).await, None);
}

/// However short: what is written about once a minute must not end a session that is in use.
pub(super) async fn session_in_use_outlasts_a_short_idle_time(state: &State) {
    let (session, digest) = new_session();
    let session = Session { idle: Duration::from_secs(20), ..session };
    create(state, &session, digest).await.unwrap();
    for seconds in (0..200).step_by(10) {
        let now = session.created.after(Duration::from_secs(seconds));
        assert!(find(state, &digest, now).await.is_some(), "after {seconds} s");
    }
}

pub(super) async fn ended_session_is_not_found(state: &State) {
    let ((session, digest), (other, others)) = (created(state).await, created(state).await);
    end(state, session.id).await;
    assert_eq!(find(state, &digest, session.created).await, None);
    assert_eq!(listed(state, &[session.id, other.id], other.created).await, [other.id]);
    let choice = Change::ChooseOrg { session: session.id, org: session.memberships[1].org };
    assert!(matches!(state.change(choice).await, Err(ChangeError::NoSession(id)) if id == session.id));
    end(state, session.id).await;
    end(state, SessionId::generate()).await;
    assert!(find(state, &others, other.created).await.is_some());
}

pub(super) async fn session_acts_in_one_of_the_organizations_of_its_person(state: &State) {
    let (session, digest) = created(state).await;
    let (now, [first, second]) = (session.created, [session.memberships[0], session.memberships[1]]);
    assert_eq!(find(state, &digest, now).await.unwrap().user(), Some(first.user));
    let choose = async |org| state.change(Change::ChooseOrg { session: session.id, org }).await;
    choose(second.org).await.unwrap();
    choose(second.org).await.unwrap();
    assert_eq!(find(state, &digest, now).await.unwrap().user(), Some(second.user));
    assert_eq!(state.sessions(now).await.unwrap().iter().find(|s| s.id == session.id).unwrap().chosen, second.org);
    let elsewhere = OrgId::generate();
    assert!(matches!(choose(elsewhere).await, Err(ChangeError::NoOrg(org)) if org == elsewhere));
    assert_eq!(find(state, &digest, now).await.unwrap().chosen, second.org);
    choose(first.org).await.unwrap();
    let (stranger, token) = new_session();
    let stranger = Session { chosen: elsewhere, ..stranger };
    let created = create(state, &stranger, token).await;
    assert!(matches!(created, Err(ChangeError::NoOrg(org)) if org == elsewhere));
    assert_eq!(find(state, &token, now).await, None);
}

pub(super) async fn membership_of_a_session_ends_in_one_organization(state: &State) {
    let (session, digest) = created(state).await;
    let (now, [first, second]) = (session.created, [session.memberships[0], session.memberships[1]]);
    let end_in = async |org| state.change(Change::EndMembership { session: session.id, org }).await.unwrap();
    let of_org = async |org| state.sessions_of_org(org, now).await.unwrap().len();
    end_in(OrgId::generate()).await;
    assert_eq!(find(state, &digest, now).await, Some(session.clone()));
    // The organization that the session acts in: it goes on in the other one.
    for _ in 0..2 {
        end_in(first.org).await;
        let left = find(state, &digest, now).await.unwrap();
        assert_eq!((left.user(), &left.memberships), (Some(second.user), &vec![second]));
        assert_eq!(state.session_by_id(session.id, now).await.unwrap().map(|left| left.chosen), Some(second.org));
    }
    assert_eq!((of_org(first.org).await, of_org(second.org).await), (0, 1));
    assert_eq!(state.sessions_of_person(&session.person).await.unwrap().len(), 1);
    let back = state.change(Change::ChooseOrg { session: session.id, org: first.org }).await;
    assert!(matches!(back, Err(ChangeError::NoOrg(org)) if org == first.org), "{back:?}");
    // The last one ends it.
    end_in(second.org).await;
    assert_eq!(find(state, &digest, now).await, None);
    assert_eq!(listed(state, &[session.id], now).await, []);
    assert_eq!((of_org(second.org).await, state.sessions_of_person(&session.person).await.unwrap()), (0, vec![]));
    end_in(second.org).await;
    // Of one in which it does not act at the moment.
    let (session, digest) = created(state).await;
    state.change(Change::EndMembership { session: session.id, org: session.memberships[1].org }).await.unwrap();
    let left = find(state, &digest, now).await.unwrap();
    assert_eq!((left.chosen, left.memberships), (session.chosen, vec![session.memberships[0]]));
}

pub(super) async fn session_digest_and_id_are_unique(state: &State) {
    let (session, digest) = created(state).await;
    let (other, another) = new_session();
    let twice = create(state, &session, digest).await;
    assert!(matches!(twice, Err(ChangeError::Taken("digest"))), "{twice:?}");
    let same_digest = create(state, &other, digest).await;
    assert!(matches!(same_digest, Err(ChangeError::Taken("digest"))), "{same_digest:?}");
    let same_id = create(state, &Session { id: session.id, ..other.clone() }, another).await;
    assert!(matches!(same_id, Err(ChangeError::Taken("id"))), "{same_id:?}");
    assert_eq!(find(state, &digest, session.created).await, Some(session.clone()));
    assert_eq!(find(state, &another, other.created).await, None);
    assert_eq!(listed(state, &[session.id, other.id], other.created).await, [session.id]);
    end(state, session.id).await;
    assert_eq!(find(state, &digest, session.created).await, None);
}

pub(super) async fn sessions_are_listed_oldest_first(state: &State) {
    let mut ids = Vec::new();
    for older in [20, 30, 10] {
        let (session, digest) = new_session();
        let session = Session { created: session.created.before(Duration::from_secs(older)), ..session };
        create(state, &session, digest).await.unwrap();
        ids.push(session.id);
    }
    assert_eq!(listed(state, &ids, clock::now()).await, [ids[1], ids[0], ids[2]]);
}
