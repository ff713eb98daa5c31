//! Discovery with HTTP/2 to the upstream: its long connections keep no request from new endpoints.

use std::net::SocketAddr;

use super::{ADDRESSES, blocks, endpoints, equal_replicas, equal_shares, request};
use crate::support::hyper_upstream::ok;
use crate::support::{Gateway, HyperOptions, HyperUpstream, NameServer, eventually, free_port};

fn replica(address: &str, port: u16) -> HyperUpstream {
    let [replica] = HyperOptions::http2().start_each([SocketAddr::new(address.parse().unwrap(), port)], ok);
    replica
}

#[test]
fn new_addresses_have_their_share_over_http2_and_removed_ones_have_none() {
    let (dns, port) = (NameServer::start(1), free_port());
    let replicas = equal_replicas(HyperOptions::http2(), port);
    dns.set("store.test", &ADDRESSES[..1]);
    let entry = format!("['http://store.test:{port}'], protocol: http2");
    let (gateway, key) = Gateway::with(&[], &blocks(&entry, &dns, "workers: 2")).and_key();
    request(&gateway, &key.text, 10);
    assert_eq!(replicas[0].count(), 10);

    dns.set("store.test", &ADDRESSES);
    endpoints(&gateway, 3);
    equal_shares(&gateway, &key.text, || replicas.each_ref().map(HyperUpstream::count));

    dns.set("store.test", &["127.0.0.2", "127.0.0.3"]);
    eventually("the first replica has no more requests", || {
        let before = replicas[0].count();
        request(&gateway, &key.text, 20);
        replicas[0].count() == before
    });
}

#[test]
fn http2_connections_end_after_their_number_of_requests() {
    let (dns, port) = (NameServer::start(1), free_port());
    let replica = replica("127.0.0.1", port);
    dns.set("store.test", &["127.0.0.1"]);
    let entry = format!("['http://store.test:{port}'], protocol: http2, connections: {{ max_requests: 2 }}");
    let (gateway, key) = Gateway::with(&[], &blocks(&entry, &dns, "workers: 1")).and_key();
    request(&gateway, &key.text, 10);
    assert_eq!((replica.count(), replica.connections()), (10, 5));
}
