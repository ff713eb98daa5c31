//! A server whose memory is full (`maxmemory` with `noeviction`): what withdraws something is accepted all the same.

use std::time::Duration;

use domain::clock;
use domain::key::policy::DisabledBy;
use domain::quota::Quota;
use domain::refusal::Refusal;
use state::redis::{Clock, Servers, Settings};
use state::{
    Bounds, Change, ChangeError, KeyList, PolicyScope, Redis as RedisState, RevocationEntry, RuleChange, State,
};

use super::cases_federation::new_rule;
use super::cases_idempotency::{repeated, request};
use super::cases_policy::disabled;
use super::cases_sessions;
use super::fixture::{Fixture, HeldKey, fixture_with_key, new_key, new_org, record, refuse};
use super::redis::{at, settings};
use super::runtime::block_on;
use crate::migration::records::new_token;
use crate::state_contract::redis::enter_with_server;
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
    let (_entered, server) = enter_with_server();
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
        let quota = Some(Quota { requests: 1, per: Duration::from_secs(60), burst: 1, strict: false });
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

/// Nothing that a withdrawal needs besides is refused: the grant of a token's first change in an organization, the
/// record of its request, and the lists by which its subject is found.
#[test]
fn programs_withdraw_while_memory_is_full() {
    let (_entered, server) = enter_with_server();
    let state = open(&server);
    block_on(async {
        let (fixture, first) = fixture_with_key(&state).await;
        let (_, second) = fixture_with_key(&state).await;
        let recorded = fixture.key(&state).await;
        let [program, other] = ["program", "other"].map(new_token);
        for token in [&program, &other] {
            state.change(Change::CreateToken(Box::new(token.clone()))).await.unwrap();
        }
        let (rule_org, rule) = new_rule(&state).await;
        let (org, user) = (fixture.org, fixture.user);
        let member = cases_sessions::created(&state).await.0;
        let (session, chosen) = (member.id, member.chosen);
        state.set_bounds(Bounds { keep_revoked: Duration::ZERO, ..Bounds::DEFAULT });
        fill(&server);
        let actor = format!("token:{}", program.id);
        let leaked = disabled(clock::now(), DisabledBy::Leak);
        let once = request(program.id, recorded.id);
        for change in [
            revoke(&first),
            Change::set_key_policy(second.id, Box::new(leaked), PolicyScope::Operator),
            revoke(&recorded).once(once.clone()),
            Change::WithdrawUser { org, user, at: clock::now() },
            Change::suspend_user(org, user, Some(clock::now()), false),
            Change::suspend_org(org, true),
            Change::FederationRule(RuleChange::Remove { org: rule_org.org, name: rule.name.clone() }),
            Change::RevokeToken { token: other.id, at: clock::now() },
            Change::EndMembership { session, org: chosen },
        ] {
            let text = format!("{change:?}");
            state.change(change.by(&actor)).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
        repeated(state.change(revoke(&recorded).once(once)).await);
        let list = KeyList { org, owner: None, newest_first: false };
        assert!(state.page_of_keys(list, None, 10).await.unwrap().items.is_empty(), "revoked keys leave the lists");
        state.cursor_secret().await.unwrap();
        let added = Change::CreateOrg(new_org()).by(&actor);
        assert!(matches!(state.change(added).await, Err(ChangeError::Unavailable(_))), "what adds is refused");
        make_room(&server);
        until("the state is connected again", || state.is_connected().then_some(()));
        let now = clock::now();
        assert_eq!(refuse(&state, &first, now).await, Refusal::Revoked);
        assert_eq!(refuse(&state, &second, now).await, Refusal::KeyDisabled);
    });
}

/// Another gateway, which begins when the memory is full, learns of the revocation.
#[test]
fn gateway_connects_and_reads_revocations_while_memory_is_full() {
    let (_entered, server) = enter_with_server();
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
