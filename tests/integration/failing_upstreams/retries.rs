//! Retries: which failed requests are sent again, to which endpoint, and how many.

use std::collections::HashSet;
use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use journal::audit::Outcome;

use super::{PLENTY, responding};
use crate::support::upstream::Received;
use crate::support::upstream_blocks::endpoints;
use crate::support::{Client, Gateway, Upstream, eventually, head, part_of, traffic_of};

/// Nothing is ejected.
pub const NO_EJECTION: &str = "outlier: { server_errors: 0, gateway_errors: 0, timeouts: 0 }";

/// Budget for every request of a test.
pub(super) const ALL: &str = "budget: 100";

/// Number of requests of which each endpoint gets the first try of half.
pub(super) const REQUESTS: usize = 16;

pub fn gateway(upstreams: &[&Upstream], retries: &str, blocks: &str) -> Gateway {
    gateway_at(&upstreams.iter().map(|upstream| upstream.address).collect::<Vec<_>>(), retries, blocks)
}

fn gateway_at(addresses: &[SocketAddr], retries: &str, blocks: &str) -> Gateway {
    // In turns: each endpoint has every other first try.
    let in_turns = format!("balance: {{ policy: round_robin }}, {NO_EJECTION}");
    let upstream = format!("{}, {in_turns}, retries: {{ {retries} }}", endpoints(addresses));
    Gateway::with(&[], &format!("{PLENTY}workers: 1\n{blocks}upstream: {{ {upstream} }}\n"))
}

pub(super) fn good() -> Upstream {
    responding(200, Duration::ZERO)
}

/// Upstream that breaks off every request.
pub(super) fn breaking() -> Upstream {
    Upstream::answering(|_, stream| drop(stream.shutdown(Shutdown::Both)))
}

pub fn retries(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!("keygate_upstream_retries_by_reason_total{{reason=\"{reason}\",upstream=\"default\"}}"))
}

fn ids(upstream: &Upstream) -> HashSet<String> {
    let id = |received: Received| received.header("x-request-id").unwrap().to_owned();
    upstream.received().into_iter().map(id).collect()
}

pub(super) fn statuses(gateway: &Gateway, method: &str, path: &str, body: &[u8]) -> Vec<u16> {
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    (0..REQUESTS).map(|_| client.request(method, path, &key, &[], body).status).collect()
}

#[test]
fn request_goes_to_another_endpoint_for_each_reason() {
    type Handler = fn(&Received, &mut TcpStream);
    let status = |status: &'static str| format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\nno");
    let [bad_gateway, unavailable, timeout] = ["502", "503", "504"].map(status);
    let answering = |bytes: String| Upstream::answering(move |_, stream| drop(stream.write_all(bytes.as_bytes())));
    let closing: Handler = |_, stream| drop(stream.shutdown(Shutdown::Both));
    let cases = [
        ("broken", ALL, Upstream::answering(closing)),
        ("status", ALL, answering(unavailable)),
        ("status", "budget: 100, statuses: [502, 504]", answering(bad_gateway)),
        ("status", "budget: 100, statuses: [502, 504]", answering(timeout)),
    ];
    for (reason, settings, failing) in cases {
        let good = good();
        let gateway = gateway(&[&failing, &good], settings, "");
        assert_eq!(statuses(&gateway, "GET", "/a?b", b""), [200; REQUESTS], "{reason}");
        assert_eq!((failing.count(), good.count()), (REQUESTS / 2, REQUESTS), "{reason}");
        assert!(ids(&failing).is_subset(&ids(&good)), "{reason}: the ids are the same");
        assert_eq!(retries(&gateway, reason), (REQUESTS / 2) as f64);
        assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), (REQUESTS / 2) as f64);
        // The cause that broke one connection may have broken all: a retry has one of its own. A status breaks none.
        let is_broken = reason == "broken";
        assert_eq!(good.connections() >= REQUESTS / 2, is_broken, "{reason}: {} connections", good.connections());
        let again = good
            .received()
            .into_iter()
            .find(|received| ids(&failing).contains(received.header("x-request-id").unwrap()));
        assert_eq!(again.unwrap().header("host"), Some(good.address.to_string().as_str()));
        if reason == "status" {
            let labels = format!("endpoint=\"{}\",result=\"ok\",upstream=\"default\"", failing.address);
            let answered = gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}"));
            assert_eq!(answered, (REQUESTS / 2) as f64, "responses in whose place another one answers");
        }
        let records = gateway.records();
        assert_eq!(records.len(), REQUESTS, "one record for each request, however often it is sent");
        assert!(records.iter().all(|record| record.outcome == Outcome::Completed));
    }
}

