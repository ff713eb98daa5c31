//! Changes of users and keys with many keys: what each asks of Redis does not grow with their number.
//!
//! Cost is counted in commands, those of scripts included: a count is the same on every machine.
//! `KEYGATE_TEST_KEYS=20000` sets another number of keys; the slowest commands are printed then.

use domain::clock;
use domain::refusal::Refusal;
use futures_util::future::join_all;
use state::{Bounds, Change, Redis as RedisState, State};

use super::fixture::{Fixture, HeldKey, admit, decide, new_fixture, new_key, permission, refuse, refused, require};
use super::redis::{at, on_a_server, settings};
use super::runtime::{block_on, enter};
use crate::support::redis::Redis;
use state::redis::Servers;

/// Keys of the user. Few by default, and far more than the commands that a change may take.
fn number() -> usize {
    std::env::var("KEYGATE_TEST_KEYS").map_or(600, |number| number.parse().unwrap())
}

/// Commands that a change may take, at any size: a few reads, a claim, and one script with its own commands. The rest
/// is for the heartbeat.
const COMMANDS: u64 = 60;

async fn many_keys(state: &State, fixture: &Fixture) -> Vec<HeldKey> {
    let mut keys = Vec::new();
    while keys.len() < number() {
        keys.extend(join_all((0..100).map(|_| fixture.key(state))).await);
    }
    keys
}

/// Commands that the server has executed, within scripts too.
fn commands(server: &Redis) -> u64 {
    let text: String = server.cli(&["INFO", "commandstats"]);
    let calls = text.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

/// Makes a change and returns the number of commands that it took.
async fn cost(state: &State, server: &Redis, change: Change) -> u64 {
    let before = commands(server);
    state.change(change).await.unwrap();
    commands(server) - before
}

fn slowest(server: &Redis) -> u64 {
    let entries: Vec<redis::Value> = server.cli(&["SLOWLOG", "GET", "128"]);
    let time = |entry: &redis::Value| match entry {
        redis::Value::Array(fields) => match fields[2] {
            redis::Value::Int(micros) => u64::try_from(micros).unwrap(),
            _ => 0,
        },
        _ => 0,
    };
    entries.iter().map(time).max().unwrap_or_default()
}

#[test]
fn user_with_many_keys_is_changed_and_removed_by_few_commands() {
    let _entered = enter();
    let (state, server) = on_a_server();
    block_on(async {
        let fixture = new_fixture(&state).await;
        let keys = many_keys(&state, &fixture).await;
        let now = clock::now();
        for key in &keys[..20] {
            admit(&state, key, now).await;
        }
        server.cli::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
        server.cli::<()>(&["SLOWLOG", "RESET"]);
        let (org, user) = (fixture.org, fixture.user);
        let permit = Change::PermitUser { org, user, permissions: vec![permission("other")], vouched_by: None };
        let permitted = cost(&state, &server, permit).await;
        assert_eq!(refused(&require(&state, &keys[0].digest, "queries:read", now).await), Refusal::Forbidden);
        let removed = cost(&state, &server, Change::RemoveUser { org, user, at: now }).await;
        for key in [&keys[0], &keys[19], keys.last().unwrap()] {
            assert_eq!(refuse(&state, key, now).await, Refusal::UserRemoved);
        }
        assert!(permitted <= COMMANDS && removed <= COMMANDS, "{permitted} and {removed} commands");
        println!("{} keys: {permitted} and {removed} commands, slowest {} us", keys.len(), slowest(&server));
    });
}

#[test]
fn creation_beside_many_revoked_keys_takes_few_commands() {
    let _entered = enter();
    let (state, server) = on_a_server();
    state.set_bounds(Bounds::DEFAULT);
    block_on(async {
        let fixture = new_fixture(&state).await;
        let keys = many_keys(&state, &fixture).await;
        for batch in keys.chunks(100) {
            let revoke = |key: &HeldKey| state.change(Change::RevokeKey { key: key.id, at: clock::now() });
            join_all(batch.iter().map(revoke)).await.into_iter().for_each(Result::unwrap);
        }
        server.cli::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "1000"]);
        server.cli::<()>(&["SLOWLOG", "RESET"]);
        // What gateways read of the log of revocations is counted as well: the cheapest of some is the change itself.
        let (mut created, mut revoked) = (u64::MAX, u64::MAX);
        for _ in 0..5 {
            let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
            let id = key.id;
            let create = Change::ByPerson { person: fixture.user, change: Box::new(Change::CreateKey { key, digest }) };
            created = created.min(cost(&state, &server, create).await);
            revoked = revoked.min(cost(&state, &server, Change::RevokeKey { key: id, at: clock::now() }).await);
        }
        assert!(created <= COMMANDS && revoked <= COMMANDS, "{created} and {revoked} commands");
        println!("{} keys: {created} and {revoked} commands, slowest {} us", keys.len(), slowest(&server));
    });
}

