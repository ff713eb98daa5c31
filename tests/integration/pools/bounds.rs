//! Bounds of connections, over all workers: never exceeded, and no request fails for them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::counting::{Census, Protocol, upstream};
use super::{blocks, gateway, labelled};
use crate::support::{Client, Gateway, eventually, head, part_of, traffic_of};

const LATENCY: Duration = Duration::from_millis(2);
const PATIENT: &str = "max_waiting: 1000, max_wait: 60s";

/// Traffic of 64 clients, all of whose requests must be answered with 200.
fn all_served(gateway: &Gateway, requests: usize) {
    let key = gateway.key().text;
    assert_eq!(part_of(&traffic_of(gateway.address, &key, 64, requests), 200), 1.0);
}

#[test]
fn bound_of_an_endpoint_holds_over_http1() {
    let census = Census::default();
    let address = upstream(Protocol::Http1, LATENCY, &census, 6);
    let gateway = gateway(&[address], &format!("max: 6, {PATIENT}"), "");
    all_served(&gateway, 30);
    assert_eq!(census.most(), 6);
    assert!(gateway.metric("keygate_upstream_connection_wait_seconds_count{upstream=\"default\"}") > 0.0);
    // A saturated pool mostly uses its connections again.
    assert!(census.accepted() < 64 * 30 / 4, "{} connections", census.accepted());
}

/// Four workers need a connection each, and there are three.
#[test]
fn bound_of_an_endpoint_holds_over_http2() {
    let census = Census::default();
    let address = upstream(Protocol::Http2(100), LATENCY, &census, 3);
    let gateway = gateway(&[address], &format!("max: 3, {PATIENT}"), "protocol: http2");
    all_served(&gateway, 30);
    assert_eq!(census.most(), 3);
}

/// The connections are never without a stream, and each worker needs one: it has one for certain.
#[test]
fn each_worker_has_a_connection_over_http2_however_busy_the_others_are() {
    const ENOUGH: usize = 3;
    let census = Census::default();
    let address = upstream(Protocol::Http2(100), Duration::from_millis(20), &census, 4);
    // A request that is refused is sent again by its client.
    let gateway = gateway(&[address], "max: 4, max_wait: 400ms", "protocol: http2");
    let (key, served) = (gateway.key().text, [const { AtomicUsize::new(0) }; 16]);
    let (deadline, is_over) = (Instant::now() + Duration::from_secs(60), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for served in &served {
            scope.spawn(|| {
                let mut client = Client::connect(gateway.address);
                while !is_over.load(Ordering::Relaxed) {
                    if client.get("/", &key).status == 200 {
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let all = || served.iter().all(|served| served.load(Ordering::Relaxed) >= ENOUGH);
        while !all() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(served.iter().all(|served| served.load(Ordering::Relaxed) >= ENOUGH), "{served:?}");
    assert!(census.most() <= 4, "{} connections", census.most());
}

/// One connection, and four workers whose requests all need it: it moves between them.
#[test]
fn single_connection_serves_all_workers() {
    for (protocol, more) in [(Protocol::Http1, ""), (Protocol::Http2(100), "protocol: http2")] {
        let census = Census::default();
        let address = upstream(protocol, Duration::ZERO, &census, 1);
        let gateway = gateway(&[address], "max: 1, max_waiting: 1000, max_wait: 20s", more);
        all_served(&gateway, 20);
        assert_eq!(census.most(), 1);
    }
}

/// Thousands of short waits: no wake-up is lost, or a request would wait for its whole time and be refused.
#[test]
fn short_waits_all_end() {
    let census = Census::default();
    let address = upstream(Protocol::Http1, Duration::ZERO, &census, 3);
    let (gateway, key) = gateway(&[address], &format!("max: 3, {PATIENT}"), "").and_secret();
    for _ in 0..20 {
        // Between two rounds all connections become idle, on whichever worker they are.
        assert_eq!(part_of(&traffic_of(gateway.address, &key, 12, 20), 200), 1.0);
    }
    assert_eq!(census.most(), 3);
    eventually("none waits any more", || super::waiting(&gateway, address) == 0.0);
}

#[test]
fn total_bound_below_the_number_of_endpoints_blocks_none() {
    let census = Census::default();
    let start = |_| upstream(Protocol::Http1, LATENCY, &census, 2);
    let addresses: Vec<SocketAddr> = (0..7).map(start).collect();
    let balance = "balance: { policy: round_robin }";
    let (gateway, key) = gateway(&addresses, &format!("max_total: 2, {PATIENT}"), balance).and_secret();
    assert_eq!(part_of(&traffic_of(gateway.address, &key, 16, 30), 200), 1.0);
    assert_eq!(census.most(), 2, "of all endpoints together");
}

/// Requests go to endpoints in turn, and the only connection is always idle at another one.
#[test]
fn idle_connections_of_other_endpoints_make_room() {
    let census = Census::default();
    let start = |_| upstream(Protocol::Http1, Duration::ZERO, &census, 1);
    let addresses: Vec<SocketAddr> = (0..3).map(start).collect();
    let gateway = gateway(&addresses, &format!("max_total: 1, {PATIENT}"), "balance: { policy: round_robin }");
    let key = gateway.key().text;
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(gateway.address)).collect();
    for _ in 0..25 {
        for client in &mut clients {
            assert_eq!(client.get("/", &key).status, 200);
        }
    }
    assert_eq!(census.most(), 1);
}

/// Upstream that accepts each upgrade, and hands over its end of the tunnel.
fn switching() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (hand, handed)) = (listener.local_addr().unwrap(), mpsc::channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                received.push(byte[0]);
            }
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(switch.as_bytes()).ok();
            hand.send(stream).ok();
        }
    });
    (address, handed)
}