#[test]
fn silent_endpoint_is_given_up_for_another() {
    let (silent, good) = (Upstream::answering(|_, _| {}), good());
    let endpoints = format!("[\"http://{}\", \"http://{}\"]", silent.address, good.address);
    // Nearly every first try: the other endpoint's are not bounded by a time that a busy machine may need.
    let weights = format!("[{{ endpoint: \"{}\", weight: 1000 }}]", silent.address);
    let balance = format!("balance: {{ policy: round_robin, weights: {weights} }}");
    let settings = format!("{balance}, {NO_EJECTION}, retries: {{ budget: 100, per_try_timeout: 50ms }}");
    let gateway = Gateway::with(&[], &format!("{PLENTY}upstream: {{ endpoints: {endpoints}, {settings} }}\n"));
    assert_eq!(statuses(&gateway, "GET", "/", b""), [200; REQUESTS]);
    assert_eq!(statuses(&gateway, "PUT", "/", b"body"), [200; REQUESTS]);
    assert!(silent.count() > REQUESTS && ids(&silent).is_subset(&ids(&good)));
    assert_eq!(retries(&gateway, "timeout"), silent.count() as f64);
    let timeouts = gateway.metric("keygate_timeouts_total{kind=\"upstream_first_byte\"}");
    assert_eq!(timeouts, silent.count() as f64, "each is counted");
    assert!(good.connections() >= silent.count(), "each retry has a connection of its own");
    assert!(gateway.records().iter().all(|record| record.outcome == Outcome::Completed));
}

#[test]
fn stale_connections_are_replaced_at_another_endpoint() {
    // It closes each connection at its second request.
    let count = AtomicUsize::new(0);
    let closing = Upstream::answering(move |_, stream| {
        match count.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")),
            _ => drop(stream.shutdown(Shutdown::Both)),
        };
    });
    let good = good();
    let gateway = gateway(&[&closing, &good], ALL, "");
    assert_eq!(statuses(&gateway, "GET", "/", b""), [200; REQUESTS]);
    assert_eq!(retries(&gateway, "stale"), (REQUESTS / 4) as f64);
    assert_eq!(good.count(), REQUESTS / 2 + REQUESTS / 4);
    assert!(good.connections() >= REQUESTS / 4, "each retry has a connection of its own");
}

