//! Several gateways on one Redis: what one of them revokes ends at all of them, and nothing is missed.

use std::time::{Duration, Instant};

use super::reasons::{open_tunnel_with, session_of};
use super::upstream::Endless;
use super::{End, LIMIT, ROUTES, assert_open, end_of, open_tunnel, try_open_tunnel};
use crate::sign_in::fixture::{self, PERSON, member, sessions};
use crate::support::gateway::{Key, OPERATOR};
use crate::support::redis::{Proxy, Redis};
use crate::support::{Client, Gateway, eventually, lenient, until};
use control::management;
use journal::audit::Outcome;

/// Name of the record of the revocation log.
const LOG: &str = "keygate:{revocations}";

fn gateways<const N: usize>(redis: &Redis, upstream: &Endless) -> [Gateway; N] {
    [(); N].map(|()| gateway(&redis.url(), upstream, ""))
}

/// A gateway over the Redis at this URL, with more blocks of configuration.
fn gateway(url: &str, upstream: &Endless, more: &str) -> Gateway {
    let state = format!("\nstate: {{ redis: {{ url: '{url}', deadline: 2s }} }}\n{ROUTES}{more}");
    Gateway::with(&[upstream.address], &state)
}

/// Asserts that an exchange ended in time; on a busy machine, that it ended long before the check of every minute.
#[track_caller]
fn assert_in_time(acknowledged: Instant) {
    let (took, limit) = (acknowledged.elapsed(), lenient(LIMIT));
    assert!(took < limit, "the exchange went on for {took:?} after the end of its session was acknowledged");
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
    one.suspend_user(&stranger);
    assert_eq!(end_of(of_stranger), End::Reset);
    // It begins after the notice of the suspension was read: none of this gateway's exchanges is left.
    one.resume_user(&stranger);
    let of_stranger = open_tunnel(&two, &stranger.text);
    one.suspend(&stranger);
    assert_eq!(end_of(of_stranger), End::Reset);
    let counts = ["key", "user", "secret", "org", "session"]
        .map(|reason| two.metric(&format!("keygate_exchanges_terminated_total{{reason=\"{reason}\"}}")));
    assert_eq!(counts, [1.0, 2.0, 1.0, 1.0, 0.0]);
    assert!(two.records().iter().all(|record| record.outcome == Outcome::Terminated));
    upstream.until_all_ended();
    eventually("no slot is held", || one.explain_in_flight(&stranger) == 0);
}

/// The entries of both rotations are read when a request with the newest secret is open.
#[test]
fn second_rotation_in_a_row_resets_no_request_with_the_newest_secret() {
    let (redis, upstream) = (Redis::start(), Endless::start());
    let [one] = gateways(&redis, &upstream);
    let mut open = Vec::new();
    for overlap in [None, Some(Duration::from_secs(3600))].repeat(4) {
        let first = one.key();
        let of_first = open_tunnel(&one, &first.text);
        let second = one.rotate(&first, overlap);
        let third = one.rotate(&second, overlap);
        open.push(open_tunnel(&one, &third.text));
        assert_eq!(end_of(of_first), End::Reset);
        open.iter_mut().for_each(assert_open);
    }
}

#[test]
fn session_that_ended_at_one_gateway_ends_its_exchanges_at_all_within_a_second() {
    let (redis, upstream) = (Redis::start(), Endless::start());
    let [one, two] = [(); 2].map(|()| gateway(&redis.url(), &upstream, &fixture::session(&[], "")));
    let person = member(&one, "acme", PERSON, &[]);
    let [first, second, third] = [(); 3].map(|()| session_of(&one, person));
    let of_first = open_tunnel_with(&two, &first);
    let [mut of_second, mut of_third] = [&second, &third].map(|session| open_tunnel_with(&two, session));
    one.end_session(sessions(&one)[0].id);
    let acknowledged = Instant::now();
    assert_eq!(end_of(of_first), End::Reset);
    assert_in_time(acknowledged);
    [&mut of_second, &mut of_third].into_iter().for_each(assert_open);
    one.perform(async |to, now| management::end_sessions(to, OPERATOR, "acme", PERSON, now).await);
    let acknowledged = Instant::now();
    assert_eq!([end_of(of_second), end_of(of_third)], [End::Reset; 2]);
    assert_in_time(acknowledged);
    assert_eq!(two.metric("keygate_exchanges_terminated_total{reason=\"session\"}"), 3.0);
    eventually("no slot is held", || two.metric("keygate_in_flight") == 0.0);
}

