//! Faults of Redis that a connection does not show: it answers, and refuses decisions. `/ready`, metrics and alerts say
//! so with the cause, with and without requests.

use serde_json::{Value, json};

use super::alerts::without_delay;
use super::prometheus::Prometheus;
use crate::support::redis::{Cluster, Redis};
use crate::support::{Client, Gateway, Upstream, eventually, metric};

/// A way to break a server and to mend it, with the fault that decisions meet.
const FAULTS: [(&[&str], &[&str], &str); 4] = [
    (&["CONFIG", "SET", "min-replicas-to-write", "1"], &["CONFIG", "SET", "min-replicas-to-write", "0"], "noreplicas"),
    (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "readonly"),
    (&["ACL", "SETUSER", "default", "-evalsha"], &["ACL", "SETUSER", "default", "+evalsha"], "noperm"),
    (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "oom"),
];

fn gateway(upstream: &Upstream, url: &str) -> Gateway {
    Gateway::with(&[upstream.address], &format!("state: {{ redis: {{ url: {url}, deadline: 2s }} }}\n"))
}

/// Status and body of `/ready`.
fn ready(gateway: &Gateway) -> (u16, Value) {
    let response = Client::connect(gateway.admin).get("/ready", "");
    (response.status, response.json())
}

fn shows(gateway: &Gateway, fault: &str) -> bool {
    metric(gateway.admin, &format!("keygate_state_fault{{fault=\"{fault}\"}}")) == 1.0
}

#[test]
fn gateway_without_requests_is_not_ready_while_redis_refuses_decisions() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let (gateway, key) = gateway(&upstream, &format!("'{}'", redis.url())).and_key();
    eventually("the gateway is ready", || ready(&gateway).0 == 200);
    for (breaks, mends, fault) in FAULTS {
        redis.cli::<()>(breaks);
        eventually(fault, || {
            ready(&gateway)
                == (
                    503,
                    json!({
                        "ready": false, "reasons": ["state"], "causes": { "state": fault },
                    }),
                )
        });
        assert!(shows(&gateway, fault));
        assert_eq!(metric(gateway.admin, "keygate_ready{check=\"state\"}"), 0.0);
        assert_eq!(metric(gateway.admin, "keygate_state_connected"), 0.0);
        redis.cli::<()>(mends);
        eventually("the gateway is ready again", || ready(&gateway).0 == 200 && !shows(&gateway, fault));
        eventually("requests are served", || Client::connect(gateway.address).get("/", &key.text).status == 200);
    }
}

/// A permission that only a decision which admits needs: no probe meets it, but requests do.
#[test]
fn gateway_is_not_ready_while_all_its_requests_are_refused() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let (gateway, key) = gateway(&upstream, &format!("'{}'", redis.url())).and_key();
    assert_eq!(Client::connect(gateway.address).get("/", &key.text).status, 200);
    let prometheus = Prometheus::start(&[gateway.admin], &without_delay());
    redis.cli::<()>(&["ACL", "SETUSER", "default", "-hset"]);
    eventually("requests are refused, and the gateway is not ready", || {
        let served = Client::connect(gateway.address).get("/", &key.text).status;
        let (status, body) = ready(&gateway);
        (served, status, &body["causes"]["state"]) == (503, 503, &json!("noperm"))
    });
    eventually("the alert names the fault", || {
        Client::connect(gateway.address).get("/", &key.text);
        let firing = prometheus.query("ALERTS{alertname=\"KeygateStateAway\",alertstate=\"firing\"}");
        firing.iter().any(|alert| alert["metric"]["fault"] == "noperm")
    });
    redis.cli::<()>(&["ACL", "SETUSER", "default", "+hset"]);
    eventually("requests are served, and the gateway is ready", || {
        Client::connect(gateway.address).get("/", &key.text).status == 200 && ready(&gateway).0 == 200
    });
}

/// The organizations of the other shards are served, so that the gateway stays ready, and says what fails.
#[test]
fn shard_that_refuses_decisions_is_a_reason_of_a_gateway_that_is_ready() {
    let (cluster, upstream) = (Cluster::start(3, 0), Upstream::start());
    let gateway = gateway(&upstream, &format!("{:?}", cluster.urls()));
    eventually("the gateway is ready", || ready(&gateway) == (200, json!({ "ready": true, "reasons": [] })));
    let shard = cluster.primaries()[1];
    shard.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let degraded = |cause: &str| {
        (200, json!({ "ready": true, "reasons": ["state_degraded"], "causes": { "state_degraded": cause } }))
    };
    eventually("the shard is a reason", || ready(&gateway) == degraded("noreplicas"));
    assert!(shows(&gateway, "noreplicas"));
    assert_eq!(metric(gateway.admin, "keygate_ready{check=\"state\"}"), 1.0);
    for primary in cluster.primaries() {
        primary.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    }
    eventually("no shard decides", || ready(&gateway).0 == 503);
    for primary in cluster.primaries() {
        primary.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    }
    eventually("all shards decide", || ready(&gateway) == (200, json!({ "ready": true, "reasons": [] })));
    shard.kill();
    eventually("the Cluster is down", || {
        let body = ready(&gateway).1;
        ["state", "state_degraded"].iter().any(|reason| body["causes"][reason].is_string())
    });
}
