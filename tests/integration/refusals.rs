//! A key that is refused again and again: it costs bounded records and bounded work of Redis, all counts stay exact,
//! and it is admitted as soon as it may be.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use control::management::{self, LimitUpdate};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use journal::audit::{Outcome, Record};

use crate::support::gateway::{Key, OPERATOR};
use crate::support::redis::Redis;
use crate::support::updates::{limit, suspension};
use crate::support::{Client, Gateway, Upstream, eventually, head, lenient, over_http2, until};

/// One request an hour, as many attempts with invalid keys as anybody makes, and a route whose permission no user has.
const BLOCKS: &str = "
limits: { key: { requests: 1, per: 1h, burst: 1 }, bad_keys: { requests: 1000000, per: 1s } }
routes: [{ name: admin, path: /admin, permission: 'admin:all' }, { name: rest, path: '/**' }]
";

/// Requests on as many connections as it takes. Returns their number by code of the refusal, and the connections.
fn hammer(address: SocketAddr, path: &str, key: &str, times: usize) -> (HashMap<String, u64>, usize) {
    let (mut codes, mut connections) = (HashMap::new(), 0);
    let mut client = None;
    for _ in 0..times {
        let connected = client.get_or_insert_with(|| {
            connections += 1;
            Client::connect(address)
        });
        let response = connected.get(path, key);
        let code = if response.status == 200 { "ok".to_owned() } else { response.code() };
        *codes.entry(code).or_default() += 1;
        if response.header("connection") == Some("close") {
            client = None;
        }
    }
    (codes, connections)
}

fn uses(records: &[Record], key: &Key, outcome: &str) -> u64 {
    let of_key = |record: &&Record| record.key_id == Some(key.id) && record.outcome.name() == outcome;
    records.iter().filter(of_key).map(Record::uses).sum()
}

fn counted(entries: &[(&str, u64)]) -> HashMap<String, u64> {
    entries.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect()
}

fn raise_limit(gateway: &Gateway, key: &Key) {
    let limits = LimitUpdate { requests: Some(1_000_000), per: Some(Duration::from_secs(1)), burst: Some(1_000_000) };
    gateway.perform(async |to, now| management::update_key(to, OPERATOR, key.id, limit(Some(limits)), now).await);
}

/// The journal, the activity and the metrics agree with the clients' own counts.
#[test]
fn loops_of_refusals_are_counted_exactly_everywhere() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], BLOCKS);
    let (exhausted, revoked, forbidden, good) = (gateway.key(), gateway.key(), gateway.key(), gateway.key());
    gateway.revoke(&revoked);
    raise_limit(&gateway, &good);
    let address = gateway.address;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (codes, _) = hammer(address, "/", &exhausted.text, 1501);
            assert_eq!(codes, counted(&[("ok", 1), ("rate_limited", 1500)]));
        });
        scope.spawn(|| assert_eq!(hammer(address, "/", &revoked.text, 1500).0, counted(&[("invalid_token", 1500)])));
        scope.spawn(|| {
            assert_eq!(hammer(address, "/admin", &forbidden.text, 1500).0, counted(&[("insufficient_scope", 1500)]));
        });
        scope.spawn(|| assert_eq!(hammer(address, "/", &good.text, 200).0, counted(&[("ok", 200)])));
    });
    let count_of = |key: &Key, outcome: &str| uses(&gateway.records(), key, outcome);
    for (key, outcome) in [(&exhausted, "rate_limited"), (&revoked, "revoked"), (&forbidden, "forbidden")] {
        eventually("the last second is recorded", || count_of(key, outcome) == 1500);
        let org = key.org.to_string();
        let activity =
            gateway.perform(async |to, now| management::key_activity(to, OPERATOR, &org, vec![key.id], now).await).keys;
        assert_eq!(activity[&key.id].hours.iter().map(|hour| hour.refusals).sum::<u64>(), 1500);
    }
    let records = gateway.records();
    assert_eq!((uses(&records, &good, "completed"), uses(&records, &exhausted, "completed")), (200, 1));
    assert!(records.iter().filter(|record| record.outcome == Outcome::Completed).all(|record| record.count.is_none()));
    let changes = 4 * 3 + 1 + 1;
    assert_eq!(gateway.metric("keygate_audit_records_total{result=\"written\"}"), (4701 + changes) as f64);
    assert!(gateway.metric("keygate_audit_refusals_coalesced_total") > 1000.0);
}