/// Method and body of a request, the settings of retries, an upstream that fails, and the status that its requests get.
type Unrepeated = (&'static str, &'static [u8], &'static str, fn() -> Upstream, u16);

#[test]
fn requests_that_may_not_be_repeated_are_not() {
    let cases: [Unrepeated; 9] = [
        ("POST", b"once", ALL, breaking, 502),
        ("PATCH", b"", ALL, breaking, 502),
        ("POST", b"once", ALL, || responding(503, Duration::ZERO), 503),
        ("PUT", &[b'x'; 1025], "budget: 100, max_body: 1KiB", breaking, 502),
        ("GET", b"", "budget: 0", breaking, 502),
        ("GET", b"", "attempts: 1", breaking, 502),
        ("GET", b"", "budget: 100, statuses: []", || responding(503, Duration::ZERO), 503),
        ("GET", b"", ALL, || responding(502, Duration::ZERO), 502),
        ("GET", b"", ALL, || responding(500, Duration::ZERO), 500),
    ];
    for (method, body, settings, failing, status) in cases {
        let (failing, good) = (failing(), good());
        let gateway = gateway(&[&failing, &good], settings, "");
        let statuses = statuses(&gateway, method, "/", body);
        let failures = statuses.iter().filter(|given| **given == status).count();
        assert_eq!(failures, REQUESTS / 2, "{method} {settings}: {statuses:?}");
        assert_eq!((failing.count(), good.count()), (REQUESTS / 2, REQUESTS / 2), "{method} {settings}");
        assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
    }
}

#[test]
fn silent_endpoint_is_not_given_up_for_a_request_that_may_not_be_repeated() {
    let slow = || responding(200, Duration::from_millis(200));
    let upstreams = [slow(), slow()];
    let gateway = gateway(&upstreams.each_ref(), "budget: 100, per_try_timeout: 20ms", "");
    assert_eq!(statuses(&gateway, "POST", "/", b"once"), [200; REQUESTS]);
    assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
}

#[test]
fn slow_endpoints_are_given_up_only_within_the_budget_and_answer_nevertheless() {
    let upstreams = [responding(200, Duration::from_millis(100)), responding(200, Duration::from_millis(100))];
    let gateway = gateway(&upstreams.each_ref(), "budget: 1, per_try_timeout: 10ms", "");
    assert_eq!(statuses(&gateway, "GET", "/", b""), [200; REQUESTS], "the last try has the rest of the time");
    assert_eq!(retries(&gateway, "timeout"), 10.0);
    let refused = gateway.metric("keygate_upstream_retries_refused_total{upstream=\"default\"}");
    assert!((1.0..=(REQUESTS - 10) as f64).contains(&refused), "{refused}");
}

#[test]
fn failure_after_a_byte_of_the_response_is_answered() {
    for (bytes, is_answered) in [(&b"H"[..], true), (b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\nok", false)] {
        let failing = Upstream::answering(move |_, stream| {
            stream.write_all(bytes).ok();
            stream.shutdown(Shutdown::Both).ok();
        });
        let good = good();
        let (gateway, key) = gateway(&[&failing, &good], ALL, "").and_secret();
        let failed = (0..REQUESTS).filter(|_| {
            let mut client = Client::connect(gateway.address);
            client.send(head("GET", "/", &key, &[], 0));
            match client.try_response_to("GET") {
                Ok(response) if response.status == 502 && is_answered => true,
                Ok(response) => response.status != 200,
                Err(_) => !is_answered,
            }
        });
        assert_eq!(failed.count(), REQUESTS / 2);
        assert_eq!((failing.count(), good.count()), (REQUESTS / 2, REQUESTS / 2));
        assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
    }
}

#[test]
fn partial_head_is_waited_for() {
    let halting = || {
        Upstream::answering(|_, stream| {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").ok();
            std::thread::sleep(Duration::from_millis(700));
            stream.write_all(b"content-length: 2\r\n\r\nok").ok();
        })
    };
    let upstreams = [halting(), halting()];
    let gateway = gateway(&upstreams.each_ref(), "budget: 100, per_try_timeout: 500ms", "");
    assert_eq!(Client::connect(gateway.address).get("/", &gateway.key().text).status, 200);
    assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
}

#[test]
fn small_bodies_are_sent_again_whole() {
    let failing = [breaking(), responding(503, Duration::ZERO)];
    for failing in &failing {
        for (method, path) in [("PUT", "/"), ("POST", "/again/a")] {
            let good = good();
            let routes =
                "routes:\n  - { name: again, path: /again/**, idempotent: true }\n  - { name: all, path: /** }\n";
            let (gateway, key) = gateway(&[failing, &good], "budget: 100, max_body: 100KiB", routes).and_secret();
            let mut client = Client::connect(gateway.address);
            // As many bytes as are kept.
            let body: Vec<u8> = (0..100 * 1024_u32).map(|number| (number % 251) as u8).collect();
            let before = failing.count();
            for number in 0..REQUESTS {
                let response = if number % 4 < 2 {
                    client.request(method, path, &key, &[], &body)
                } else {
                    client.send(head(method, path, &key, &[("Transfer-Encoding", "chunked")], 0));
                    for piece in body.chunks(7000) {
                        client.send(format!("{:x}\r\n", piece.len())).send(piece).send("\r\n");
                    }
                    client.send("0\r\n\r\n").response()
                };
                assert_eq!(response.status, 200, "{method}");
            }
            assert_eq!((failing.count() - before, good.count()), (REQUESTS / 2, REQUESTS), "{method}");
            assert!(good.received().iter().all(|received| received.body == body), "{method}");
            let sized = good.received().iter().filter(|received| received.header("content-length").is_some()).count();
            assert_eq!(sized, REQUESTS / 2, "framing is that of the first try");
        }
    }
}

#[test]
fn attempts_bound_the_tries_of_a_request() {
    for (attempts, tries) in [(2, 2), (3, 3), (5, 4)] {
        let failing = [breaking(), breaking(), breaking(), breaking()];
        let gateway = gateway(&failing.each_ref(), &format!("budget: 100, attempts: {attempts}"), "");
        let response = Client::connect(gateway.address).get("/", &gateway.key().text);
        assert_eq!((response.status, response.code().as_str()), (502, "upstream_failed"));
        assert!(response.json()["detail"].as_str().unwrap().contains("may have executed"));
        let counts = failing.each_ref().map(Upstream::count);
        assert!(counts.iter().all(|count| *count <= 1), "each endpoint once: {counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), tries);
        assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), (tries - 1) as f64);
    }
}

#[test]
fn failure_is_answered_when_no_other_endpoint_can_be_reached() {
    let failing = breaking();
    let gateway = gateway_at(&[failing.address, crate::support::free_address()], ALL, "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    eventually("its endpoint fails", || {
        let before = failing.count();
        let response = client.get("/", &key);
        assert_eq!((response.status, response.code().as_str()), (502, "upstream_failed"));
        failing.count() > before
    });
}

