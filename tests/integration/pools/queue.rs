//! The queue of the requests that wait for a connection: bounded, in order, and left without a trace.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{blocks, gateway, labelled, refusals, waiting};
use crate::support::{Client, GatedUpstream, Gateway, Upstream, eventually, head};

/// Sends a request that holds the only connection.
fn hold(gateway: &Gateway, gate: &GatedUpstream, key: &str) -> Client {
    let client = send(gateway, key);
    eventually("the request has arrived", || gate.count() == 1);
    client
}

fn send(gateway: &Gateway, key: &str) -> Client {
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/", key, &[], 0));
    client
}

fn await_waiting(gateway: &Gateway, gate: &GatedUpstream, count: u32) {
    eventually("requests wait", || waiting(gateway, gate.address()) == f64::from(count));
}

/// Checks a refusal: the client may try again, and knows that nothing was executed.
fn check_refusal(client: &mut Client) {
    let response = client.response();
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    let problem: Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(problem["code"], "upstream_unavailable");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("too many requests") && detail.contains("not executed"), "{detail}");
}

#[test]
fn full_queue_refuses_at_once() {
    let gate = GatedUpstream::start();
    let (gateway, key) = gateway(&[gate.address()], "max: 1, max_waiting: 2, max_wait: 60s", "").and_secret();
    let mut first = hold(&gateway, &gate, &key);
    let mut queued = [send(&gateway, &key), send(&gateway, &key)];
    await_waiting(&gateway, &gate, 2);
    check_refusal(&mut send(&gateway, &key));
    assert_eq!(refusals(&gateway, gate.address(), "queue_full"), 1.0);
    gate.open();
    assert_eq!(first.response().status, 200);
    for client in &mut queued {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(gate.count(), 3, "the one that was refused has not arrived");
    await_waiting(&gateway, &gate, 0);
}

#[test]
fn wait_that_is_over_refuses() {
    let gate = GatedUpstream::start();
    let (gateway, key) = gateway(&[gate.address()], "max: 1, max_wait: 20ms", "").and_secret();
    let mut first = hold(&gateway, &gate, &key);
    check_refusal(&mut send(&gateway, &key));
    assert_eq!(refusals(&gateway, gate.address(), "timeout"), 1.0);
    assert_eq!(gateway.metric("keygate_upstream_connection_wait_seconds_count{upstream=\"default\"}"), 1.0);
    assert!(gateway.metric("keygate_upstream_connection_wait_seconds_sum{upstream=\"default\"}") >= 0.02);
    gate.open();
    assert_eq!(first.response().status, 200);
    assert_eq!(gate.count(), 1);
}

#[test]
fn no_queue_refuses_without_a_wait() {
    let gate = GatedUpstream::start();
    let (gateway, key) = gateway(&[gate.address()], "max: 1, max_waiting: 0, max_wait: 60s", "").and_secret();
    let _first = hold(&gateway, &gate, &key);
    check_refusal(&mut send(&gateway, &key));
}

#[test]
fn abandoned_requests_leave_the_queue() {
    let gate = GatedUpstream::start();
    let (gateway, key) = gateway(&[gate.address()], "max: 1, max_waiting: 3, max_wait: 60s", "").and_secret();
    let mut first = hold(&gateway, &gate, &key);
    for _ in 0..3 {
        let queued = [send(&gateway, &key), send(&gateway, &key), send(&gateway, &key)];
        await_waiting(&gateway, &gate, 3);
        drop(queued);
        await_waiting(&gateway, &gate, 0);
    }
    let mut last = send(&gateway, &key);
    await_waiting(&gateway, &gate, 1);
    gate.open();
    assert_eq!((first.response().status, last.response().status), (200, 200));
    assert_eq!(gate.count(), 2, "those that were abandoned have not arrived");
}

/// The request that waits gets the connection of the one before it.
#[test]
fn wait_for_a_connection_is_no_latency() {
    const WAIT: Duration = Duration::from_millis(300);
    let gate = GatedUpstream::start();
    let blocks = blocks(&[gate.address()], "max: 1, max_wait: 60s", "").replace("workers: 4", "workers: 1");
    let (gateway, key) = Gateway::with(&[], &blocks).and_secret();
    let begun = Instant::now();
    let mut first = hold(&gateway, &gate, &key);
    let queued = Instant::now();
    let mut second = send(&gateway, &key);
    await_waiting(&gateway, &gate, 1);
    std::thread::sleep(WAIT);
    gate.open();
    assert_eq!(first.response().status, 200);
    let first = begun.elapsed();
    assert_eq!(second.response().status, 200);
    let second = queued.elapsed() - WAIT;
    let counted = gateway.metric(&labelled("latency_seconds_sum", gate.address()));
    assert!(counted <= (first + second).as_secs_f64(), "{counted} s, of {first:?} and {second:?} without the wait");
}

/// The only connection is idle on one worker, and requests come to all of them.
#[test]
fn request_of_another_worker_gets_an_idle_connection() {
    let upstream = Upstream::start();
    let (gateway, key) = gateway(&[upstream.address], "max: 1, max_wait: 60s", "").and_secret();
    for _ in 0..40 {
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
    }
}

#[test]
fn request_goes_to_another_endpoint_that_has_room() {
    let (gate, free) = (GatedUpstream::start(), Upstream::start());
    let endpoints = [gate.address(), free.address];
    let (gateway, key) = gateway(&endpoints, "max: 1, max_wait: 60s", "balance: { policy: round_robin }").and_secret();
    let mut sent = Vec::new();
    while gate.count() == 0 {
        sent.push(send(&gateway, &key));
        eventually("the request has arrived", || gate.count() + free.count() == sent.len());
    }
    for _ in 0..20 {
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
    }
    assert_eq!(gate.count(), 1);
}
