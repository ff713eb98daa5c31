//! A state that was lost, replaced or put back from an older copy, as clients and operators see it: nothing is admitted
//! and nothing is refused for good, until the state is restored or accepted.

use std::fs;
use std::path::Path;

use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Key, Response, Setup, Upstream, eventually};
use control::management;
use journal::audit::{Filter, Outcome, Reader};

/// Exit code of a start that refuses the state.
const STATE_LOST: i32 = 65;

fn over(redis: &Redis, upstream: &Upstream) -> Gateway {
    let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    Gateway::with(&[upstream.address], &state)
}

fn get(gateway: &Gateway, key: &Key) -> Response {
    Client::connect(gateway.address).get("/x", &key.text)
}

fn ready(gateway: &Gateway) -> String {
    let response = Client::connect(gateway.admin).get("/ready", "");
    format!("{} {}", response.status, String::from_utf8(response.body).unwrap())
}

/// Asserts that a key is neither admitted nor refused for good.
fn assert_unavailable(gateway: &Gateway, key: &Key) {
    let response = get(gateway, key);
    assert_eq!((response.status, response.code().as_str()), (503, "state_unavailable"));
    assert!(response.header("retry-after").is_some());
}

/// Asserts that nothing can be changed.
fn assert_unchangeable(gateway: &Gateway) {
    let refused =
        gateway.refused(async |to, now| management::create_org(to, OPERATOR, "into the void", None, now).await);
    assert_eq!(refused, "state_unavailable");
}

#[test]
fn emptied_redis_is_refused_by_every_gateway_until_it_is_accepted() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateways = [over(&redis, &upstream), over(&redis, &upstream)];
    let key = gateways[0].key();
    assert!(gateways.iter().all(|gateway| get(gateway, &key).status == 200));
    redis.cli::<()>(&["FLUSHALL"]);
    for gateway in &gateways {
        // From the first request on, although the gateway may not have looked yet.
        assert_unavailable(gateway, &key);
        assert_unchangeable(gateway);
        eventually("it is not ready, and names the cause", || ready(gateway).contains("state_lost"));
        assert_eq!(gateway.metric("keygate_ready{check=\"state_lost\"}"), 0.0);
        assert!(gateway.metric("keygate_state_errors_total{kind=\"lost\"}") >= 1.0);
    }
    // One that has served nothing makes no new state where others miss theirs.
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    let started = Setup::with_state(upstream.address, &state, "").keygate(&["serve"]);
    assert_eq!(started.status.code(), Some(STATE_LOST), "{started:?}");

    gateways[1].perform(async |to, now| management::accept_state(to, OPERATOR, now).await);
    for gateway in &gateways {
        eventually("it serves the accepted state", || ready(gateway).starts_with("200"));
        assert_eq!(get(gateway, &key).status, 401, "the accepted state has no keys");
    }
    gateways[0].create_org("in the accepted state");
    let reader = Reader::open(&gateways[1].dir.path().join("audit")).unwrap();
    let records = reader.list(&Filter::default(), 100, None).unwrap().records;
    let accepted = records.iter().find(|record| record.action == "state.accept").unwrap();
    assert_eq!(accepted.outcome, Outcome::Completed);
}

#[test]
fn import_into_an_emptied_redis_accepts_it() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    let setup = Setup::with_state(upstream.address, &state, "");
    let key = setup.key();
    let running = setup.start();
    let other = over(&redis, &upstream);
    let file = setup.path().join("backup.jsonl").display().to_string();
    setup.ok(&["state", "export", "--out", &file]);
    let get = |address| Client::connect(address).get("/x", &key).status;
    assert_eq!([setup.address, other.address].map(get), [200, 200]);
    redis.cli::<()>(&["FLUSHALL"]);
    assert_eq!([setup.address, other.address].map(get), [503, 503]);
    setup.ok(&["state", "import", &file]);
    eventually("the key is admitted again by all", || [setup.address, other.address].map(get) == [200, 200]);
    drop(running);
}

#[test]
fn another_database_is_refused_at_the_start() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let setup = |prefix: &str| format!("{{ redis: {{ url: '{}', deadline: 2s, prefix: {prefix} }} }}", redis.url());
    let installation = Setup::with_state(upstream.address, &setup("right"), "");
    installation.key();
    let text = installation.text();
    for wrong in [setup("wrong"), "{ embedded: { path: other.db } }".to_owned()] {
        installation.write(&text.replace(&setup("right"), &wrong));
        let ended = installation.keygate(&["serve"]);
        let error = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(STATE_LOST), "{error}");
        assert!(error.contains("keygate state accept") || error.contains("not the state that was served"), "{error}");
        // Neither do commands change it.
        let created = installation.keygate(&["org", "create", "globex"]);
        assert_eq!(created.status.code(), Some(75), "{created:?}");
    }
    installation.write(&text);
    installation.ok(&["org", "create", "globex"]);
}

