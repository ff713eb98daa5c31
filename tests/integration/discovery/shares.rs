//! Shares of the addresses of a name that come and go, under load over connections that are kept.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{ADDRESSES, blocks, endpoints, equal_replicas};
use crate::support::{Gateway, HyperOptions, HyperUpstream, Load, NameServer, eventually, free_port, is_strict};

/// Requests of which each of three addresses has a third, give or take five per cent of a third. Were each sent to any
/// of them by chance, the number at one would have a standard deviation of sqrt(20,000 * 1/3 * 2/3) = 67, which is one
/// per cent of a third: a row fails by chance once in 600,000. Balancing by load scatters less than chance.
const REQUESTS: usize = 20_000;

/// Clients, each with one request in flight.
const CLIENTS: usize = 64;

fn counts(replicas: &[HyperUpstream; 3]) -> [usize; 3] {
    replicas.each_ref().map(HyperUpstream::count)
}

/// One address becomes three, and three become two, while the load goes on over its connections of before.
fn addresses_come_and_go(options: HyperOptions, protocol: &str, load: impl FnOnce(SocketAddr, &str) -> Load) {
    let (dns, port) = (NameServer::start(1), free_port());
    let replicas = equal_replicas(options, port);
    dns.set("store.test", &ADDRESSES[..1]);
    let entry = format!("['http://store.test:{port}'], protocol: {protocol}");
    let gateway = Gateway::with(&[], &blocks(&entry, &dns, "workers: 2"));
    let load = load(gateway.address, &gateway.key().text);
    load.wait_for(10 * CLIENTS);
    assert_eq!(counts(&replicas)[1..], [0, 0]);

    let changed = Instant::now();
    dns.set("store.test", &ADDRESSES);
    eventually("the new addresses have requests", || counts(&replicas).iter().all(|count| *count > CLIENTS));
    let known = changed.elapsed();
    println!("{protocol}: three addresses have requests {known:?} after the change of the name");
    assert!(!is_strict() || known < Duration::from_secs(30));
    let before = counts(&replicas);
    load.wait_for(REQUESTS);
    let shares: Vec<usize> = counts(&replicas).iter().zip(before).map(|(now, before)| now - before).collect();
    let third = shares.iter().sum::<usize>() / 3;
    let is_equal = |share: &usize| share.abs_diff(third) * 20 <= third;
    println!("{protocol}: {shares:?} requests at the three addresses");
    assert!(shares.iter().all(is_equal), "{shares:?}");

    dns.set("store.test", &ADDRESSES[1..]);
    endpoints(&gateway, 2);
    eventually("the address that is gone has no more requests", || {
        let before = replicas[0].count();
        load.wait_for(5 * CLIENTS);
        replicas[0].count() == before
    });
    eventually("no connection to it is kept", || replicas[0].open_connections() == 0);
    let answered = load.stop();
    assert_eq!(counts(&replicas).iter().sum::<usize>(), answered, "no request failed, and none was sent twice");
}

#[test]
fn new_addresses_have_a_third_each_over_http1() {
    let load = |address, key: &str| Load::over_http1(address, key, CLIENTS);
    addresses_come_and_go(HyperOptions::http1(), "http1", load);
}

#[test]
fn new_addresses_have_a_third_each_over_http2() {
    let load = |address, key: &str| Load::over_http2(address, key, 8, CLIENTS / 8);
    addresses_come_and_go(HyperOptions::http2(), "http2", load);
}
