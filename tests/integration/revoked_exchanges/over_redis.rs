//! Several gateways on one Redis: what one of them revokes ends at all of them, and nothing is missed.

use std::time::Duration;

use keygate::audit::Outcome;

use super::upstream::Endless;
use super::{End, ROUTES, assert_open, end_of, open_tunnel};
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, eventually};

/// Name of the record of the revocation log.
const LOG: &str = "keygate:{revocations}";

fn gateways<const N: usize>(redis: &Redis, upstream: &Endless) -> [Gateway; N] {
    let state = format!("\nstate: {{ redis: {{ url: '{}', deadline: 500ms }} }}\n{ROUTES}", redis.url());
    [(); N].map(|()| Gateway::with(&[upstream.address], &state))
}

#[test]
fn revocation_at_one_gateway_ends_exchanges_at_all() {
    let (redis, upstream) = (Redis::start(), Endless::start());
    let [one, two] = gateways(&redis, &upstream);
    let key = one.key();
    let sibling = one.another_key(&key);
    let stranger = one.key();
    let rotated = one.another_key(&stranger);
    let tunnels = [&key, &sibling, &rotated, &stranger].map(|key| open_tunnel(&two, &key.text));
    let [of_key, mut of_sibling, of_rotated, mut of_stranger] = tunnels;
    one.revoke(&key);
    assert_eq!(end_of(of_key), End::Reset);
    assert_open(&mut of_sibling);
    one.remove_user(&sibling);
    assert_eq!(end_of(of_sibling), End::Reset);
    one.rotate(&rotated, Some(Duration::from_secs(1)));
    assert_eq!(end_of(of_rotated), End::Reset);
    assert_open(&mut of_stranger);
    one.suspend(&stranger);
    assert_eq!(end_of(of_stranger), End::Reset);
    let counts = ["key", "user", "secret", "org", "session"]
        .map(|reason| two.metric(&format!("keygate_exchanges_terminated_total{{reason=\"{reason}\"}}")));
    assert_eq!(counts, [1.0, 1.0, 1.0, 1.0, 0.0]);
    assert!(two.records().iter().all(|record| record.outcome == Outcome::Terminated));
    upstream.until_all_ended();
    eventually("no slot is held", || one.explain_in_flight(&stranger) == 0);
}

#[test]
fn gap_in_the_log_has_every_open_exchange_checked() {
    let (redis, upstream) = (Redis::start(), Endless::start());
    let [one, two] = gateways(&redis, &upstream);
    let (key, other) = (one.key(), one.key());
    // The reader has a position in the log that can be lost.
    let first = one.another_key(&other);
    let of_first = open_tunnel(&two, &first.text);
    one.revoke(&first);
    assert_eq!(end_of(of_first), End::Reset);
    let (tunnel, mut kept) = (open_tunnel(&two, &key.text), open_tunnel(&two, &other.text));
    // A gateway that has revoked the key and died before it wrote the entry; then the log is lost, as by a failover.
    let record = format!("keygate:{{{}}}:key:{}", key.id.tag().as_str(), key.id.as_str());
    assert_eq!(redis.cli::<u64>(&["EXISTS", &record]), 1, "{record}");
    redis.cli::<u64>(&["HSET", &record, "revoked", "1"]);
    redis.cli::<u64>(&["DEL", LOG]);
    assert_eq!(end_of(tunnel), End::Reset);
    assert_open(&mut kept);
    // The log goes on from its new beginning.
    one.revoke(&other);
    assert_eq!(end_of(kept), End::Reset);
}

#[test]
fn reader_reads_on_when_redis_is_back() {
    let (redis, upstream) = (Redis::options().appendonly().start(), Endless::start());
    let [one, two] = gateways(&redis, &upstream);
    let (key, other) = (one.key(), one.key());
    let (tunnel, mut kept) = (open_tunnel(&two, &key.text), open_tunnel(&two, &other.text));
    redis.kill();
    assert_open(&mut kept);
    redis.restart();
    eventually("both gateways have Redis again", || {
        [&one, &two].iter().all(|gateway| Client::connect(gateway.admin).get("/ready", "").status == 200)
    });
    one.revoke(&key);
    assert_eq!(end_of(tunnel), End::Reset);
    assert_open(&mut kept);
}

#[test]
fn log_keeps_its_last_entries() {
    let (redis, upstream) = (Redis::start(), Endless::start());
    let [gateway] = gateways(&redis, &upstream);
    let key = gateway.key();
    redis.cli::<u64>(&["HSET", LOG, "last", "20000", "10001", "aaaaaaaa key x", "20000", "aaaaaaaa key y"]);
    gateway.revoke(&key);
    let last: String = redis.cli(&["HGET", LOG, "last"]);
    let kept: Vec<String> = redis.cli(&["HKEYS", LOG]);
    assert_eq!(last, "20001");
    assert_eq!(kept, ["last", "20000", "20001"], "the oldest entry is gone");
}
