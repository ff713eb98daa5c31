//! Limits on the wire: the bucket of a key, and the slots of an organization.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use control::management::{self, LimitUpdate};
use domain::budget::{BudgetSubject, Period, PeriodSpan};
use domain::clock;
use domain::refusal::Refusal;
use journal::audit::{AuditView, Outcome, Record, SpentBy};

use crate::support::gateway::OPERATOR;
use crate::support::updates::limit;
use crate::support::{Client, Gateway, Key, Response, Upstream, eventually, head};

#[test]
fn request_1001_of_a_full_bucket_is_refused() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let mut client = Client::connect(gateway.address);
    let policy = "\"key\";q=1000;w=3600, \"org\";q=100;qu=\"concurrent-requests\"";
    let mut admitted = 0;
    let refused = loop {
        let response = client.get("/", &key);
        assert_eq!(response.header("ratelimit-policy"), Some(policy));
        if response.status != 200 {
            break response;
        }
        admitted += 1;
        assert!(admitted <= 1010, "the bucket never empties");
    };
    // A token comes in every 3.6 s: some may have come while the requests ran.
    assert!((1000..=1010).contains(&admitted), "{admitted}");
    assert_eq!(refused.code(), "rate_limited");
    let problem = refused.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["violated-policies"], serde_json::json!(["key"]));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=4).contains(&retry), "{retry}");
    assert_eq!(refused.header("ratelimit"), Some(&*format!("\"key\";r=0;t={retry}, \"org\";r=100")));
    assert_eq!(upstream.count(), admitted);
    assert_eq!(client.get("/", &gateway.key().text).status, 200, "another key has a bucket of its own");
}

#[test]
fn ratelimit_header_counts_down() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(
        &[upstream.address],
        "limits: { key: { requests: 5, per: 1000s, burst: 5 }, org: { concurrent: 7 } }",
    );
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for left in (0..5).rev() {
        let response = client.get("/", &key);
        let shown = response.header("ratelimit").unwrap().to_owned();
        assert!(shown.starts_with(&format!("\"key\";r={left};t=")), "{shown}");
        assert!(shown.ends_with("\"org\";r=6"), "{shown}");
    }
    assert_eq!(client.get("/", &key).status, 429);
}

#[test]
fn bucket_is_not_refilled_by_a_restart() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::start(&upstream);
    let key = gateway.key().text;
    let left = |gateway: &Gateway| {
        let shown = Client::connect(gateway.address).get("/", &key).header("ratelimit").unwrap().to_owned();
        shown.split([';', '=']).nth(2).unwrap().parse::<u32>().unwrap()
    };
    (0..50).for_each(|_| assert!(left(&gateway) > 900));
    let before = left(&gateway);
    gateway.restart(&upstream);
    let after = left(&gateway);
    // One more token was taken; one or two may have come in meanwhile.
    assert!(before < 960 && after <= before + 2, "{before} were left before the restart, {after} after it");
}

const COSTS: &str = "limits: { key: { requests: 10, per: 1000s } }\n\
                     routes: [{ name: report, path: '/reports/**', cost: 4 }, { name: rest, path: '/**' }]";

#[test]
fn request_takes_the_cost_of_its_route() {
    let (upstream, gateway, key) = Gateway::with_key(COSTS);
    let mut client = Client::connect(gateway.address);
    let left = |response: &Response| {
        response.header("ratelimit").unwrap().split([';', '=']).nth(2).unwrap().parse::<u32>().unwrap()
    };
    for (path, expected) in [("/reports/1", 6), ("/", 5), ("/reports/2", 1)] {
        let response = client.get(path, &key.text);
        assert_eq!((response.status, left(&response)), (200, expected), "{path}");
    }
    let refused = client.get("/reports/3", &key.text);
    assert_eq!((refused.code(), left(&refused)), ("rate_limited".into(), 1));
    // Three more tokens, one in every 100 s.
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((290..=300).contains(&retry), "{retry}");
    assert_eq!(client.get("/", &key.text).status, 200, "what is left is enough for a request that costs less");
    assert_eq!(upstream.count(), 4);
    let records = gateway.records();
    let costs: Vec<_> = records.iter().rev().map(|record| (record.action.as_str(), record.cost)).collect();
    let report = ("report", Some(4));
    assert_eq!(costs, [report, ("rest", None), report, ("report", None), ("rest", None)], "a refused one took nothing");
}

