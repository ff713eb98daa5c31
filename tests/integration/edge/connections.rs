//! Limits on the number of connections, silent or stalled ones beside others that are served, and
//! the start of listening.

use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::{Client, Gateway, Upstream, eventually, free_address, free_port, head};

use super::{PLENTY, all_is_given_back, serves};

fn refused(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!("keygate_connections_refused_total{{reason=\"{reason}\"}}"))
}

/// Silent connections, returned when the gateway has accepted all of them.
fn silent(gateway: &Gateway, count: u32) -> Vec<TcpStream> {
    let before = gateway.metric("keygate_connections");
    let silent: Vec<_> = (0..count).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    eventually("all are accepted", || gateway.metric("keygate_connections") == before + f64::from(count));
    silent
}

/// A connection from another address of this machine.
fn connect_from(source: &str, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&source.parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// True if the gateway closes a new connection without a response.
fn is_refused(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read(&mut [0; 1]).is_ok_and(|read| read == 0)
}

#[test]
fn connections_never_exceed_the_total_limit() {
    let upstream = Upstream::start();
    // Several workers share the limit.
    let gateway = Gateway::with(&[upstream.address], &format!("{PLENTY}workers: 3\nhttp: {{ max_connections: 4 }}\n"));
    let key = gateway.key().text;
    for round in 1..=3 {
        let mut silent = silent(&gateway, 3);
        let mut last = Client::connect(gateway.address);
        assert_eq!(last.get("/", &key).status, 200);
        for _ in 0..5 {
            assert!(is_refused(TcpStream::connect(gateway.address).unwrap()));
        }
        assert_eq!(refused(&gateway, "total"), f64::from(round * 5));
        assert_eq!(gateway.metric("keygate_connections"), 4.0);
        assert_eq!(last.get("/", &key).status, 200, "an accepted connection is still served");
        silent.pop();
        eventually("the permit is given back", || gateway.metric("keygate_connections") == 3.0);
        serves(&gateway, &key);
        drop((silent, last));
        all_is_given_back(&gateway);
    }
    assert_eq!(refused(&gateway, "address"), 0.0);
}

#[test]
fn connections_of_one_address_never_exceed_its_limit() {
    let (_upstream, gateway, key) = Gateway::with_secret("http: { max_connections_per_address: 3 }");
    let mut held = silent(&gateway, 3);
    for _ in 0..5 {
        assert!(is_refused(TcpStream::connect(gateway.address).unwrap()));
    }
    assert_eq!((refused(&gateway, "address"), refused(&gateway, "total")), (5.0, 0.0));
    let mut other = Client::over(connect_from("127.0.0.2:0", gateway.address));
    assert_eq!(other.get("/", &key).status, 200, "another address has a limit of its own");
    held.pop();
    eventually("the permit is given back", || gateway.metric("keygate_connections") == 3.0);
    serves(&gateway, &key);
}

#[test]
fn trusted_proxies_are_exempt_from_the_limit_of_an_address() {
    let upstream = Upstream::start();
    let most = "http: { max_connections_per_address: 1 }\n";
    for trusted in
        ["trusted_proxies: [127.0.0.0/8]\n", "\nlisten: [{ address: 127.0.0.1:0, proxy_protocol: [127.0.0.1] }]\n"]
    {
        let gateway = Gateway::with(&[upstream.address], &format!("{trusted}{most}"));
        let clients = silent(&gateway, 20);
        eventually("all are accepted", || gateway.metric("keygate_connections") == 20.0);
        drop(clients);
        all_is_given_back(&gateway);
        assert_eq!(refused(&gateway, "address"), 0.0, "{trusted}");
    }
}

#[test]
fn stalled_clients_do_not_keep_others_from_being_served() {
    let (_upstream, gateway, key) = Gateway::with_key(PLENTY);
    let held = silent(&gateway, 300);
    let mut stalled = Vec::new();
    for sent in ["GET / HTTP/1.1\r\nHost:", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        stalled.extend((0..100).map(|_| {
            let mut client = Client::connect(gateway.address);
            client.send(sent);
            client
        }));
    }
    let slots = 50;
    stalled.extend((0..slots).map(|_| {
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key.text, &[], 100)).send("half");
        client
    }));
    eventually("all are admitted", || gateway.explain_in_flight(&key) == slots);
    let mut client = Client::connect(gateway.address);
    for _ in 0..100 {
        assert_eq!(client.get("/", &key.text).status, 200);
        serves(&gateway, &key.text);
    }
    drop((held, stalled, client));
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
}

#[test]
fn client_that_connects_during_the_start_is_not_reset() {
    let port = free_port();
    // Each start has an address of its own: a process that another test starts keeps closed
    // listeners open for a moment.
    for number in 1..=250 {
        let address = SocketAddr::from(([127, 0, 1, number], port));
        let is_tried = AtomicBool::new(false);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                loop {
                    let connected = TcpStream::connect(address);
                    is_tried.store(true, Ordering::Release);
                    match connected {
                        Ok(client) => return client,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
                    }
                    assert!(begun.elapsed() < Duration::from_secs(60), "nobody listens");
                }
            });
            while !is_tried.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let listeners = edge::transport::bind(address, 2).unwrap();
            let mut client = client.join().unwrap();
            client.set_nonblocking(true).unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "it waits to be accepted");
            drop(listeners);
        });
    }
}

#[test]
fn address_that_is_listened_on_is_an_error() {
    let listeners = edge::transport::bind(free_address(), 2).unwrap();
    let error = edge::transport::bind(listeners[0].local_addr().unwrap(), 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
}