#[test]
fn tunnels_count_until_they_are_closed() {
    let (address, handed) = switching();
    let routes = "routes: [{ name: socket, path: /socket, upgrade: [websocket] }]\n";
    let limits = blocks(&[address], "max: 3, max_wait: 50ms", "") + routes;
    let (gateway, key) = Gateway::with(&[], &limits).and_secret();
    let open = || {
        let mut client = Client::connect(gateway.address);
        let ask =
            [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")];
        client.send(head("GET", "/socket", &key, &ask, 0));
        let status = client.head().unwrap().0;
        (status, client)
    };
    let mut tunnels: Vec<_> = (0..3).map(|_| open()).collect();
    assert!(tunnels.iter().all(|(status, _)| *status == 101));
    let ends: Vec<TcpStream> = (0..3).map(|_| handed.recv().unwrap()).collect();
    assert_eq!(open().0, 503, "three tunnels are all that there may be");
    eventually("tunnels are counted", || gateway.metric(&labelled("connections", address)) == 3.0);
    tunnels.pop();
    drop(ends);
    eventually("a tunnel that has ended makes room", || {
        let (status, client) = open();
        drop(client);
        status == 101
    });
}

#[test]
fn reload_changes_the_bounds() {
    let census = Census::default();
    let address = upstream(Protocol::Http1, Duration::from_millis(20), &census, 4);
    let gateway = gateway(&[address], &format!("max: 4, {PATIENT}"), "");
    all_served(&gateway, 2);
    assert_eq!(census.most(), 4);
    gateway.reconfigure(|text| text.replace("max: 4", "max: 1"));
    eventually("connections beyond the bound are closed", || census.open() <= 1);
    all_served(&gateway, 1);
    assert!(census.open() <= 1);
    gateway.reconfigure(|text| text.replace("max: 1,", "max: 3,"));
    eventually("the new bound is used", || {
        all_served(&gateway, 1);
        census.open() == 3
    });
    assert_eq!(census.most(), 4);
}