#[test]
fn cost_above_the_burst_of_a_key_is_refused_for_good() {
    let (upstream, gateway, key) = Gateway::with_key(COSTS);
    let own = LimitUpdate { requests: Some(3), per: Some(Duration::from_secs(1)), burst: Some(3) };
    gateway.perform(async |to, now| management::update_key(to, OPERATOR, key.id, limit(Some(own)), now).await);
    let mut client = Client::connect(gateway.address);
    let refused = client.get("/reports/1", &key.text);
    assert_eq!((refused.status, refused.code()), (403, "cost_over_limit".into()));
    assert!(refused.header("retry-after").is_none() && refused.header("ratelimit").is_some());
    assert_eq!(client.get("/", &key.text).status, 200);
    assert_eq!(upstream.count(), 1);
    let outcome = Outcome::Refused(Refusal::CostOverLimit);
    assert!(gateway.records().iter().any(|record| record.outcome == outcome && record.cost.is_none()));
}

const BUDGET: &str = "plans: { sold: { requests: 100, per: 1s, quota: { units: 10, per: month, of: org } } }\n\
                      limits: { plan: sold }\n\
                      routes: [{ name: report, path: '/reports/**', cost: 4 }, { name: rest, path: '/**' }]";

/// Units that are left of a budget, and the seconds of its period that are left, by `RateLimit`.
pub(crate) fn budget_left(response: &Response) -> (u64, u64) {
    let item = response.header("ratelimit").unwrap().split(", ").find(|item| item.starts_with("\"quota\"")).unwrap();
    let mut numbers = item.split(';').skip(1).map(|number| number[2..].parse::<u64>().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn budget_is_spent_by_all_keys_and_lasts_until_the_end_of_its_period() {
    let (upstream, mut gateway, key) = Gateway::with_key(BUDGET);
    let mut client = Client::connect(gateway.address);
    for (path, left) in [("/reports/1", 6), ("/", 5), ("/reports/2", 1)] {
        let response = client.get(path, &key.text);
        assert_eq!((response.status, budget_left(&response).0), (200, left), "{path}");
    }
    let refused = client.get("/reports/3", &key.text);
    assert_eq!((refused.status, refused.code()), (429, "quota_exhausted".into()));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["quota"]));
    let retry: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    let (left, seconds) = budget_left(&refused);
    let end = Period::Month.around(clock::now()).end.since(clock::now()) / 1_000_000;
    assert!(left == 1 && retry.abs_diff(seconds) <= 1 && retry.abs_diff(end) <= 60, "{left} {retry} {seconds} {end}");
    let policy = refused.header("ratelimit-policy").unwrap();
    assert!(policy.contains("\"quota\";q=10;w=2"), "{policy}");
    assert_eq!(client.get("/", &key.text).status, 200, "what is left is enough for it");
    let second = gateway.key();
    // Keys of one organization spend it together; the helper makes an organization for each.
    assert_eq!(budget_left(&client.get("/reports/4", &second.text)).0, 6);
    assert_eq!(upstream.count(), 5);
    let outcome = Outcome::Refused(Refusal::QuotaExhausted);
    assert_eq!(gateway.records().iter().filter(|record| record.outcome == outcome).count(), 1);
    // A restart, and another limit with the next request.
    drop(client);
    gateway.restart_with(|text| text.replace("units: 10", "units: 14"));
    let mut client = Client::connect(gateway.address);
    assert_eq!(budget_left(&client.get("/reports/5", &key.text)).0, 0);
    assert_eq!(client.get("/", &key.text).code(), "quota_exhausted");
}