#[test]
fn connection_closes_after_a_hundred_refusals_in_a_row() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], BLOCKS);
    let (key, other) = (gateway.key(), gateway.key());
    gateway.revoke(&key);
    let address = gateway.address;
    assert_eq!(hammer(address, "/", &key.text, 350), (counted(&[("invalid_token", 350)]), 4));
    // An admitted request in between begins a new row.
    let mut client = Client::connect(gateway.address);
    (0..99).for_each(|_| assert_eq!(client.get("/", &key.text).header("connection"), None));
    assert_eq!(client.get("/", &other.text).status, 200);
    (0..99).for_each(|_| assert_eq!(client.get("/", &key.text).header("connection"), None));
    assert_eq!(client.get("/", &key.text).header("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn http2_connection_gets_a_goaway_after_a_hundred_refusals_in_a_row() {
    let (_upstream, gateway, key) = Gateway::with_key(BLOCKS);
    gateway.revoke(&key);
    let served = over_http2(gateway.address, async |mut sender: SendRequest<Full<Bytes>>| {
        let mut served = 0;
        // A request that crosses the GOAWAY may still be served.
        while sender.ready().await.is_ok() && served < 110 {
            let request = Request::get(format!("http://{}/", gateway.address));
            let request =
                request.header("authorization", format!("Bearer {}", key.text)).body(Full::default()).unwrap();
            let Ok(response) = sender.send_request(request).await else { break };
            assert_eq!((response.status().as_u16(), response.headers().get("connection")), (401, None));
            response.into_body().collect().await.unwrap();
            served += 1;
        }
        served
    });
    assert!((100..=105).contains(&served), "{served}");
}

/// A gateway on this Redis.
fn over(redis: &Redis, upstream: &Upstream) -> Gateway {
    let state = format!("{BLOCKS}state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n", redis.url());
    Gateway::with(&[upstream.address], &state)
}

/// Scripts that Redis runs for as many refused requests.
fn scripts(redis: &Redis, requests: impl FnOnce()) -> u64 {
    redis.cli::<String>(&["CONFIG", "RESETSTAT"]);
    requests();
    redis.command_calls("evalsha").0
}

#[test]
fn redis_is_not_asked_about_a_key_that_is_refused_again_and_again() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateway = over(&redis, &upstream);
    let address = gateway.address;
    let (exhausted, revoked, forbidden) = (gateway.key(), gateway.key(), gateway.key());
    gateway.revoke(&revoked);
    assert_eq!(Client::connect(gateway.address).get("/", &exhausted.text).status, 200);
    for (path, key, code) in [
        ("/", &exhausted, "rate_limited"),
        ("/", &revoked, "invalid_token"),
        ("/admin", &forbidden, "insufficient_scope"),
    ] {
        let begun = Instant::now();
        let calls = scripts(&redis, || assert_eq!(hammer(address, path, &key.text, 1000).0, counted(&[(code, 1000)])));
        // Three refusals before the verdict, one or some a second after it, and five heartbeats.
        let bound = 20 + 20 * (begun.elapsed().as_secs() + 1);
        assert!(calls <= bound, "{code}: {calls} scripts for 1000 requests");
    }
    // The fields of the response stay right while the verdict holds.
    let mut client = Client::connect(gateway.address);
    let response = client.get("/", &exhausted.text);
    let retry: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&retry), "{retry}");
    assert_eq!(response.header("ratelimit"), Some(&*format!("\"key\";r=0;t={retry}, \"org\";r=100")));
}

