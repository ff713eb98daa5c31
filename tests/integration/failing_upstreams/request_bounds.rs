//! The bound of requests in flight at an upstream, over all workers and retries.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use journal::audit::Outcome;

use super::PLENTY;
use super::retries::{NO_EJECTION, breaking};
use crate::support::upstream_blocks::endpoints;
use crate::support::{Client, GatedUpstream, Gateway, Upstream, eventually, head};

/// A retry, and a request that goes to another endpoint, is in flight in place of the try before.
#[test]
fn request_counts_once_for_the_bound_however_often_it_is_sent() {
    for first in [breaking().address, crate::support::free_address()] {
        let held = GatedUpstream::start();
        // The first try, nearly for certain.
        let weights = format!("weights: [{{ endpoint: \"{first}\", weight: 1000 }}]");
        let balance = format!("balance: {{ policy: round_robin, {weights} }}, {NO_EJECTION}");
        let upstream = format!("{}, {balance}, limits: {{ requests: 1 }}", endpoints(&[first, held.address()]));
        let gateway = Gateway::with(&[], &format!("{PLENTY}workers: 1\nupstream: {{ {upstream} }}\n"));
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", "/", &key, &[], 0));
        eventually("it is at the other endpoint", || held.count() == 1);
        let refused = Client::connect(gateway.address).get("/", &key);
        assert_eq!((refused.status, refused.code().as_str()), (503, "upstream_unavailable"));
        held.open();
        assert_eq!(client.response().status, 200);
        assert_eq!(client.get("/", &key).status, 200, "its permit was given back");
    }
}

/// Upstream that answers each request when the test says so.
fn held() -> (Upstream, std::sync::mpsc::Sender<()>) {
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let upstream = Upstream::answering(move |_, stream| {
        wait.lock().unwrap().recv().ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    });
    (upstream, release)
}

#[test]
fn requests_in_flight_are_bounded_over_all_workers() {
    let (upstream, release) = held();
    let block = format!("upstream: {{ endpoints: [\"http://{}\"], limits: {{ requests: 3 }} }}\n", upstream.address);
    let (gateway, key) = Gateway::with(&[], &format!("{PLENTY}workers: 3\n{block}")).and_key();
    let mut held: Vec<Client> = (0..3)
        .map(|number| {
            let mut client = Client::connect(gateway.address);
            client.send(head("GET", "/", &key.text, &[], 0));
            eventually("the request is at the upstream", || upstream.count() == number + 1);
            client
        })
        .collect();
    let mut client = Client::connect(gateway.address);
    for _ in 0..2 {
        let response = client.get("/", &key.text);
        assert_eq!((response.status, response.code().as_str()), (503, "upstream_unavailable"));
        assert_eq!(response.header("retry-after"), Some("1"));
        assert!(response.json()["detail"].as_str().unwrap().contains("not executed"));
    }
    assert_eq!(
        (upstream.count(), gateway.metric("keygate_upstream_requests_refused_total{upstream=\"default\"}")),
        (3, 2.0)
    );
    release.send(()).unwrap();
    let mut admitted = None;
    eventually("one has ended, and another is admitted", || {
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", "/", &key.text, &[], 0));
        // Refused at once, or waiting at the upstream.
        let is_there = || upstream.count() == 4;
        eventually("it is decided", || is_there() || client.hears_within(Duration::from_millis(5)));
        is_there() && admitted.replace(client).is_none()
    });
    drop(release);
    let answered = held.iter_mut().chain(&mut admitted).map(|client| client.response().status);
    assert_eq!(answered.collect::<Vec<_>>(), [200; 4]);
    let refused = gateway.records().iter().filter(|record| record.outcome == Outcome::UpstreamError).count();
    assert_eq!(refused as f64, gateway.metric("keygate_upstream_requests_refused_total{upstream=\"default\"}"));
    assert_eq!(gateway.explain_in_flight(&key), 0);
}

#[test]
fn bound_of_requests_changes_by_a_reload() {
    let (upstream, release) = held();
    let block = format!("upstream: {{ endpoints: [\"http://{}\"], limits: {{ requests: 1 }} }}\n", upstream.address);
    let (gateway, key) = Gateway::with(&[], &format!("{PLENTY}{block}")).and_secret();
    let mut first = Client::connect(gateway.address);
    first.send(head("GET", "/", &key, &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 503);
    let loaded = gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    gateway.reconfigure(|text| text.replace("requests: 1 }", "requests: 2 }"));
    eventually("it is reloaded", || gateway.metric("keygate_config_last_reload_success_timestamp_seconds") > loaded);
    let mut second = Client::connect(gateway.address);
    second.send(head("GET", "/", &key, &[], 0));
    eventually("the second request is at the upstream", || upstream.count() == 2);
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 503, "the first one still counts");
    drop(release);
    assert_eq!((first.response().status, second.response().status), (200, 200));
}