#[test]
fn budget_that_is_nearly_spent_is_recorded_once_also_after_a_restart() {
    let (_upstream, mut gateway, key) = Gateway::with_key(BUDGET);
    let near = |gateway: &Gateway, key: &Key| {
        gateway.changes("quota.near").into_iter().filter(|record| record.org_id == Some(key.org)).collect::<Vec<_>>()
    };
    let spend = |gateway: &Gateway, key: &Key, requests: usize| {
        let mut client = Client::connect(gateway.address);
        (0..requests).for_each(|_| assert_eq!(client.get("/", &key.text).status, 200));
    };
    // Budgets are announced one after the other: that of another organization comes after what was due before.
    let announce_another = |gateway: &Gateway| {
        let another = gateway.key();
        spend(gateway, &another, 8);
        eventually("it is announced", || near(gateway, &another).len() == 1);
    };
    spend(&gateway, &key, 7);
    announce_another(&gateway);
    assert!(near(&gateway, &key).is_empty(), "70 %");
    spend(&gateway, &key, 3);
    announce_another(&gateway);
    gateway.restart_with(str::to_owned);
    assert_eq!(Client::connect(gateway.address).get("/", &key.text).code(), "quota_exhausted");
    announce_another(&gateway);
    let found = near(&gateway, &key);
    let [record] = &found[..] else { panic!("{found:?}") };
    let (spent, start) = record.path.rsplit_once('/').unwrap();
    assert_eq!((spent, record.actor.as_deref()), ("quota.near/8/10", Some("gateway")));
    assert!(start.parse::<domain::clock::Micros>().unwrap() < record.time, "{start}");
    assert_eq!((record.outcome, record.subject, record.key_id), (Outcome::Completed, None, None));
}

/// Answers with the cost that the path says: in the head, in trailers, in a document, or in an event of a stream that
/// ends or is cut: `/head/12`, `/trailers/12`, `/document/12`, `/stream/12`, `/cut/12`, `/none`.
pub(crate) fn metered_upstream() -> Upstream {
    Upstream::answering(|request, stream| {
        let mut parts = request.path().split('/').skip(1);
        let answer = match (parts.next(), parts.next()) {
            (Some("head"), Some(cost)) => format!("HTTP/1.1 200 OK\r\nx-cost: {cost}\r\ncontent-length: 0\r\n\r\n"),
            (Some("twice"), Some(cost)) => {
                format!("HTTP/1.1 200 OK\r\nx-cost: {cost}\r\nx-cost: {cost}\r\ncontent-length: 0\r\n\r\n")
            }
            (Some("trailers"), Some(cost)) => {
                format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-cost: {cost}\r\n\r\n")
            }
            (Some("document"), Some(cost)) => {
                let body = format!("{{\"usage\":{{\"tokens\":{cost}}}}}");
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
            }
            (Some(kind @ ("stream" | "cut")), Some(cost)) => {
                let end = if kind == "stream" { "0\r\n\r\n" } else { "" };
                let event = format!("data: {{\"usage\":{{\"tokens\":{cost}}}}}\n\ndata: [DONE]\n\n");
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
                     {:x}\r\n{event}\r\n{end}",
                    event.len()
                )
            }
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).ok();
        if request.path().starts_with("/cut/") {
            stream.shutdown(Shutdown::Both).ok();
        }
    })
}

