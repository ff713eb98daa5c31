//! Quotas of organizations, users and keys: given, shown, reset, and recounted from the records of all gateways.

use std::io::Write as _;
use std::process::Command;

use control::management::{self, QuotaRecount, Stretch};
use domain::clock;
use journal::audit::{Filter, Reader, RecordKind};
use serde_json::{Value, json};

use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Key, Postgresql, Upstream, eventually, until};

/// Requests reserve 100 units, and cost what the path says.
const METERED: &str = "routes: [{ name: chat, path: '/**', cost: { at_most: 100, from: X-Cost } }]\n";

fn upstream() -> Upstream {
    Upstream::answering(|request, stream| {
        let cost = request.path().trim_start_matches('/').to_owned();
        write!(stream, "HTTP/1.1 200 OK\r\nx-cost: {cost}\r\ncontent-length: 0\r\n\r\n").ok();
    })
}

/// The answer of a command at a gateway; its error.
fn run(gateway: &Gateway, line: &str) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    command.args(line.split_whitespace()).arg("--json");
    let output = command.arg("--config").arg(gateway.dir.path().join("keygate.yaml")).output().unwrap();
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    Err(String::from_utf8(output.stderr).unwrap())
}

fn used(gateway: &Gateway, owner: &str) -> u64 {
    run(gateway, &format!("quota show {owner}")).unwrap()["used"].as_u64().unwrap()
}

/// The paths of the recorded changes.
fn changes(gateway: &Gateway) -> Vec<String> {
    let filter = Filter { kind: Some(RecordKind::Change), ..Filter::default() };
    let records = Reader::open(&gateway.dir.path().join("audit")).unwrap().list(&filter, 1000, None).unwrap().records;
    records.into_iter().map(|record| record.path).collect()
}

/// Makes a request of this cost.
fn spend(gateway: &Gateway, key: &Key, cost: u64) {
    assert_eq!(Client::connect(gateway.address).get(&format!("/{cost}"), &key.text).status, 200);
}

#[test]
fn own_quota_is_given_at_each_level_and_shown_and_reset() {
    let upstream = upstream();
    let (gateway, key) = Gateway::with(&[upstream.address], METERED).and_key();
    let (org, user, of_key) =
        (format!("--org {}", key.org), format!("--org {} --user {}", key.org, key.user), format!("--key {}", key.id));
    let none = run(&gateway, &format!("quota show {org}")).unwrap_err();
    assert!(none.contains("there is no quota of organization") && none.contains("keygate quota set"), "{none}");
    for (owner, subject, units) in [(&org, "org:", 1000), (&user, "user:", 500), (&of_key, "key:", 200)] {
        let given = run(&gateway, &format!("quota set {owner} --units {units} --per day")).unwrap();
        assert_eq!(given["quota"], json!({ "units": units, "per": "day" }));
        spend(&gateway, &key, 30);
        let shown = run(&gateway, &format!("quota show {of_key}")).unwrap();
        assert!(shown["subject"].as_str().unwrap().starts_with(subject), "{shown}");
        assert_eq!(
            (&shown["units"], &shown["used"], &shown["remaining"]),
            (&json!(units), &json!(30), &json!(units - 30))
        );
    }
    let reset = run(&gateway, &format!("quota reset {of_key}")).unwrap();
    assert_eq!((&reset["used"], used(&gateway, &user)), (&json!(0), 30), "of the key alone");
    assert!(
        Client::connect(gateway.address).get("/1", &key.text).header("ratelimit").unwrap().contains("\"quota\";r=100")
    );
    let paths = changes(&gateway);
    for path in ["org.quota", "user.quota", "key.quota", &format!("quota.reset/key:{}/", key.id)] {
        assert_eq!(paths.iter().filter(|found| found.starts_with(path)).count(), 1, "{path}: {paths:?}");
    }
    for owner in [&org, &user, &of_key] {
        assert_eq!(run(&gateway, &format!("quota set {owner} --none")).unwrap().get("quota"), None);
    }
    assert!(run(&gateway, &format!("quota show {of_key}")).unwrap_err().contains("no quota of key"));
    let zero = run(&gateway, &format!("quota set {org} --units 0 --per day")).unwrap_err();
    assert!(zero.contains("--units: "), "{zero}");
}

#[test]
fn recount_is_the_sum_of_the_records_since_the_last_reset() {
    let upstream = upstream();
    let (mut gateway, key) = Gateway::with(&[upstream.address], METERED).and_key();
    let org = format!("--org {}", key.org);
    run(&gateway, &format!("quota set {org} --units 100000 --per month")).unwrap();
    (1..=10).for_each(|cost| spend(&gateway, &key, cost));
    assert_eq!(used(&gateway, &org), 55);
    let spoil = |gateway: &mut Gateway| {
        let file = gateway.dir.path().join("state.db");
        gateway.restart_with(|config| {
            let state = rusqlite::Connection::open(&file).unwrap();
            assert_eq!(state.execute("UPDATE budgets SET reserved = reserved + 7000", []).unwrap(), 1);
            config.to_owned()
        });
    };
    spoil(&mut gateway);
    assert_eq!(used(&gateway, &org), 7055, "the counter is wrong");
    assert_eq!(run(&gateway, &format!("quota recount {org}")).unwrap()["used"], 55);
    assert_eq!(run(&gateway, &format!("quota recount {org}")).unwrap()["used"], 55, "a second one changes nothing");
    run(&gateway, &format!("quota reset {org}")).unwrap();
    spend(&gateway, &key, 8);
    spoil(&mut gateway);
    assert_eq!(run(&gateway, &format!("quota recount {org}")).unwrap()["used"], 8, "what was before the reset is gone");
    let paths = changes(&gateway);
    let recounts = paths.iter().filter(|path| path.starts_with(&format!("quota.recount/org:{}/", key.org)));
    assert!(recounts.clone().count() == 6 && recounts.clone().any(|path| path.ends_with("/7055/55")), "{paths:?}");
}