/// Turns the records of a state into those that the last version wrote.
fn downgrade(server: &Redis, fixture: &Fixture, keys: &[HeldKey]) {
    let tag = format!("keygate:{{{}}}", fixture.tag.as_str());
    let user = format!("{tag}:user:{}", fixture.user);
    let listed = [format!("{tag}:keys:listed"), format!("{user}:keys:listed"), format!("{tag}:revoked")];
    server.cli::<()>(&["DEL", &listed[0], &listed[1], &listed[2]]);
    server.cli::<()>(&["DEL", "keygate:{sessions}:indexed", "keygate:{orgs}:emails-indexed"]);
    server.cli::<()>(&["HDEL", &user, "version", "creation"]);
    let sets: Vec<String> = server.cli(&["KEYS", "keygate:email:*"]);
    let sessions: Vec<String> = server.cli(&["KEYS", "keygate:{sessions}:[op]*:*"]);
    for name in sets.iter().chain(&sessions) {
        server.cli::<()>(&["DEL", name]);
    }
    for key in keys {
        server.cli::<()>(&["RPUSH", &format!("{tag}:keys"), key.id.as_str()]);
        server.cli::<()>(&["SADD", &format!("{user}:keys"), key.id.as_str()]);
        server.cli::<()>(&["HSET", &format!("{tag}:key:{}", key.id), "permissions", "queries:read"]);
    }
}

#[test]
fn records_of_the_last_version_are_upgraded() {
    let _entered = enter();
    let (state, server) = on_a_server();
    block_on(async {
        let fixture = new_fixture(&state).await;
        let mut keys = Vec::new();
        for _ in 0..150 {
            keys.push(fixture.key(&state).await);
        }
        for key in &keys[..140] {
            state.change(Change::RevokeKey { key: key.id, at: clock::now() }).await.unwrap();
        }
        let quota_key = fixture.session_quota_key(&state, fixture.user).await;
        let (session, digest) = super::cases_sessions::created(&state).await;
        state.close().await;
        keys.push(quota_key);
        downgrade(&server, &fixture, &keys);
        keys.pop();

        let state = RedisState::open(settings(Servers::Single(at(&server)))).await.unwrap();
        let state = State::Redis(state);
        state.set_bounds(Bounds { keys_per_user: 11, ..Bounds::DEFAULT });
        let now = clock::now();
        assert_eq!(refuse(&state, &keys[0], now).await, Refusal::Revoked);
        admit(&state, &keys[149], now).await;
        // The set of the user's keys counts 151; eleven of them are allowed, and ten are there.
        let create = async || {
            let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
            let change = Box::new(Change::CreateKey { key, digest });
            state.change(Change::ByPerson { person: fixture.user, change }).await
        };
        create().await.unwrap();
        assert!(create().await.is_err());
        let listed: Vec<_> = state.keys(fixture.org).await.unwrap().into_iter().map(|key| key.id).collect();
        assert_eq!(listed.len(), 151);
        assert_eq!(listed[..150], keys.iter().map(|key| key.id).collect::<Vec<_>>());
        let found = state.users_by_email("ann@example.com").await.unwrap();
        assert!(found.iter().any(|user| user.id == fixture.user));
        let of_org = state.sessions_of_org(session.chosen, now).await.unwrap();
        assert_eq!(of_org.iter().map(|session| session.id).collect::<Vec<_>>(), [session.id]);
        assert_eq!(state.sessions_of_person(&session.person()).await.unwrap().len(), 1);
        assert!(state.session(&digest, now).await.unwrap().is_some());
        let (org, user) = (fixture.org, fixture.user);
        state.change(Change::RemoveUser { org, user, at: now }).await.unwrap();
        assert_eq!(refused(&decide(&state, &keys[149].digest, now).await), Refusal::UserRemoved);
        state.close().await;
    });
}
