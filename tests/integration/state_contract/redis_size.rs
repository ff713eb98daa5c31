//! Changes of users and keys with many keys: what each asks of Redis does not grow with their number.
//!
//! Cost is counted in commands, those of scripts included: a count is the same on every machine.
//! `KEYGATE_TEST_KEYS=20000` sets another number of keys; the slowest commands are printed then.

use domain::clock;
use domain::refusal::Refusal;
use futures_util::future::join_all;
use state::{Bounds, Change, State};

use super::fixture::{Fixture, HeldKey, admit, new_fixture, new_key, permission, refuse, refused, require};
use super::redis::on_a_server;
use super::runtime::{block_on, enter};
use crate::support::redis::Redis;

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
        let permit = Change::permit_user(org, user, vec![permission("other")], None);
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
        // Reads of the log of revocations by gateways are counted as well: the cheapest of some is the change itself.
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

/// A failover may lose the removal of revoked keys from the set that bounds the keys of a user.
#[test]
fn set_of_a_users_keys_is_pruned_when_it_seems_to_be_full() {
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
        let set = format!("keygate:{{{}}}:user:{}:keys", fixture.tag.as_str(), fixture.user);
        for key in &keys {
            server.cli::<()>(&["SADD", &set, key.id.as_str()]);
        }
        // The set counts 150; eleven keys are allowed, and ten are there.
        state.set_bounds(Bounds { keys_per_user: 11, ..Bounds::DEFAULT });
        let create = async || {
            let (key, digest) = new_key(fixture.tag, fixture.org, fixture.user);
            let change = Box::new(Change::CreateKey { key, digest });
            state.change(Change::ByPerson { person: fixture.user, change }).await
        };
        create().await.unwrap();
        assert!(create().await.is_err());
        state.close().await;
    });
}
