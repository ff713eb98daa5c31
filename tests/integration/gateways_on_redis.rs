//! Gateways on one Redis, as seen by their clients and operators.

use std::collections::BTreeSet;
use std::time::Duration;

use control::management::{self, PolicyUpdate};
use domain::clock;

use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::updates::policy_change;
use crate::support::{Client, Gateway, Key, Setup, Upstream, eventually, until};

/// A gateway on this Redis.
fn over(redis: &Redis, upstream: &Upstream, more: &str) -> Gateway {
    let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s{more} }} }}\n", redis.url());
    Gateway::with(&[upstream.address], &state)
}

fn ready(gateway: &Gateway) -> (u16, String) {
    let response = Client::connect(gateway.admin).get("/ready", "");
    (response.status, String::from_utf8(response.body).unwrap())
}

#[test]
fn change_by_one_gateway_holds_in_the_other() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let [one, other] = [over(&redis, &upstream, ""), over(&redis, &upstream, "")];
    let key = one.key();
    let mut client = Client::connect(other.address);
    let response = client.get("/x", &key.text);
    assert_eq!(response.status, 200);
    assert!(response.header("ratelimit").unwrap().contains("r=999"), "{response:?}");
    let response = Client::connect(one.address).get("/x", &key.text);
    assert!(response.header("ratelimit").unwrap().contains("r=998"), "{response:?}");
    one.revoke(&key);
    assert_eq!(client.get("/x", &key.text).code(), "invalid_token");
}

#[test]
fn budget_that_is_nearly_spent_is_recorded_by_one_of_the_gateways() {
    const BUDGET: &str = "\nplans: { sold: { requests: 100, per: 1s, quota: { units: 60, per: month, of: key } } }\n\
                          limits: { plan: sold }\n";
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let open = || {
        let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
        Gateway::with(&[upstream.address], &format!("{state}{BUDGET}"))
    };
    let gateways = [open(), open()];
    let near = |key: &Key| {
        let of_all = gateways.iter().flat_map(|gateway| gateway.changes("quota.near"));
        of_all.filter(|record| record.key_id == Some(key.id)).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let key = gateways[0].key();
        std::thread::scope(|scope| {
            for address in gateways.iter().chain(&gateways).chain(&gateways).map(|gateway| gateway.address) {
                let key = &key;
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    (0..10).for_each(|_| assert_eq!(client.get("/x", &key.text).status, 200));
                });
            }
        });
        // Each gateway announces one budget after the other: that of a key that it alone serves comes last.
        for gateway in &gateways {
            let last = gateway.key();
            let mut client = Client::connect(gateway.address);
            (0..60).for_each(|_| assert_eq!(client.get("/x", &last.text).status, 200));
            eventually("it is announced", || near(&last).len() == 1);
        }
        let found = near(&key);
        let [record] = &found[..] else { panic!("{found:?}") };
        assert_eq!((record.subject, record.org_id), (Some(key.user), Some(key.org)));
        assert!(record.path.starts_with("quota.near/") && record.path.contains("/60/"), "{}", record.path);
    }
}

#[test]
fn end_of_each_key_is_announced_by_one_of_the_gateways() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateways = [over(&redis, &upstream, ""), over(&redis, &upstream, ""), over(&redis, &upstream, "")];
    let keys: Vec<Key> = (0..50).map(|_| gateways[0].key()).collect();
    let week = Duration::from_secs(7 * 24 * 3600);
    for (minute, key) in (1..).zip(&keys) {
        let expires = Some(Some(clock::now().after(week + Duration::from_secs(minute * 60))));
        let update = policy_change(PolicyUpdate { expires, ..PolicyUpdate::default() });
        gateways[0].perform(async |to, now| management::update_key(to, OPERATOR, key.id, update.clone(), now).await);
    }
    let look = |gateway: &Gateway| gateway.perform(async |to, now| management::announce_ends(to, now).await);
    // A gateway that does not know the clock of Redis yet announces nothing.
    eventually("all are announced", || {
        gateways.iter().for_each(|gateway| _ = look(gateway));
        gateways.iter().map(|gateway| gateway.changes("key.expiring").len()).sum::<usize>() >= 50
    });
    assert_eq!(gateways.iter().map(look).sum::<u64>(), 0);
    let records: Vec<_> = gateways.iter().flat_map(|gateway| gateway.changes("key.expiring")).collect();
    let of_keys: BTreeSet<_> = records.iter().map(|record| record.key_id.unwrap().to_string()).collect();
    assert_eq!((records.len(), of_keys.len()), (50, 50));
    assert!(records.iter().all(|record| record.path.starts_with("key.expiring/7d/")), "{records:?}");
}