#[test]
fn response_says_what_its_request_has_cost() {
    let upstream = metered_upstream();
    let blocks = "plans: { sold: { requests: 100, per: 1s, quota: { units: 1000, per: month, of: org } } }\n\
                  limits: { plan: sold }\n\
                  routes: [{ name: chat, path: '/**', cost: { at_most: 100, from: X-Cost, from_body: usage.tokens } }]";
    let (mut gateway, key) = Gateway::with(&[upstream.address], blocks).and_secret();
    let mut client = Client::connect(gateway.address);
    let mut left = 1000;
    for (path, cost) in [
        ("/head/12", 12),
        ("/trailers/30", 30),
        ("/document/20", 20),
        ("/document/null", 100),
        ("/stream/40", 40),
        ("/none", 100),
        ("/twice/5", 100),
        ("/head/many", 100),
        ("/head/0", 0),
        ("/head/150", 150),
    ] {
        let response = client.get(path, &key);
        assert_eq!(response.status, 200, "{path}");
        // The decision has reserved 100; the rest comes back when the exchange has ended.
        assert_eq!(budget_left(&response).0, left - 100, "{path}");
        left -= cost;
        eventually("the exchange has ended", || {
            gateway.records().len() as u64
                == gateway.metric("keygate_requests_total{code=\"200\",route=\"chat\"}") as u64
        });
    }
    let costs: Vec<Option<u64>> = gateway.records().iter().rev().map(|record| record.cost).collect();
    assert_eq!(costs, [12, 30, 20, 100, 40, 100, 100, 100, 0, 150].map(Some));
    // A stream that is cut says nothing: it may have cost more.
    let mut other = TcpStream::connect(gateway.address).unwrap();
    write!(other, "GET /cut/7 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n")
        .unwrap();
    other.read_to_end(&mut Vec::new()).ok();
    eventually("the cut exchange is recorded", || gateway.records().len() == costs.len() + 1);
    assert_eq!((gateway.records()[0].outcome, gateway.records()[0].cost), (Outcome::UpstreamError, Some(100)));
    left -= 100;
    assert_eq!(gateway.metric("keygate_cost_over_total{route=\"chat\"}"), 1.0);
    // It is exact after a restart, too.
    drop(client);
    gateway.restart_with(str::to_owned);
    let response = Client::connect(gateway.address).get("/head/1", &key);
    assert_eq!(budget_left(&response).0, left - 100);
}

#[test]
fn settled_requests_are_one_sum_in_the_counter_the_audit_and_the_usage() {
    const UNITS: u64 = 1_000_000_000;
    let upstream = metered_upstream();
    let blocks = format!(
        "plans: {{ sold: {{ requests: 100000, per: 1s, quota: {{ units: {UNITS}, per: month, of: org }} }} }}\n\
         limits: {{ plan: sold }}\n\
         routes: [{{ name: chat, path: '/**', cost: {{ at_most: 100, from: X-Cost }} }}]"
    );
    let (gateway, key) = Gateway::with(&[upstream.address], &blocks).and_key();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.address);
                (0..2500).for_each(|n| assert_eq!(client.get(&format!("/head/{}", n % 125), &key.text).status, 200));
            });
        }
    });
    // 0 + 1 + … + 124, 80 times.
    let sum = 80 * 125 * 124 / 2;
    let records = gateway.records();
    let budget = records[0].budget.clone();
    assert!(records.len() == 10_000 && records.iter().all(|record| record.budget == budget));
    assert_eq!(records.iter().map(|record| record.cost.unwrap()).sum::<u64>(), sum);
    let view = AuditView::of_directory(&gateway.dir.path().join("audit")).unwrap();
    let (subject, now) = (BudgetSubject::Org(key.org), clock::now());
    let PeriodSpan { start: from, end: before } = Period::Month.around(now);
    assert_eq!(view.units_of_gateway(&SpentBy { subject, from, before }, now).unwrap(), sum);
    let left = budget_left(&Client::connect(gateway.address).get("/head/0", &key.text)).0;
    assert_eq!(UNITS - left, sum + 100, "the last one is open");
}

#[test]
fn request_that_no_upstream_was_sent_gives_its_budget_back() {
    let unused = crate::support::free_address();
    let mut gateway = Gateway::with(&[unused], BUDGET);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for _ in 0..5 {
        let response = client.get("/reports/1", &key);
        assert_eq!((response.status, response.code()), (503, "upstream_unavailable".into()));
    }
    let upstream = Upstream::start();
    let records = gateway.records();
    assert!(records.len() == 5 && records.iter().all(|record| record.cost == Some(0)), "{records:?}");
    gateway.restart_with(|text| text.replace(&unused.to_string(), &upstream.address.to_string()));
    assert_eq!(budget_left(&Client::connect(gateway.address).get("/reports/1", &key)).0, 6);
}

/// Upstream that answers at once, with a body that ends when the gate is opened.
struct GatedUpstream {
    open: Arc<(Mutex<bool>, Condvar)>,
    upstream: Upstream,
}

