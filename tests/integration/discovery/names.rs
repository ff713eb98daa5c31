//! Names: every address is an endpoint, and changes are followed.

use super::{ADDRESSES, blocks, endpoints, equal_replicas, equal_shares, replicas, request};
use crate::support::{Client, Gateway, HyperOptions, HyperUpstream, NameServer, eventually, free_port};

#[test]
fn every_address_of_a_name_has_its_share_of_requests() {
    let (dns, port) = (NameServer::start(1), free_port());
    let replicas = equal_replicas(HyperOptions::http1(), port);
    dns.set("store.test", &ADDRESSES[..1]);
    let gateway = Gateway::with(&[], &blocks(&format!("['http://store.test:{port}']"), &dns, "workers: 2"));
    let key = gateway.key();
    request(&gateway, &key.text, 10);
    assert_eq!(replicas[0].count(), 10, "the only address");

    // The connections of before are kept alive, and do not keep the requests from the new addresses.
    dns.set("store.test", &ADDRESSES);
    endpoints(&gateway, 3);
    equal_shares(&gateway, &key.text, || replicas.each_ref().map(HyperUpstream::count));
}

#[test]
fn removed_address_gets_no_more_requests_and_none_fails() {
    let dns = NameServer::start(1);
    let (port, [first, second]) = replicas(["127.0.0.1", "127.0.0.2"]);
    dns.set("store.test", &["127.0.0.1", "127.0.0.2"]);
    let (gateway, key) = Gateway::with(&[], &blocks(&format!("['http://store.test:{port}']"), &dns, "")).and_key();
    request(&gateway, &key.text, 10);
    assert!(first.count() > 0 && second.count() > 0);
    assert_eq!(first.last().header("host"), Some(&*format!("store.test:{port}")));

    dns.set("store.test", &["127.0.0.1"]);
    let mut client = Client::connect(gateway.address);
    eventually("the address is gone", || {
        assert_eq!(client.get("/", &key.text).status, 200);
        gateway.metric("keygate_upstream_endpoints{upstream=\"default\"}") == 1.0
    });
    eventually("the workers know", || {
        let before = second.count();
        request(&gateway, &key.text, 20);
        second.count() == before
    });
}

#[test]
fn name_that_does_not_resolve_is_not_fatal_and_keeps_its_last_addresses() {
    let dns = NameServer::start(1);
    let (port, [replica]) = replicas(["127.0.0.1"]);
    let (gateway, key) = Gateway::with(&[], &blocks(&format!("['http://store.test:{port}']"), &dns, "")).and_key();
    let refused = Client::connect(gateway.address).get("/", &key.text);
    assert_eq!((refused.status, &*refused.code()), (503, "upstream_unavailable"));
    endpoints(&gateway, 0);
    assert!(gateway.metric("keygate_upstream_lookups_total{result=\"failed\",upstream=\"default\"}") >= 1.0);

    dns.set("store.test", &["127.0.0.1"]);
    endpoints(&gateway, 1);
    eventually("requests are answered", || Client::connect(gateway.address).get("/", &key.text).status == 200);

    dns.remove("store.test");
    let failed = gateway.metric("keygate_upstream_lookups_total{result=\"failed\",upstream=\"default\"}");
    eventually("the name is gone", || {
        gateway.metric("keygate_upstream_lookups_total{result=\"failed\",upstream=\"default\"}") > failed + 1.0
    });
    request(&gateway, &key.text, 10);
    assert!(replica.count() > 10);
}

#[test]
fn family_that_cannot_be_reached_costs_no_request_its_time_out() {
    let dns = NameServer::start(1);
    let port = free_port();
    let replica = super::replica("127.0.0.1", port);
    // Nothing accepts connections there: the queue is full, and further ones are not answered.
    let hole = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
    let address: std::net::SocketAddr = format!("[::1]:{port}").parse().unwrap();
    hole.bind(&address.into()).unwrap();
    hole.listen(0).unwrap();
    let mut queue = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(300)) {
        queue.push(stream);
    }
    dns.set("store.test", &["127.0.0.1", "::1"]);
    let more = "timeouts: { connect: 1h }";
    let (gateway, key) = Gateway::with(&[], &blocks(&format!("['http://store.test:{port}']"), &dns, more)).and_key();
    endpoints(&gateway, 1);
    request(&gateway, &key.text, 50);
    assert_eq!(replica.count(), 50);

    drop((hole, queue));
    let second = super::replica("::1", port);
    dns.set("store.test", &["127.0.0.1", "127.0.0.1", "::1"]);
    let (gateway, key) = Gateway::with(&[], &blocks(&format!("['http://store.test:{port}']"), &dns, more)).and_key();
    endpoints(&gateway, 2);
    request(&gateway, &key.text, 50);
    assert!(second.count() > 0, "both families are used when both can be reached");
}
