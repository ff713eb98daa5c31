//! Several endpoints, some of which fail: requests go to the others.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::upstream_blocks::{PLENTY, of_endpoint};
use crate::support::{Client, Gateway, Upstream, eventually, free_address, head, part_of, traffic, traffic_of};

mod balancing;
pub mod black_hole;
mod checks;
mod logged;
mod misbehaving;
mod connecting;
mod retries;
mod retries_http2;
mod retry_matrix;
mod retry_after;
mod retry_times;
mod request_bounds;
mod tls;
mod uploads;

/// Upstream that responds with this status after this time.
fn responding(status: u16, after: Duration) -> Upstream {
    responding_by(move |_| status, after)
}

/// Upstream that responds to its N-th request with the status of N.
fn responding_by(status: impl Fn(usize) -> u16 + Send + Sync + 'static, after: Duration) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_, stream| {
        let status = status(count.fetch_add(1, Ordering::Relaxed));
        std::thread::sleep(after);
        stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\nok").as_bytes()).ok();
    })
}

fn gateway(upstreams: &[&Upstream], blocks: &str) -> Gateway {
    let addresses: Vec<SocketAddr> = upstreams.iter().map(|upstream| upstream.address).collect();
    Gateway::with(&addresses, &format!("{PLENTY}{blocks}"))
}

fn labelled(metric: &str, endpoint: SocketAddr) -> String {
    of_endpoint(metric, "default", endpoint)
}

fn ejections(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!("keygate_upstream_ejections_total{{reason=\"{reason}\",upstream=\"default\"}}"))
}

/// An alert on their increase sees the first one, and thousands of endpoints have no more series than one.
#[test]
fn ejections_are_counted_by_upstream_and_reason_from_the_start() {
    let upstreams = [responding(200, Duration::ZERO), responding(200, Duration::ZERO), responding(200, Duration::ZERO)];
    let gateway = gateway(&upstreams.each_ref(), "");
    let page = String::from_utf8(Client::connect(gateway.admin).get("/metrics", "").body).unwrap();
    let mut series: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("keygate_upstream_ejections_total{")).collect();
    series.sort_unstable();
    let of = |reason| format!("reason=\"{reason}\",upstream=\"default\"}} 0");
    assert_eq!(series, ["connect_failures", "gateway_errors", "server_errors", "timeouts"].map(of));
}

#[test]
fn fast_failing_endpoint_gets_almost_nothing() {
    let (failing, good) = (responding(500, Duration::ZERO), responding(200, Duration::from_millis(20)));
    let (gateway, key) = gateway(&[&failing, &good], "").and_secret();
    traffic(gateway.address, &key, 8, |answers| answers.last().is_some_and(|last| last.at > Duration::from_secs(1)));
    let later = traffic_of(gateway.address, &key, 8, 100);
    let part = part_of(&later, 200);
    assert!(part >= 0.97, "{part} of {} answers; {} at the failing endpoint", later.len(), failing.count());
    assert!(ejections(&gateway, "server_errors") >= 1.0);
}

#[test]
fn endpoint_with_some_errors_gets_a_small_share() {
    let some = responding_by(|number| if number % 10 < 3 { 500 } else { 200 }, Duration::from_millis(5));
    let good = [responding(200, Duration::from_millis(5)), responding(200, Duration::from_millis(5))];
    let (gateway, key) = gateway(&[&some, &good[0], &good[1]], "").and_secret();
    traffic_of(gateway.address, &key, 8, 100);
    let before = some.count();
    traffic_of(gateway.address, &key, 8, 200);
    let share = (some.count() - before) as f64 / 1600.0;
    assert!(share < 0.05, "{share}");
}

#[test]
fn refusing_endpoint_costs_no_request_and_returns_when_it_listens() {
    let refusing = free_address();
    let good = responding(200, Duration::ZERO);
    let (gateway, key) = Gateway::with(&[refusing, good.address], PLENTY).and_secret();
    let answers = traffic_of(gateway.address, &key, 4, 50);
    assert_eq!(part_of(&answers, 200), 1.0);
    let up = labelled("endpoint_up", refusing);
    assert_eq!(gateway.metric(&up), 0.0);
    let listener = TcpListener::bind(refusing).unwrap();
    eventually("a probe connects", || gateway.metric(&up) == 1.0);
    drop(listener);
}

#[test]
fn all_endpoints_fail_and_requests_still_go() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let start = || {
        let is_broken = Arc::clone(&is_broken);
        responding_by(move |_| if is_broken.load(Ordering::Relaxed) { 500 } else { 200 }, Duration::ZERO)
    };
    let upstreams = [start(), start(), start(), start()];
    let (gateway, key) = gateway(&upstreams.each_ref(), "").and_secret();
    let mut client = Client::connect(gateway.address);
    eventually("the upstream is in panic", || {
        assert_eq!(client.get("/", &key).status, 500, "requests still go");
        gateway.metric("keygate_upstream_panic{upstream=\"default\"}") == 1.0
    });
    let up = upstreams.iter().filter(|upstream| gateway.metric(&labelled("endpoint_up", upstream.address)) == 1.0);
    assert_eq!(up.count(), 2, "half of them are never ejected");
    is_broken.store(false, Ordering::Relaxed);
    eventually("the panic is over", || {
        assert!(matches!(client.get("/", &key).status, 200));
        gateway.metric("keygate_upstream_panic{upstream=\"default\"}") == 0.0
    });
}

#[test]
fn ejected_endpoint_returns_and_takes_its_share() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&is_broken);
    let flapping = responding_by(move |_| if state.load(Ordering::Relaxed) { 500 } else { 200 }, Duration::ZERO);
    let good = responding(200, Duration::ZERO);
    let endpoints = format!("[\"http://{}\", \"http://{}\"]", flapping.address, good.address);
    let outlier = "outlier: { ejection: 200ms, slow_start: 200ms }";
    let gateway = Gateway::with(&[], &format!("{PLENTY}upstream: {{ endpoints: {endpoints}, {outlier} }}\n"));
    let key = gateway.key().text;
    let up = labelled("endpoint_up", flapping.address);
    let mut client = Client::connect(gateway.address);
    eventually("it is ejected", || {
        client.get("/", &key);
        gateway.metric(&up) == 0.0
    });
    is_broken.store(false, Ordering::Relaxed);
    eventually("it returns", || gateway.metric(&up) == 1.0);
    let before = flapping.count();
    eventually("it takes requests", || {
        assert_eq!(client.get("/", &key).status, 200);
        flapping.count() >= before + 20
    });
}

#[test]
fn client_that_breaks_off_its_uploads_ejects_no_endpoint() {
    let upstreams = [responding(200, Duration::ZERO), responding(200, Duration::ZERO)];
    let (gateway, key) = gateway(&upstreams.each_ref(), "workers: 1\n").and_key();
    for _ in 0..40 {
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key.text, &[], 1000)).send(b"some");
        eventually("the request is in flight", || gateway.metric("keygate_in_flight") == 1.0);
        drop(client);
        eventually("the request has ended", || gateway.metric("keygate_in_flight") == 0.0);
    }
    for upstream in &upstreams {
        assert_eq!(gateway.metric(&labelled("endpoint_up", upstream.address)), 1.0);
    }
}
