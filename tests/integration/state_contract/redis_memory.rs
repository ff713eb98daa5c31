//! A server whose memory is full (`maxmemory` with `noeviction`): what withdraws something is accepted all the same.

use domain::clock;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::redis::{Clock, Servers, Settings};
use state::{Change, ChangeError, Redis as RedisState, RevocationEntry, State};

use super::cases_idempotency::{new_token, request};
use super::cases_sessions;
use super::fixture::{Fixture, HeldKey, fixture_with_key, new_key, record, refuse};
use super::redis::{at, settings};
use super::runtime::{block_on, enter};
use crate::support::redis::Redis;
use crate::support::until;

fn open(server: &Redis) -> State {
    let settings = Settings { clock: Clock::Server, ..settings(Servers::Single(at(server))) };
    State::Redis(block_on(RedisState::open(settings)).unwrap())
}

fn fill(server: &Redis) {
    server.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
}

fn make_room(server: &Redis) {
    server.cli::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
}

fn revoke(key: &HeldKey) -> Change {
    Change::RevokeKey { key: key.id, at: clock::now() }
}

#[test]
fn withdrawals_are_accepted_while_memory_is_full() {
    let _entered = enter();
    let server = Redis::start();
    let state = open(&server);
    block_on(async {
        let keys: Vec<(Fixture, HeldKey)> = [
            fixture_with_key(&state).await,
            fixture_with_key(&state).await,
            fixture_with_key(&state).await,
            fixture_with_key(&state).await,
        ]
        .into();
        let [revoked, removed, suspended, limited] = &keys[..] else { unreachable!("four") };
        let session = cases_sessions::created(&state).await.0.id;
        let tag = record(&state, &revoked.1).await.etag();
        fill(&server);
        let (org, user, at) = (removed.0.org, removed.0.user, clock::now());
        let quota = Some(Quota { requests: 1, per: std::time::Duration::from_secs(60), burst: 1, strict: false });
        for change in [
            revoke(&revoked.1).if_match(tag),
            Change::RemoveUser { org, user, at },
            Change::suspend_org(suspended.0.org, true),
            Change::permit_user(limited.0.org, limited.0.user, Vec::new(), None),
            Change::limit_org(limited.0.org, Some(1)),
            Change::limit_key(limited.1.id, quota),
            Change::EndSession { session },
        ] {
            let text = format!("{change:?}");
            state.change(change).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        let (key, digest) = new_key(limited.0.tag, limited.0.org, limited.0.user);
        let created = state.change(Change::CreateKey { key, digest }).await;
        assert!(matches!(created, Err(ChangeError::Unavailable(_))), "{created:?}");
        // The record of a request needs memory, also that of one that withdraws something.
        let recorded = state.change(revoke(&limited.1).once(request(new_token(), limited.1.id))).await;
        assert!(matches!(recorded, Err(ChangeError::Unavailable(_))), "{recorded:?}");
        assert!(!state.is_connected(), "requests are refused meanwhile");
        make_room(&server);
        until("the state is connected again", || state.is_connected().then_some(()));
        let now = clock::now();
        assert_eq!(refuse(&state, &revoked.1, now).await, Refusal::Revoked);
        assert_eq!(refuse(&state, &removed.1, now).await, Refusal::UserRemoved);
        assert_eq!(refuse(&state, &suspended.1, now).await, Refusal::OrgSuspended);
        let (org, user) = state.member(limited.0.org, limited.0.user).await.unwrap().unwrap();
        assert!(user.permissions.is_empty() && org.concurrent == Some(1));
        assert!(state.session_by_id(session, now).await.unwrap().is_none());
    });
}

/// Another gateway, which begins when the memory is full, learns of the revocation.
#[test]
fn gateway_connects_and_reads_revocations_while_memory_is_full() {
    let _entered = enter();
    let server = Redis::start();
    let state = open(&server);
    let (_, key) = block_on(fixture_with_key(&state));
    fill(&server);
    let other = open(&server);
    let log = other.revocations();
    // The record before is not read, but checked: that is an entry, too.
    until("the log is read", || (*log.subscribe().borrow() > 0).then_some(()));
    block_on(state.change(revoke(&key))).unwrap();
    let is_read = || {
        let last = *log.subscribe().borrow();
        log.range(0, last).contains(&RevocationEntry::Key(key.id)).then_some(())
    };
    until("the revocation is read", is_read);
    block_on(other.change(revoke(&key))).unwrap();
}