#[test]
fn requests_without_redis_are_refused_and_the_gateway_is_not_ready() {
    let (redis, upstream) = (Redis::options().appendonly().start(), Upstream::start());
    let gateway = over(&redis, &upstream, "");
    let key = gateway.key();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/x", &key.text).status, 200);
    assert_eq!(ready(&gateway).0, 200);
    redis.kill();
    eventually("the gateway is not ready, and names the cause", || {
        let (status, body) = ready(&gateway);
        status == 503 && body.contains("state")
    });
    let refused = client.get("/x", &key.text);
    assert_eq!((refused.status, refused.code().as_str()), (503, "state_unavailable"));
    assert!(refused.header("retry-after").is_some());
    let body = String::from_utf8(refused.body.clone()).unwrap();
    assert!(body.contains("https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"), "{body}");
    assert!(gateway.metric("keygate_state_errors_total{kind=\"unreachable\"}") >= 1.0);
    // A request without a credential is refused without Redis.
    assert_eq!(client.get("/x", "").status, 401);
    redis.restart();
    eventually("the service is back by itself", || client.get("/x", &key.text).status == 200);
    eventually("and ready", || ready(&gateway).0 == 200);
}

#[test]
fn known_keys_are_admitted_without_redis_and_marked_in_the_audit() {
    let (redis, upstream) = (Redis::options().appendonly().start(), Upstream::start());
    let state =
        format!("\nstate: {{ redis: {{ url: '{}', deadline: 2s, on_unavailable: known_keys }} }}\n", redis.url());
    let limits = "limits: { key: { requests: 1000000, per: 1s } }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{state}{limits}"));
    let (known, unseen) = (gateway.key(), gateway.key());
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/x", &known.text).status, 200);
    // A gateway admits nothing without Redis until it has the reply to its first heartbeat, as the second one shows.
    let heartbeat = || redis.cli::<Vec<Vec<u8>>>(&["HVALS", "keygate:{gateways}"]);
    let first = until("the gateway is registered", || Some(heartbeat()).filter(|entries| !entries.is_empty()));
    eventually("it knows", || heartbeat() != first);
    redis.kill();
    // Its share of the limit begins empty.
    eventually("a token has flowed in", || client.get("/x", &known.text).status == 200);
    assert_eq!(client.get("/x", &unseen.text).code(), "state_unavailable");
    assert_eq!(ready(&gateway).0, 200, "it is ready, because it admits known keys");
    let records = gateway.records();
    let admitted = records.iter().rev().filter(|record| record.status == Some(200));
    let provisional: Vec<bool> = admitted.map(|record| record.provisional).collect();
    assert_eq!(provisional, [false, true]);
    assert!(records.iter().all(|record| record.key_id.as_ref() != Some(&unseen.id)), "an unknown key is not recorded");
    redis.restart();
    eventually("the service is back, and the offline use is reported", || {
        let response = client.get("/x", &unseen.text);
        response.status == 200 && gateway.uses(&known) == Some(2)
    });
}

/// The gateways divide limits among those that are registered, and admit known keys only when all have seen each other.
#[test]
fn command_while_no_gateway_runs_is_registered_nowhere() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    for (option, value) in [("slowlog-log-slower-than", "0"), ("slowlog-max-len", "10000")] {
        redis.cli::<()>(&["CONFIG", "SET", option, value]);
    }
    let state = format!("{{ redis: {{ url: '{}', deadline: 2s }} }}", redis.url());
    let setup = Setup::with_state(upstream.address, &state, "");
    setup.key();
    assert!(!setup.keygate(&["org", "suspend", "nobody"]).status.success());
    let commands = format!("{:?}", redis.cli::<redis::Value>(&["SLOWLOG", "GET", "-1"]));
    assert!(commands.contains("keygate:") && !commands.contains("keygate:{gateways}\""), "{commands}");
}