#[test]
fn verdict_ends_when_the_next_token_has_come() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let gateway = over(&redis, &upstream);
    let key = gateway.key();
    let limits = LimitUpdate { requests: Some(20), per: Some(Duration::from_secs(1)), burst: Some(1) };
    gateway.perform(async |to, now| management::update_key(to, OPERATOR, key.id, limit(Some(limits)), now).await);
    let begun = Instant::now();
    let (codes, _) = hammer(gateway.address, "/", &key.text, 2000);
    let tokens = begun.elapsed().as_secs_f64() * 20.0;
    let admitted = codes["ok"] as f64;
    assert!(admitted <= tokens + 2.0 && admitted >= tokens / 2.0 - 2.0, "{admitted} of {tokens} tokens were used");
}

/// A change by this gateway admits the key at once, one by another gateway within a second; a revocation stays.
#[test]
fn change_that_admits_a_refused_key_ends_its_verdict() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let [one, other] = [over(&redis, &upstream), over(&redis, &upstream)];
    let status =
        |gateway: &Gateway, path: &str, key: &Key| Client::connect(gateway.address).get(path, &key.text).status;
    // The notice of a suspension resets what is open when it arrives: after the resumption as well, if that was quick.
    let status_unless_reset = |path: &str, key: &Key| {
        let mut client = Client::connect(one.address);
        client.send(head("GET", path, &key.text, &[], 0));
        client.try_response_to("GET").map(|response| response.status)
    };
    for changed_by in [&one, &other] {
        let (exhausted, forbidden, suspended, revoked) = (one.key(), one.key(), one.key(), one.key());
        assert_eq!(status(&one, "/", &exhausted), 200);
        one.suspend(&suspended);
        one.revoke(&revoked);
        let cases = [("/", &exhausted, 429), ("/admin", &forbidden, 403), ("/", &suspended, 403), ("/", &revoked, 401)];
        for (path, key, refused) in cases {
            (0..20).for_each(|_| assert_eq!(status(&one, path, key), refused));
        }
        raise_limit(changed_by, &exhausted);
        changed_by.permit(&forbidden, &["admin:all"]);
        let org = suspended.org.to_string();
        changed_by.perform(async |to, now| management::update_org(to, OPERATOR, &org, suspension(false), now).await);
        let changed = Instant::now();
        for (path, key, _) in &cases[..3] {
            if std::ptr::eq(changed_by, &one) {
                let outcome = until("a request is not reset", || match status_unless_reset(path, key) {
                    Err(_) if std::ptr::eq(*key, &suspended) => None,
                    outcome => Some(outcome),
                });
                assert_eq!(outcome.unwrap(), 200);
            } else {
                eventually("another gateway's change is seen", || {
                    status_unless_reset(path, key).is_ok_and(|status| status == 200)
                });
                assert!(changed.elapsed() < lenient(Duration::from_millis(1500)), "{:?}", changed.elapsed());
            }
        }
        assert_eq!(status(&one, "/", &revoked), 401);
    }
}

/// A request that costs more than is left is refused again and again, and one that costs less is admitted meanwhile.
#[test]
fn verdict_is_by_the_cost_of_a_request() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let blocks = format!(
        "state: {{ redis: {{ url: '{}', deadline: 2s }} }}\nlimits: {{ key: {{ requests: 10, per: 1h }} }}\n\
         routes: [{{ name: report, path: /report, cost: 8 }}, {{ name: rest, path: '/**' }}]",
        redis.url()
    );
    let gateway = Gateway::with(&[upstream.address], &blocks);
    let key = gateway.key();
    let ok = |count| counted(&[("ok", count)]);
    assert_eq!(hammer(gateway.address, "/report", &key.text, 1).0, ok(1));
    assert_eq!(hammer(gateway.address, "/report", &key.text, 50).0, counted(&[("rate_limited", 50)]));
    assert_eq!(hammer(gateway.address, "/", &key.text, 2).0, ok(2));
    assert_eq!(hammer(gateway.address, "/", &key.text, 1).0, counted(&[("rate_limited", 1)]));
}