#[test]
fn organization_of_a_lost_shard_is_unavailable_and_others_are_served() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateway = over(&redis, &upstream);
    let (lost, kept) = (gateway.key(), gateway.key());
    assert_eq!([get(&gateway, &lost).status, get(&gateway, &kept).status], [200, 200]);
    // A shard of a Cluster takes along all records with the tag of the organization.
    let records: Vec<String> = redis.cli(&["KEYS", &format!("keygate:{{{}}}:*", lost.id.tag().as_str())]);
    let delete: Vec<&str> = ["DEL"].into_iter().chain(records.iter().map(String::as_str)).collect();
    redis.cli::<()>(&delete);
    assert_unavailable(&gateway, &lost);
    assert_eq!(get(&gateway, &kept).status, 200);
    // Of an organization that there never was, a key is unknown as before.
    let stranger = domain::key::PlainKey::generate(
        domain::key::KeyId::generate(domain::key::OrgTag::generate().unwrap()).unwrap(),
    );
    let response = Client::connect(gateway.address).get("/x", stranger.unwrap().expose().expose());
    assert_eq!(response.status, 401);
}

#[test]
fn list_of_organizations_is_lost_with_one_of_them() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateways = [over(&redis, &upstream), over(&redis, &upstream)];
    let key = gateways[0].key();
    assert_eq!(get(&gateways[0], &key).status, 200);
    let delete = |tag: &str| {
        let records: Vec<String> = redis.cli(&["KEYS", &format!("keygate:{{{tag}}}:*")]);
        let delete: Vec<&str> = ["DEL"].into_iter().chain(records.iter().map(String::as_str)).collect();
        redis.cli::<()>(&delete);
    };
    // One shard had both, and no gateway has read the list.
    delete("orgs");
    delete(key.id.tag().as_str());
    assert_unavailable(&gateways[0], &key);
    // By the mark in the state: one without it has no organizations yet, and the key is unknown.
    redis.cli::<()>(&["HDEL", "keygate:{revocations}", "orgs"]);
    assert_eq!(get(&gateways[1], &key).status, 401);
}

fn copy_state(from: &Path, to: &Path) {
    for name in ["state.db", "state.db-wal"] {
        let _ = fs::remove_file(to.join(name));
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

#[test]
fn removed_state_file_is_noticed_and_nothing_is_acknowledged_into_it() {
    let (_upstream, gateway, key) = Gateway::with_key("");
    assert_eq!(get(&gateway, &key).status, 200);
    let (file, aside) = (gateway.dir.path().join("state.db"), gateway.dir.path().join("aside.db"));
    fs::rename(&file, &aside).unwrap();
    assert_unchangeable(&gateway);
    eventually("it is not ready", || ready(&gateway).contains("state_lost"));
    assert_unavailable(&gateway, &key);
    fs::rename(&aside, &file).unwrap();
    eventually("it is back", || get(&gateway, &key).status == 200);
    gateway.create_org("in the state");
}

#[test]
fn state_without_its_file_and_an_older_one_do_not_start_until_one_is_accepted() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, "");
    let key = setup.key();
    let backup = tempfile::tempdir().unwrap();
    copy_state(setup.path(), backup.path());
    let running = setup.start();
    setup.ok(&["key", "revoke", &key["sk_live_".len()..][..9]]);
    running.stop();

    copy_state(backup.path(), setup.path());
    let older = setup.keygate(&["serve"]);
    assert_eq!(older.status.code(), Some(STATE_LOST), "{older:?}");
    assert!(String::from_utf8_lossy(&older.stderr).contains("the last 1 changes"), "{older:?}");
    for name in ["state.db", "state.db-wal"] {
        let _ = fs::remove_file(setup.path().join(name));
    }
    let lost = setup.keygate(&["serve"]);
    assert_eq!(lost.status.code(), Some(STATE_LOST), "{lost:?}");

    copy_state(backup.path(), setup.path());
    setup.ok(&["state", "accept"]);
    let running = setup.start();
    assert_eq!(setup.client().get("/x", &key).status, 200, "the accepted state lacks the revocation");
    running.stop();
}
