//! Discovery: endpoints that come and go, found in DNS and in a watched file.

mod names;
mod shares;
mod entries;
mod rolling;
mod http2;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::hyper_upstream::ok;
use crate::support::{Client, Gateway, HyperOptions, HyperUpstream, Load, NameServer, Upstream, free_port, until};

/// Addresses of the replicas of one service.
const ADDRESSES: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// Time that each response of an equal replica takes. A pause of a busy machine is small beside it, and the replicas
/// share a thread, so that a pause delays all of them alike.
const LATENCY: Duration = Duration::from_millis(40);
/// Clients that send at once, so that many requests take little time at that latency.
const CLIENTS: usize = 16;

/// Upstreams at several addresses of loopback on one port, as the replicas of one service.
fn replicas<const N: usize>(addresses: [&str; N]) -> (u16, [Upstream; N]) {
    let port = free_port();
    (port, addresses.map(|address| replica(address, port)))
}

/// Three replicas of which none is slower than the others: each response takes [`LATENCY`].
fn equal_replicas(options: HyperOptions, port: u16) -> [HyperUpstream; 3] {
    let addresses = ADDRESSES.map(|address| SocketAddr::new(address.parse().unwrap(), port));
    options.start_each(addresses, move |request| async move {
        tokio::time::sleep(LATENCY).await;
        ok(request).await
    })
}

fn replica(address: &str, port: u16) -> Upstream {
    let address = SocketAddr::new(address.parse().unwrap(), port);
    Upstream::answering_at(address, |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    })
}

/// Blocks of a configuration whose endpoints are found by this name server.
fn blocks(endpoints: &str, dns: &NameServer, more: &str) -> String {
    let servers = dns.address;
    format!(
        "upstream: {{ endpoints: {endpoints}, resolver: {{ servers: ['{servers}'] }} }}\n\
         limits: {{ key: {{ requests: 10000000, per: 1s }} }}\n{more}"
    )
}

/// Waits until so many endpoints have an address.
fn endpoints(gateway: &Gateway, count: u32) {
    until("the endpoints are discovered", || {
        let found = gateway.metric_if_there("keygate_upstream_endpoints{upstream=\"default\"}");
        (found == Some(f64::from(count))).then_some(())
    });
}

/// Sends requests on one connection, all of which must be answered with 200.
fn request(gateway: &Gateway, key: &str, count: usize) {
    let mut client = Client::connect(gateway.address);
    for _ in 0..count {
        assert_eq!(client.get("/", key).status, 200);
    }
}

/// Waits until each of three replicas has had a third of some 600 requests in a row, give or take five percent. A
/// scheduler's pause can take an endpoint's latency up, and so its share down, for a while.
fn equal_shares(gateway: &Gateway, key: &str, counts: impl Fn() -> [usize; 3]) {
    let load = Load::over_http1(gateway.address, key, CLIENTS);
    until("each replica has a third of the requests", || {
        let before = counts();
        load.wait_for(600);
        let more: Vec<usize> = counts().into_iter().zip(before).map(|(after, before)| after - before).collect();
        let all = more.iter().sum::<usize>() as f64;
        more.iter().all(|count| (0.283..=0.383).contains(&(*count as f64 / all))).then_some(())
    });
    load.stop();
}