impl GatedUpstream {
    fn new() -> Self {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let gate = Arc::clone(&open);
        let upstream = Upstream::answering(move |request, stream| {
            if request.path() == "/fast" {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok();
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n").ok();
            let (open, changed) = &*gate;
            drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            stream.write_all(b"0\r\n\r\n").ok();
        });
        Self { open, upstream }
    }

    fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

#[test]
fn request_101_in_flight_is_refused() {
    let gate = GatedUpstream::new();
    let gateway = Gateway::start(&gate.upstream);
    let (ours, theirs) = (gateway.key(), gateway.key());
    let mut waiting: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::connect(gateway.address);
            client.send(head("GET", "/slow", &ours.text, &[], 0));
            assert_eq!(client.head().unwrap().0, 200, "the slot is held by the body, not by the head");
            client
        })
        .collect();
    let mut client = Client::connect(gateway.address);
    let refused = client.get("/fast", &ours.text);
    assert_eq!(refused.code(), "too_many_in_flight");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["org"]));
    let retries = (0..60).map(|_| client.get("/fast", &ours.text).header("retry-after").unwrap().to_owned());
    let retries: std::collections::BTreeSet<String> = retries.collect();
    assert_eq!(retries.into_iter().collect::<Vec<_>>(), ["1", "2", "3"], "at random, so that clients spread");
    assert!(refused.json()["detail"].as_str().unwrap().contains("exponential backoff"));
    assert!(refused.header("ratelimit").unwrap().ends_with("\"org\";r=0"));
    assert_eq!(client.get("/fast", &theirs.text).status, 200, "another organization is not affected");

    drop(waiting.pop());
    eventually("a client that leaves gives its slot back", || client.get("/fast", &ours.text).status == 200);
    gate.open();
    eventually("responses that end give theirs back", || gateway.metric("keygate_in_flight") == 0.0);
    assert_eq!(client.get("/fast", &ours.text).status, 200);
}

#[test]
fn slot_is_given_back_when_the_upstream_fails() {
    let upstream = Upstream::answering(|_, stream| drop(stream.shutdown(std::net::Shutdown::Both)));
    let (gateway, key) = Gateway::with(&[upstream.address], "limits: { org: { concurrent: 1 } }").and_secret();
    for _ in 0..10 {
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 502);
    }
}

#[test]
fn slots_are_given_back_after_ten_thousand_random_aborts() {
    let upstream = Upstream::answering(|_, stream| {
        let body = "x".repeat(3000);
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: 6000\r\n\r\n{body}").as_bytes()).ok();
        stream.write_all(body.as_bytes()).ok();
    });
    let gateway = Gateway::with(
        &[upstream.address],
        "limits: { key: { requests: 1000000, per: 1s, burst: 1000000 }, org: { concurrent: 1000 } }",
    );
    let owner = gateway.key();
    let key = owner.text.clone();
    let bytes = head("POST", "/x", &key, &[], 100) + &"b".repeat(100);
    let abort = |seed: usize| {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
        let mut stream = std::net::TcpStream::connect(gateway.address).unwrap();
        let sent = if seed.is_multiple_of(3) { bytes.len() } else { random % (bytes.len() + 1) };
        stream.write_all(&bytes.as_bytes()[..sent]).unwrap();
        random /= 1000;
        if sent == bytes.len() && random.is_multiple_of(2) {
            let mut buffer = vec![0; random % 7000 + 1];
            // Reads a part of the response, if any comes, and closes.
            drop(stream.read(&mut buffer));
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (0..2500).for_each(|i| abort(thread * 2500 + i)));
        }
    });
    eventually("nothing is in flight", || gateway.metric("keygate_in_flight") == 0.0);
    eventually("all connections are gone", || gateway.metric("keygate_connections") == 0.0);
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(gateway.address)).collect();
    assert!(clients.iter_mut().all(|client| client.get("/", &key).status == 200));
    eventually("all slots are back", || gateway.explain_in_flight(&owner) == 0);
}