#[test]
fn response_is_answered_when_no_other_endpoint_can_be_reached() {
    let busy = responding(503, Duration::ZERO);
    let gateway = gateway_at(&[busy.address, crate::support::free_address()], ALL, "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    eventually("its endpoint answers", || {
        let response = client.get("/", &key);
        assert_eq!((response.status, &response.body[..]), (503, &b"ok"[..]), "that of the upstream");
        retries(&gateway, "status") == 1.0
    });
}

/// A request without an endpoint to go to takes nothing from the budget, and is not counted.
#[test]
fn request_that_only_one_endpoint_may_have_is_no_retry() {
    let failing = [breaking(), breaking()];
    let (one, two) = (gateway(&[&failing[0]], ALL, ""), gateway(&failing.each_ref(), "budget: 100, attempts: 3", ""));
    for (gateway, expected) in [(one, 0.0), (two, REQUESTS as f64)] {
        assert_eq!(statuses(&gateway, "GET", "/", b""), [502; REQUESTS]);
        assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), expected);
        assert_eq!(gateway.metric("keygate_upstream_retries_refused_total{upstream=\"default\"}"), 0.0);
    }
}

#[test]
fn body_that_is_too_large_to_keep_has_no_retry() {
    let slow = [(); 2].map(|()| responding(200, Duration::from_millis(300)));
    let gateway = gateway(&slow.each_ref(), "budget: 100, per_try_timeout: 50ms, max_body: 1KiB", "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    client.send(head("PUT", "/", &key, &[("Transfer-Encoding", "chunked")], 0));
    client.send("400\r\n").send([b'x'; 1024]).send("\r\n1\r\nx\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    for metric in ["retries_total", "retries_refused_total"] {
        assert_eq!(gateway.metric(&format!("keygate_upstream_{metric}{{upstream=\"default\"}}")), 0.0, "{metric}");
    }
}

#[test]
fn retries_of_all_workers_stay_within_the_budget() {
    let failing = [breaking(), breaking(), breaking()];
    let addresses = failing.each_ref().map(|upstream| upstream.address);
    let (gateway, key) = Gateway::with(&addresses, &format!("{PLENTY}workers: 4\n")).and_secret();
    let answers = traffic_of(gateway.address, &key, 8, 250);
    assert_eq!(part_of(&answers, 502), 1.0);
    let seen = failing.iter().map(Upstream::count).sum::<usize>();
    let most = answers.len() * 12 / 10 + 10;
    assert!(seen <= most, "{seen} tries of {} requests, of {most} at most", answers.len());
    assert!(seen > answers.len() * 11 / 10, "{seen} tries of {}: the budget is used", answers.len());
    let refused = gateway.metric("keygate_upstream_retries_refused_total{upstream=\"default\"}");
    let retried = gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}");
    assert_eq!((retried, refused), ((seen - answers.len()) as f64, (2 * answers.len() - seen) as f64));
}

#[test]
fn reload_changes_the_settings_and_keeps_the_budget() {
    let failing = [breaking(), breaking()];
    let gateway = gateway(&failing.each_ref(), "budget: 1", "");
    assert_eq!(statuses(&gateway, "GET", "/", b""), [502; REQUESTS]);
    assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 10.0);
    let loaded = gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    gateway.reconfigure(|text| text.replace("budget: 1 ", "budget: 2 "));
    eventually("it is reloaded", || gateway.metric("keygate_config_last_reload_success_timestamp_seconds") > loaded);
    assert_eq!(statuses(&gateway, "GET", "/", b""), [502; REQUESTS]);
    assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 10.0, "nothing was refilled");
}
