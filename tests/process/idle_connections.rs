//! Memory of idle connections: many of them come, have one request each, and stay.
//!
//! To print the figures: `cargo test --release --test process -- --nocapture --test-threads 1 idle`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::authority::Authority;
use crate::support::{Running, Setup, Upstream, eventually, head, metric};

/// Limits beyond what the tests need.
const PATIENT: &str = "
workers: 1
limits: { key: { requests: 1000000, per: 1s } }
timeouts: { lame_duck: 0s, first_byte: 1h, keep_alive: 1h }
http: { max_connections_per_address: 10000 }
";

/// Parts in which the connections are opened: a part is parked before the next one. All at once, they would keep their
/// buffers on a fast machine, as those of the last second do.
const PARTS: usize = 8;

/// Opens connections with one request each. Returns them, and the bytes by which each has raised the gateway's peak of
/// memory: also the buffers that they had at first must be few.
fn idle_connections<S>(setup: &Setup, gateway: &Running, count: usize, open: impl Fn() -> S) -> (Vec<S>, u64) {
    // Memory that the first exchanges allocate for good belongs to no connection.
    drop((0..10).map(|_| open()).collect::<Vec<S>>());
    let before = gateway.peak_memory();
    let mut held = Vec::with_capacity(count);
    while held.len() < count {
        held.extend((0..count.div_ceil(PARTS)).map(|_| open()));
        all_are_parked(setup, held.len());
    }
    let bytes = (gateway.peak_memory() - before) / held.len() as u64;
    println!("{bytes} bytes for each of {count} idle connections");
    (held, bytes)
}

fn all_are_parked(setup: &Setup, count: usize) {
    eventually("all are parked", || metric(setup.admin, "keygate_connections_parked") >= count as f64);
}

/// One request, answered with 200.
fn exchange(stream: &mut (impl Read + Write), key: &str) {
    stream.write_all(head("GET", "/", key, &[], 0).as_bytes()).unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nok") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&piece[..read]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&response));
}

fn connect(setup: &Setup) -> TcpStream {
    let stream = TcpStream::connect(setup.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

#[test]
fn idle_plain_connections_take_little_memory_and_are_served_again() {
    let upstream = Upstream::start();
    let (setup, key) = Setup::new(upstream.address, PATIENT).and_key();
    let gateway = setup.start();
    let open = || {
        let mut stream = connect(&setup);
        exchange(&mut stream, &key);
        stream
    };
    let (mut held, bytes) = idle_connections(&setup, &gateway, 2000, open);
    // With buffers, it is more than 30 KiB. The documented 4 KiB are those of the deployed build.
    assert!(bytes < 8 << 10, "{bytes}");
    held.iter_mut().for_each(|stream| exchange(stream, &key));
    all_are_parked(&setup, held.len());
    gateway.stop();
    held.iter_mut().for_each(|stream| assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed at the drain"));
}

#[test]
fn idle_tls_connections_take_little_memory_and_are_served_again() {
    let upstream = Upstream::start();
    let setup = Setup::new(upstream.address, PATIENT);
    let authority = Authority::new();
    authority.certify(&["a.test"]).write(setup.path(), "a");
    let path = setup.path().display();
    let tls = format!("tls: {{ certificates: [{{ chain: {path}/a.pem, key: {path}/a.key }}] }}");
    setup.write(&setup.text().replace("http2: prior_knowledge", &tls));
    let key = setup.key();
    let gateway = setup.start();
    let config = Arc::new(authority.client());
    let open = || {
        let name = ServerName::try_from("a.test").unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut stream = StreamOwned::new(connection, connect(&setup));
        exchange(&mut stream, &key);
        stream
    };
    let (mut held, bytes) = idle_connections(&setup, &gateway, 500, open);
    // With the buffers of HTTP, it is more than 40 KiB. The documented 20 KiB are those of the deployed build.
    assert!(bytes < 24 << 10, "{bytes}");
    held.iter_mut().for_each(|stream| exchange(stream, &key));
    all_are_parked(&setup, held.len());
    gateway.stop();
    // With the alert that TLS ends with: without it, reading would be an error.
    held.iter_mut().for_each(|stream| assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed at the drain"));
}