/// Beyond the limit, a key that is known and refused is answered like one that does not exist, over connections that
/// end alike; its uses are recorded all the same.
#[test]
fn keys_that_are_known_and_refused_are_limited_like_unknown_ones() {
    let upstream = Upstream::start();
    let limits = "limits: { bad_keys: { requests: 120, per: 1h, burst: 120 } }\ntrusted_proxies: [127.0.0.1]\n";
    let gateway = Gateway::with(&[upstream.address], limits);
    let good = gateway.key();
    let [disabled, revoked, elsewhere, suspended] = [(); 4].map(|()| gateway.key());
    gateway.disable(&disabled);
    gateway.revoke(&revoked);
    let networks = serde_json::from_value(serde_json::json!({ "networks": ["10.0.0.0/8"] })).unwrap();
    gateway.set_policy(elsewhere.id, networks);
    gateway.suspend_user(&suspended);
    let unknown = format!("legacy-{}", good.text);
    let keys = [&unknown, &disabled.text, &revoked.text, &elsewhere.text, &suspended.text];
    let answers = |client: &str, key: &str| {
        let mut connection = Client::connect(gateway.address);
        let answer = |_| {
            let response = connection.request("GET", "/", key, &[("X-Forwarded-For", client)], b"");
            let has_closed = response.header("connection") == Some("close");
            if has_closed {
                connection = Client::connect(gateway.address);
            }
            let problem: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            (response.status, problem["code"].to_string(), problem["detail"].to_string(), has_closed)
        };
        (0..130).map(answer).collect::<Vec<_>>()
    };
    let each: Vec<_> =
        keys.iter().enumerate().map(|(number, key)| answers(&format!("192.0.2.{number}"), key)).collect();
    assert!(each[1..].iter().all(|answers| *answers == each[0]), "{each:#?}");
    let statuses: Vec<u16> = each[0].iter().map(|(status, ..)| *status).collect();
    assert_eq!(statuses, [vec![401; 120], vec![429; 10]].concat());
    assert!(each[0][99].3 && !each[0][98].3, "a connection closes after a hundred refusals of any key");
    let recorded = |key: &Key| {
        let records = gateway.records();
        records.iter().filter(|record| record.key_id == Some(key.id)).map(Record::uses).sum::<u64>()
    };
    for key in [&disabled, &revoked, &elsewhere, &suspended] {
        eventually("all uses of the key are recorded", || recorded(key) == 130);
    }
    let mut client = Client::connect(gateway.address);
    let admitted = client.request("GET", "/", &good.text, &[("X-Forwarded-For", "192.0.2.0")], b"");
    assert_eq!(admitted.status, 200, "the same address with a good key");
}

#[test]
fn wrong_checksum_is_told_and_needs_no_look_up() {
    let (_upstream, gateway, key) = Gateway::with_secret("");
    let mistyped = format!("{}{}", &key[..key.len() - 1], if key.ends_with('x') { "y" } else { "x" });
    for (key, says) in [(&*mistyped, "not a complete API key"), (&key[..20], "not valid")] {
        let response = Client::connect(gateway.address).get("/", key);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!((response.status, response.code().as_str()), (401, "invalid_token"));
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn invalid_keys_are_limited_and_valid_keys_are_not() {
    let (_upstream, gateway, key) = Gateway::with_secret("limits: { bad_keys: { requests: 3, per: 1h } }");
    let attempt = |bad: &str| Client::connect(gateway.address).get("/", bad);
    let unknown = format!("legacy-{key}");
    for bad in ["sk_live_bad", &unknown, "x"] {
        assert_eq!(attempt(bad).status, 401);
    }
    for bad in ["sk_live_bad", &unknown, "x"] {
        let response = attempt(bad);
        assert_eq!((response.status, response.code().as_str()), (429, "too_many_attempts"), "{bad}");
        let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
        assert!((1100..=1200).contains(&seconds), "{seconds}");
        assert_eq!(response.header("connection"), Some("close"));
        assert_eq!(attempt(&key).status, 200, "the same address with a good key");
    }
    assert_eq!(gateway.metric("keygate_attempts_refused_total"), 3.0);
    let unknown =
        gateway.records().iter().filter(|record| record.outcome == Outcome::Refused(Refusal::Unknown)).count();
    assert_eq!(unknown, 3, "the refused ones are not recorded");
}
