//! Replicas of Redis in the metrics: of a single server, of Sentinel and of a Cluster.

use super::alerts::without_delay;
use super::dashboard::queries;
use super::prometheus::Prometheus;
use crate::support::redis::{Cluster, Redis, Sentinels};
use crate::support::{Client, Gateway, Upstream, eventually};

const REPLICAS: &str = "keygate_redis_replicas";
const LAG: &str = "keygate_redis_replica_lag_bytes";
const EVICTS: &str = "keygate_redis_evicts";

fn gateway(upstream: &Upstream, url: &str) -> Gateway {
    Gateway::with(&[upstream.address], &format!("state: {{ redis: {{ url: {url}, deadline: 2s }} }}\n"))
}

/// A metric that may not be shown.
fn metric(gateway: &Gateway, name: &str) -> Option<u64> {
    let text = String::from_utf8(Client::connect(gateway.admin).get("/metrics", "").body).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(value.parse::<f64>().unwrap() as u64)
}

#[test]
fn replicas_come_go_and_fall_behind() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateway = gateway(&upstream, &format!("'{}'", redis.url()));
    eventually("a Redis without replicas has none", || metric(&gateway, REPLICAS) == Some(0));
    assert_eq!(metric(&gateway, LAG), Some(0));
    let replica = Redis::options().arg("replicaof", &format!("127.0.0.1 {}", redis.port())).start();
    eventually("the replica is counted", || metric(&gateway, REPLICAS) == Some(1));
    // It confirms nothing more, and stays connected for a minute.
    replica.stop_process();
    let value = "x".repeat(100_000);
    redis.cli::<()>(&["SET", "unrelated", &value]);
    eventually("the replica is behind", || metric(&gateway, LAG).is_some_and(|bytes| bytes > 100_000));
    replica.resume();
    eventually("the replica has caught up", || metric(&gateway, LAG).is_some_and(|bytes| bytes < 100_000));

    let prometheus = Prometheus::start(&[gateway.admin], "groups: []\n");
    let of_redis: Vec<String> = queries().into_iter().filter(|query| query.contains("keygate_redis_")).collect();
    assert_eq!(of_redis.len(), 2);
    for query in of_redis {
        eventually(&query, || !prometheus.query(&query).is_empty());
    }
    replica.kill();
    eventually("the replica is gone", || metric(&gateway, REPLICAS) == Some(0));
    redis.kill();
    eventually("nothing is known without Redis", || {
        metric(&gateway, REPLICAS).is_none() && metric(&gateway, LAG).is_none()
    });
}

/// Connections that are open when the policy is changed stay open.
#[test]
fn eviction_policy_that_is_changed_while_redis_runs_is_told() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateway = gateway(&upstream, &format!("'{}'", redis.url()));
    eventually("nothing is evicted", || metric(&gateway, EVICTS) == Some(0));
    let prometheus = Prometheus::start(&[gateway.admin], &without_delay());
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    eventually("records may be evicted", || metric(&gateway, EVICTS) == Some(1));
    eventually("the alert fires", || prometheus.firing().contains(&"KeygateRedisEvicts".to_owned()));
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    eventually("nothing is evicted any more", || metric(&gateway, EVICTS) == Some(0));
}

/// The alerts as they are shipped, but for their delays, which are minutes.
#[test]
fn alerts_fire_for_a_replica_that_lags_and_for_one_that_is_lost() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let replica = Redis::options().arg("replicaof", &format!("127.0.0.1 {}", redis.port())).start();
    let gateway = gateway(&upstream, &format!("'{}'", redis.url()));
    eventually("the replica is counted", || metric(&gateway, REPLICAS) == Some(1));
    let prometheus = Prometheus::start(&[gateway.admin], &without_delay());
    eventually("the replica is scraped", || !prometheus.query(&format!("{REPLICAS} == 1")).is_empty());
    let firing = || -> Vec<String> {
        prometheus.firing().into_iter().filter(|alert| alert.starts_with("KeygateRedis")).collect()
    };
    assert_eq!(firing(), [""; 0]);

    replica.stop_process();
    redis.cli::<()>(&["SET", "unrelated", &"x".repeat(12 << 20)]);
    eventually("a replica that is far behind is told", || firing() == ["KeygateRedisReplicaLags"]);
    replica.resume();
    eventually("one that has caught up is not", || firing().is_empty());
    replica.kill();
    eventually("a replica that is gone is told", || firing() == ["KeygateRedisReplicaLost"]);
}

#[test]
fn replicas_of_sentinel_and_cluster_are_counted() {
    let (sentinels, cluster, upstream) = (Sentinels::start(), Cluster::start(3, 1), Upstream::start());
    let behind_sentinel = gateway(&upstream, &format!("'{}'", sentinels.url(Sentinels::SERVICE)));
    let replicas = sentinels.servers().len() as u64 - 1;
    eventually("the replicas of the service are counted", || metric(&behind_sentinel, REPLICAS) == Some(replicas));
    let urls: Vec<String> = cluster.urls().iter().map(|url| format!("'{url}'")).collect();
    let on_cluster = gateway(&upstream, &format!("[{}]", urls.join(", ")));
    eventually("each primary has its replica", || metric(&on_cluster, REPLICAS) == Some(1));
    let primary = cluster.primaries()[1];
    cluster.replicas_of(primary)[0].kill();
    eventually("one primary has none", || metric(&on_cluster, REPLICAS) == Some(0));
}