fn on_redis(name: &str, redis: &Redis, upstream: &Upstream, ship: &str) -> Gateway {
    let blocks = format!(
        "\ngateway: {name}\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n\
         audit: {{ path: audit{ship} }}\n{METERED}",
        redis.url(),
    );
    Gateway::with(&[upstream.address], &blocks)
}

/// Loses what is spent of the quota of an organization, as a Redis does that lost its writes.
fn lose_counter(redis: &Redis) {
    let names: Vec<String> = redis.cli(&["KEYS", "keygate:{*}:org"]);
    let lost: usize = names.iter().map(|name| redis.cli::<usize>(&["HDEL", name, "spent"])).sum();
    assert_eq!(lost, 1, "{names:?}");
}

#[test]
fn counter_that_was_lost_is_that_of_the_records_of_all_gateways_again() {
    let (redis, server, upstream) = (Redis::start(), Postgresql::start(), upstream());
    let ship = format!(", ship: [{{ postgresql: {{ url: '{}' }} }}]", server.url());
    let [one, other, lost] = ["one", "other", "lost"].map(|name| on_redis(name, &redis, &upstream, &ship));
    let hidden = on_redis("hidden", &redis, &upstream, "");
    let key = one.key();
    let org = format!("--org {}", key.org);
    run(&one, &format!("quota set {org} --units 100000 --per month")).unwrap();
    for (gateway, cost) in [(&one, 10), (&other, 20), (&lost, 40), (&one, 80)] {
        spend(gateway, &key, cost);
    }
    eventually("what came back is told", || used(&other, &org) == 150);
    drop(lost);
    lose_counter(&redis);
    spend(&other, &key, 5);
    eventually("what came back is told", || used(&other, &org) == 5);
    let recount = |recount: &QuotaRecount| {
        one.try_perform(async |to, now| management::recount_quota(to, OPERATOR, recount, now).await)
    };
    let first = QuotaRecount { org: Some(key.org.to_string()), ..QuotaRecount::default() };
    let begun = recount(&first).unwrap();
    assert_eq!(begun.used, 5);
    spend(&other, &key, 3);
    let stretch = Some(Stretch { start: begun.start, used: begun.used });
    let late = |without: &[&str]| {
        let without = without.iter().map(|name| (*name).to_owned()).collect();
        recount(&QuotaRecount { stretch, without, ..first.clone() })
    };
    let only_lost = until("the two that run have shipped", || {
        let error = late(&[]).unwrap_err();
        assert_eq!(error.code(), "quota_records_late");
        let text = error.to_string();
        (!text.contains("one (") && !text.contains("other (")).then_some(text)
    });
    assert!(only_lost.contains("lost ("), "{only_lost}");
    // The one that ships nowhere has records, too.
    let unseen = late(&["lost"]).unwrap_err().to_string();
    assert!(unseen.contains("gateways are registered on Redis, and 2 ship"), "{unseen}");
    drop(hidden);
    // PostgreSQL has all that it had spent.
    // Units that the last request did not cost may not be told yet.
    let recounted = until("the next heartbeat tells that it has left", || late(&["lost"]).ok());
    assert!([158, 255].contains(&recounted.used));
    eventually("what came back is told", || used(&one, &org) == 158 && used(&other, &org) == 158);
    spend(&one, &key, 2);
    eventually("what came back is told", || used(&other, &org) == 160);
    assert_eq!(late(&["lost"]).unwrap_err().code(), "quota_changed", "once");
}

#[test]
fn journals_of_all_gateways_are_counted_where_no_database_has_them() {
    let (redis, upstream) = (Redis::start(), upstream());
    let [one, other] = ["one", "other"].map(|name| on_redis(name, &redis, &upstream, ""));
    let key = one.key();
    let org = format!("--org {}", key.org);
    run(&one, &format!("quota set {org} --units 100000 --per month")).unwrap();
    for (gateway, cost) in [(&one, 10), (&other, 20), (&one, 90)] {
        spend(gateway, &key, cost);
    }
    let second = clock::now().0 / 1_000_000;
    eventually("another second has begun", || clock::now().0 / 1_000_000 > second);
    run(&other, &format!("quota reset {org}")).unwrap();
    let second = clock::now().0 / 1_000_000;
    eventually("another second has begun", || clock::now().0 / 1_000_000 > second);
    for (gateway, cost) in [(&one, 7), (&other, 11)] {
        spend(gateway, &key, cost);
    }
    lose_counter(&redis);
    let error = run(&one, &format!("quota recount {org}")).unwrap_err();
    assert!(error.contains("no PostgreSQL has those of all gateways") && error.contains("`--journal`"), "{error}");
    let begun = error.split_once("add `").unwrap().1.split_once('`').unwrap().0;
    let journals = [&one, &other].map(|gateway| format!("--journal {}", gateway.dir.path().join("audit").display()));
    let recounted = run(&one, &format!("quota recount {org} {begun} {}", journals.join(" "))).unwrap();
    assert_eq!((&recounted["used"], used(&other, &org)), (&json!(18), 18));
    let again = run(&one, &format!("quota recount {org} {begun} {}", journals.join(" "))).unwrap_err();
    assert!(again.contains("was reset or recounted meanwhile"), "{again}");
}
