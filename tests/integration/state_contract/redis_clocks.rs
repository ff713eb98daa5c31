//! Gateways whose clock is not that of Redis: what ends, accepts or remembers something of others goes by the clock of
//! the server, also when a gateway does not know yet that they differ.

use std::time::Duration;

use domain::clock::{self, Micros};
use domain::key::policy::DisabledBy;
use domain::management_token::ManagementToken;
use state::redis::{Servers, Settings};
use state::{Change, ChangeError, Decision, IdempotencyPlace, PolicyScope, Redis as RedisState, State};

use super::cases_federation::{exchange_until, new_rule, token};
use super::cases_idempotency::{repeated, request};
use super::cases_policy::disabled;
use super::fixture::{decide, fixture_with_key};
use super::redis::{at, settings};
use super::runtime::{block_on, enter};
use crate::migration::records::new_token;
use crate::state_contract::redis::enter_with_server;
use crate::support::redis::{Clock, Redis};
use crate::support::until;

const DAY: Duration = Duration::from_secs(24 * 3600);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

fn open(server: &Redis) -> State {
    let settings = Settings { clock: state::redis::Clock::Server, ..settings(Servers::Single(at(server))) };
    State::Redis(block_on(RedisState::open(settings)).unwrap())
}

/// A server whose clock is a month ahead, and a gateway that has noticed it.
fn month_ahead() -> (Redis, State) {
    let clock = Clock::new();
    clock.set_ahead(MONTH);
    let server = Redis::options().clock(&clock).start();
    let state = open(&server);
    until("the difference is known", || (state.replication().is_some() && !state.clocks_agree()).then_some(()));
    (server, state)
}

/// A gateway with a clock that is ahead has its own time in the change.
#[test]
fn sweep_by_a_clock_that_is_ahead_disables_nothing() {
    let (_entered, server) = enter_with_server();
    let state = open(&server);
    block_on(async {
        let (_, key) = fixture_with_key(&state).await;
        let ahead = clock::now().after(MONTH);
        let mark = disabled(ahead, DisabledBy::Unused);
        let unused = PolicyScope::Unused(ahead.before(7 * DAY));
        let swept = state.change(Change::set_key_policy(key.id, Box::new(mark), unused)).await;
        assert!(matches!(swept, Err(ChangeError::Unavailable(_))), "{swept:?}");
        assert!(matches!(decide(&state, &key.digest, clock::now()).await, Decision::Admitted(_)));
    });
}

#[test]
fn gateway_whose_clock_differs_knows_it_and_goes_by_that_of_the_server() {
    let _entered = enter();
    let (_server, state) = month_ahead();
    let now = clock::now();
    let ahead = state.time(now).since(now);
    assert!(ahead.abs_diff(u64::try_from(MONTH.as_micros()).unwrap()) < 10_000_000, "{ahead}");
    // Requests are served.
    let (_, key) = block_on(fixture_with_key(&state));
    assert!(matches!(block_on(decide(&state, &key.digest, now)), Decision::Admitted(_)));
}

#[test]
fn program_makes_no_change_after_its_token_has_expired_by_the_clock_of_the_server() {
    let _entered = enter();
    let (_server, state) = month_ahead();
    block_on(async {
        let (fixture, _) = fixture_with_key(&state).await;
        let change = async |expires: Micros| {
            let token = ManagementToken { expires, ..new_token("program") };
            state.change(Change::CreateToken(Box::new(token.clone()))).await.unwrap();
            state.change(Change::limit_org(fixture.org, Some(7)).by(&format!("token:{}", token.id))).await
        };
        let ended = change(clock::now().after(DAY)).await;
        assert!(matches!(ended, Err(ChangeError::TokenEnded(_))), "{ended:?}");
        change(clock::now().after(MONTH + DAY)).await.unwrap();
    });
}

#[test]
fn exchanged_token_and_a_request_are_remembered_by_the_clock_of_the_server() {
    let _entered = enter();
    let (server, state) = month_ahead();
    block_on(async {
        let (fixture, rule) = new_rule(&state).await;
        let first = token();
        let refused = exchange_until(&state, &fixture, &rule, first, clock::now().after(DAY)).await;
        assert!(
            matches!(refused, Err(ChangeError::Unavailable(_))),
            "its age was judged by another clock: {refused:?}"
        );
        let (_, key) = fixture_with_key(&state).await;
        let once = request(new_token("program").id, key.id);
        let revoke = || Change::RevokeKey { key: key.id, at: clock::now() }.once(once.clone());
        state.change(revoke()).await.unwrap();
        repeated(state.change(revoke()).await);
        let place = IdempotencyPlace::Org(key.id.tag());
        assert!(state.idempotency_record(place, &once.id, clock::now()).await.unwrap().is_some());
    });
    let lives = server.cli::<Vec<String>>(&["KEYS", "*idempotency*"]);
    let lives = lives.iter().map(|name| server.cli::<i64>(&["TTL", name])).min();
    assert!(lives.is_some_and(|seconds| (82_800..=7 * 86_400).contains(&seconds)), "{lives:?}");
}