/// A primary dies with a revocation and a slot that no replica has: the revocation ends what is open at a gateway that
/// never read of it, and the new primary counts every slot that is held.
#[test]
fn failover_undoes_no_revocation_and_loses_no_slot_of_open_exchanges() {
    const SLOTS: u32 = 4;
    let servers = Redis::options().start_many(2);
    let ([old, new], upstream) = (&*servers, Endless::start()) else { panic!("two servers") };
    let proxies = [(); 2].map(|()| Proxy::to(old.address()));
    let [one, two] = proxies.each_ref().map(|proxy| gateway(&proxy.url(), &upstream, ""));
    let (revoked, good) = (one.key(), one.key());
    one.limit_org(&good, SLOTS);
    let of_revoked = open_tunnel(&two, &revoked.text);
    let mut kept = vec![open_tunnel(&one, &good.text), open_tunnel(&two, &good.text), open_tunnel(&two, &good.text)];
    new.cli::<()>(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    until("the replica follows", || (new.info("replication", "master_link_status") == "up").then_some(()));
    old.cli::<u64>(&["WAIT", "1", "0"]);
    new.cli::<()>(&["REPLICAOF", "NO", "ONE"]);
    // Cut off: this gateway cannot read the revocation in the log of the old primary.
    proxies[1].refuse(true);
    proxies[1].cut();
    one.revoke(&revoked);
    kept.push(open_tunnel(&one, &good.text));
    assert_eq!([slots_taken(old, &good), slots_taken(new, &good)], [SLOTS, SLOTS - 1]);
    old.kill();
    for proxy in &proxies {
        proxy.redirect(new.address());
        proxy.cut();
        proxy.refuse(false);
    }
    assert_eq!(end_of(of_revoked), End::Reset);
    for gateway in [&one, &two] {
        assert_eq!(Client::connect(gateway.address).get("/x", &revoked.text).code(), "invalid_token");
    }
    eventually("all slots are counted", || slots_taken(new, &good) == SLOTS);
    kept.iter_mut().for_each(assert_open);
    for gateway in [&one, &two] {
        assert!(try_open_tunnel(gateway.address, &good.text).is_none(), "the limit is reached");
    }
    drop(kept.pop());
    kept.push(until("one slot is free", || try_open_tunnel(two.address, &good.text)));
    assert!(try_open_tunnel(one.address, &good.text).is_none(), "one slot was free");
    drop(kept);
    eventually("no slot is taken", || slots_taken(new, &good) == 0);
}

/// Slots of the organization of a key that are taken, as a server counts them.
fn slots_taken(server: &Redis, key: &Key) -> u32 {
    let live: Vec<u8> = server.cli(&["HGET", &format!("keygate:{{{}}}:org", key.id.tag().as_str()), "live"]);
    let [_, taken, ..] = live.as_chunks::<8>().0 else { panic!("the slots are there") };
    f64::from_le_bytes(*taken) as u32
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
    // A withdrawal, as any change of permissions, ends nothing that is open.
    let withdrawn = one.key();
    let mut of_withdrawn = open_tunnel(&two, &withdrawn.text);
    let user = format!("keygate:{{{}}}:user:{}", withdrawn.id.tag().as_str(), withdrawn.user);
    assert_eq!(redis.cli::<u64>(&["EXISTS", &user]), 1, "{user}");
    redis.cli::<u64>(&["HSET", &user, "withdrawn", "1"]);
    // A gateway that has revoked the key and died before it wrote the entry; then the log is lost, as by a failover.
    let record = format!("keygate:{{{}}}:key:{}", key.id.tag().as_str(), key.id.as_str());
    assert_eq!(redis.cli::<u64>(&["EXISTS", &record]), 1, "{record}");
    redis.cli::<u64>(&["HSET", &record, "revoked", "1"]);
    // The record has the identity of the state as well, without which nothing would be served.
    let entries: Vec<String> = redis.cli(&["HKEYS", LOG]);
    let identity = ["identity", "changes", "changed", "replaces"];
    let entries = entries.iter().map(String::as_str).filter(|name| !identity.contains(name));
    redis.cli::<u64>(&["HDEL", LOG].into_iter().chain(entries).collect::<Vec<_>>());
    assert_eq!(end_of(tunnel), End::Reset);
    assert_open(&mut kept);
    assert_open(&mut of_withdrawn);
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
    // A gateway may be ready still because it has not noticed that Redis was away.
    eventually("the revocation is acknowledged", || {
        one.try_perform(async |to, now| management::revoke_key(to, OPERATOR, key.id, now).await).is_ok()
    });
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
    let mut kept: Vec<String> = redis.cli(&["HKEYS", LOG]);
    kept.retain(|name| name.bytes().all(|c| c.is_ascii_digit()));
    kept.sort_unstable();
    assert_eq!(last, "20001");
    assert_eq!(kept, ["20000", "20001"], "the oldest entry is gone");
}
