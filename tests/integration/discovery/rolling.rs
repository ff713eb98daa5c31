//! Rolling restart of the upstream: endpoints leave and come while requests go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{blocks, endpoints, replicas};
use crate::support::upstream::Received;
use crate::support::{Client, Gateway, NameServer, Upstream, eventually};

const ADDRESSES: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// Ids of the requests that reached an upstream.
fn ids(upstream: &Upstream) -> Vec<String> {
    let id = |received: Received| received.header("x-request-id").unwrap().to_owned();
    upstream.received().into_iter().map(id).collect()
}

#[test]
fn endpoints_that_leave_and_come_fail_no_request_and_repeat_none() {
    let dns = NameServer::start(1);
    let (port, replicas) = replicas(ADDRESSES);
    dns.set("store.test", &ADDRESSES);
    let gateway = Gateway::with(&[], &blocks(&format!("['http://store.test:{port}']"), &dns, "workers: 2"));
    let key = gateway.key();
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (mut client, key) = (Client::connect(gateway.address), key.text.clone());
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            // Two clients send requests that may not be repeated.
            let (method, body): (&str, &[u8]) = if number % 2 == 0 { ("GET", b"") } else { ("POST", b"once") };
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(client.request(method, "/", &key, &[], body).status, 200);
                    answered.fetch_add(1, Ordering::Relaxed);
                    // The restarts take seconds: all that the processor can do would be tens of thousands of requests.
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        })
        .collect();
    for (leaving, replica) in replicas.iter().enumerate() {
        let others: Vec<&str> =
            ADDRESSES.iter().enumerate().filter(|(at, _)| *at != leaving).map(|(_, a)| *a).collect();
        dns.set("store.test", &others);
        endpoints(&gateway, 2);
        eventually("the endpoint has no more requests", || {
            let (before, total) = (replica.count(), answered.load(Ordering::Relaxed));
            eventually("requests go on", || answered.load(Ordering::Relaxed) > total + 20);
            replica.count() == before
        });
        dns.set("store.test", &ADDRESSES);
        endpoints(&gateway, 3);
        let before = replica.count();
        eventually("it has requests again", || replica.count() > before);
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("no request fails"));
    let mut seen: HashMap<String, u32> = HashMap::new();
    replicas.iter().flat_map(ids).for_each(|id| *seen.entry(id).or_default() += 1);
    assert!(seen.values().all(|times| *times == 1), "none is executed twice");
    assert_eq!(seen.len(), answered.load(Ordering::Relaxed));
}
