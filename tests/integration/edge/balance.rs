//! Connections are spread over the workers, however the kernel hashes them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::support::{Client, Gateway, Upstream, head};

use super::{PLENTY, all_is_given_back};

/// Requests by the upstream connection that carried them. Each worker has connections of its own, and of requests in
/// succession it sends all over one.
type Carried = Arc<Mutex<BTreeMap<SocketAddr, usize>>>;

fn counting(carried: &Carried) -> Upstream {
    let carried = Arc::clone(carried);
    Upstream::answering(move |_, stream| {
        *carried.lock().unwrap().entry(stream.peer_addr().unwrap()).or_default() += 1;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    })
}

#[test]
fn few_connections_are_spread_evenly_over_the_workers() {
    let carried = Carried::default();
    let upstream = counting(&carried);
    let (gateway, key) = Gateway::with(&[upstream.address], &format!("{PLENTY}workers: 2\n")).and_secret();
    for round in 0..5 {
        for connections in [2, 4, 8] {
            let mut clients: Vec<Client> = (0..connections).map(|_| Client::connect(gateway.address)).collect();
            for client in &mut clients {
                assert_eq!(client.get("/", &key).status, 200);
            }
            let requests: Vec<usize> = std::mem::take(&mut *carried.lock().unwrap()).into_values().collect();
            assert_eq!(requests, [connections / 2; 2], "round {round}");
            drop(clients);
            all_is_given_back(&gateway);
        }
    }
}

#[test]
fn connections_that_are_handed_over_are_served_to_the_end_of_a_drain() {
    let carried = Carried::default();
    let upstream = counting(&carried);
    for _ in 0..3 {
        let gateway = Gateway::with(&[upstream.address], &format!("{PLENTY}workers: 2\n"));
        let (key, address) = (gateway.key().text, gateway.address);
        // In the backlog of either listener, or on their way between the workers, when the drain begins.
        let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(address)).collect();
        let request = head("GET", "/", &key, &[], 0);
        for client in &mut clients {
            client.send(&request);
        }
        let stopping = std::thread::spawn(move || drop(gateway));
        for client in &mut clients {
            assert_eq!(client.response_to("GET").status, 200);
        }
        stopping.join().unwrap();
    }
}
