//! Revocation ends what is open: each exchange of the key, user, organization, session or secret is reset within a
//! second of the acknowledgement, on every gateway; its slot is free, and the record says why.

pub(crate) mod upstream;
mod kinds;
mod reasons;
mod over_http2;
mod over_redis;
mod races;
mod stages;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Gateway, head};

/// Time in which an exchange must have ended, from the acknowledgement. The tests wait longer before they give up,
/// because a loaded machine is slow; `races` holds the time itself.
const LIMIT: Duration = Duration::from_secs(1);
/// Time after which a test gives up.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const ROUTES: &str = "
routes:
  - { name: tunnel, path: /tunnel, upgrade: [websocket] }
  - { name: other, path: /** }
limits: { key: { requests: 1000000 }, org: { concurrent: 1000 } }
";
const UPGRADE: [(&str, &str); 3] =
    [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")];

/// End of an exchange, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection was reset.
    Reset,
    /// The connection was closed in order, or cut without a word.
    Closed,
}

/// Begins an exchange on a connection of its own.
fn begin(address: SocketAddr, path: &str, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(request(path, key).as_bytes()).unwrap();
    stream
}

fn request(path: &str, key: &str) -> String {
    match path {
        "/tunnel" => head("GET", path, key, &UPGRADE, 0),
        "/upload" => head("POST", path, key, &[("Transfer-Encoding", "chunked")], 0) + "1\r\nx\r\n",
        _ => head("GET", path, key, &[], 0),
    }
}

/// Opens a tunnel, and waits for its 101; `None` when the request was refused.
fn try_open_tunnel(address: SocketAddr, key: &str) -> Option<TcpStream> {
    let mut stream = begin(address, "/tunnel", key);
    is_switched(&mut stream).then_some(stream)
}

/// Reads the head of a response; true when it is a 101.
fn is_switched(stream: &mut TcpStream) -> bool {
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return false;
        }
        received.push(byte[0]);
    }
    received.starts_with(b"HTTP/1.1 101")
}

pub(crate) fn open_tunnel(gateway: &Gateway, key: &str) -> TcpStream {
    try_open_tunnel(gateway.address, key).expect("the key is valid")
}

/// Waits until the exchange ends.
pub(crate) fn end_of(mut stream: impl io::Read) -> End {
    let begun = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    loop {
        assert!(begun.elapsed() < PATIENCE, "the exchange goes on");
        match stream.read(&mut buffer) {
            Ok(0) => return End::Closed,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return End::Reset,
            Err(error) => panic!("the exchange goes on: {error}"),
        }
    }
}

/// Asserts that a tunnel is open, by a message that the upstream echoes.
#[track_caller]
fn assert_open(tunnel: &mut TcpStream) {
    tunnel.write_all(b"ping").unwrap();
    let mut echo = [0; 4];
    tunnel.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"ping");
}
