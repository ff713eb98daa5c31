//! Connections that switch protocols: only where a route allows it, only to the requested protocol, and
//! accounted to the end.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use journal::audit::Outcome;

use crate::support::{Client, Gateway, Upstream, eventually, head};

const ROUTES: &str = "
routes:
  - { name: socket, path: /socket, upgrade: [websocket] }
  - { name: plain, path: /plain }
limits: { org: { concurrent: 1 } }
";
const ASK: [(&str, &str); 3] = [
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "WebSocket"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Kept: 1\r\n\r\n";

/// Upstream that reads one head, answers with these bytes, and hands over its end of the connection.
fn switching_upstream(answer: &'static [u8]) -> (SocketAddr, mpsc::Receiver<(String, TcpStream)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (hand, handed)) = (listener.local_addr().unwrap(), mpsc::channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                received.push(byte[0]);
            }
            stream.write_all(answer).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            hand.send((String::from_utf8(received).unwrap(), stream)).ok();
        }
    });
    (address, handed)
}

/// Opens a tunnel and returns both of its ends.
fn open_tunnel(gateway: &Gateway, key: &str, handed: &mpsc::Receiver<(String, TcpStream)>) -> (Client, TcpStream) {
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/socket", key, &ASK, 0));
    assert_eq!(client.head().unwrap().0, 101);
    let (_, upstream) = handed.recv_timeout(Duration::from_secs(10)).unwrap();
    (client, upstream)
}

fn read(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn tunnel_passes_and_counts_bytes_both_ways() {
    let answer = [SWITCH.as_bytes(), b"early"].concat().leak();
    let (address, handed) = switching_upstream(answer);
    let (gateway, key) = Gateway::with(&[address], ROUTES).and_key();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/socket?room=1", &key.text, &ASK, 0) + "ahead");
    let (status, headers) = client.head().unwrap();
    let field = |name: &str| {
        let found: Vec<_> =
            headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str()).collect();
        found.join("|")
    };
    assert_eq!(status, 101);
    assert_eq!(
        (field("connection"), field("upgrade"), field("x-kept")),
        ("upgrade".into(), "websocket".into(), "1".into())
    );
    assert_eq!((field("content-length"), field("transfer-encoding")), (String::new(), String::new()));
    assert!(field("ratelimit").contains("r=0") && !field("x-request-id").is_empty());

    let (request, mut upstream) = handed.recv_timeout(Duration::from_secs(10)).unwrap();
    let request = request.to_lowercase();
    for line in ["get /socket?room=1 http/1.1", "connection: upgrade", "upgrade: websocket"] {
        assert_eq!(request.lines().filter(|given| *given == line).count(), 1, "{line}: {request}");
    }
    assert!(request.contains("sec-websocket-key: dghlihnhbxbszsbub25jzq=="), "{request}");
    assert!(request.contains(&format!("x-user-id: {}", key.user).to_lowercase()), "{request}");

    assert_eq!(client.read_exact(5), b"early");
    assert_eq!(read(&mut upstream, 5), b"ahead");
    client.send("ping");
    assert_eq!(read(&mut upstream, 4), b"ping");
    upstream.write_all(b"pong!!").unwrap();
    assert_eq!(client.read_exact(6), b"pong!!");

    assert_eq!(gateway.metric("keygate_in_flight"), 1.0);
    let refused = Client::connect(gateway.address).get("/plain", &key.text);
    assert_eq!(refused.code(), "too_many_in_flight", "the tunnel holds the slot");

    drop(client);
    assert_eq!(upstream.read(&mut [0]).unwrap(), 0, "the end is passed on");
    drop(upstream);
    eventually("the slot is back", || gateway.metric("keygate_in_flight") == 0.0);
    let records = gateway.records();
    let record = records.iter().find(|record| record.action == "socket").unwrap();
    assert_eq!((record.outcome, record.status), (Outcome::Completed, Some(101)));
    assert_eq!((record.request_bytes, record.response_bytes), (Some(9), Some(11)));
}

#[test]
fn upgrade_is_ignored_unless_the_route_allows_it() {
    let (upstream, gateway, key) = Gateway::with_secret(ROUTES);
    let connection = ("Connection", "upgrade");
    let cases = [
        ("GET", "/plain", &[connection, ("Upgrade", "websocket")][..]),
        ("GET", "/socket", &[connection, ("Upgrade", "h2c")]),
        ("GET", "/socket", &[connection, ("Upgrade", "websocket, h2c")]),
        ("GET", "/socket", &[connection, ("Upgrade", "websocket"), ("Upgrade", "websocket")]),
        ("GET", "/socket", &[("Upgrade", "websocket")]),
        ("POST", "/socket", &[connection, ("Upgrade", "websocket")]),
        (
            "GET",
            "/socket",
            &[("Connection", "upgrade, http2-settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMA")],
        ),
    ];
    for (method, path, fields) in cases {
        assert_eq!(Client::connect(gateway.address).request(method, path, &key, fields, b"").status, 200);
        let received = upstream.last();
        for gone in ["upgrade", "connection", "http2-settings"] {
            assert_eq!(received.header(gone), None, "{method} {path} {fields:?}: {received:?}");
        }
    }
}

#[test]
fn upgrade_to_another_protocol_is_refused() {
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ] {
        let (address, handed) = switching_upstream(answer.as_bytes());
        let (gateway, key) = Gateway::with(&[address], ROUTES).and_secret();
        let response = Client::connect(gateway.address).request("GET", "/socket", &key, &ASK, b"");
        assert_eq!((response.status, response.code().as_str()), (502, "upstream_failed"), "{answer}");
        let (_, mut upstream) = handed.recv().unwrap();
        assert_eq!(upstream.read(&mut [0]).unwrap_or_default(), 0, "{answer}: the connection is closed");
    }
}

#[test]
fn refused_upgrade_is_a_plain_response() {
    let upstream = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: other\r\nContent-Length: 2\r\n\r\nno").unwrap();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_secret();
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        let response = client.request("GET", "/socket", &key, &ASK, b"");
        assert_eq!((response.status, &*response.body, response.header("upgrade")), (426, &b"no"[..], None));
    }
    assert_eq!(upstream.connections(), 1, "the connection is used again");
}

#[test]
fn tunnel_half_may_end_before_the_other() {
    let (address, handed) = switching_upstream(SWITCH.as_bytes());
    let (gateway, key) = Gateway::with(&[address], ROUTES).and_secret();
    let (mut client, mut upstream) = open_tunnel(&gateway, &key, &handed);
    upstream.write_all(b"last words").unwrap();
    upstream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_exact(10), b"last words");
    assert!(client.is_closed(), "the end of the upstream's half is passed on");
    client.send("still here");
    assert_eq!(read(&mut upstream, 10), b"still here");
    assert_eq!(gateway.metric("keygate_in_flight"), 1.0);
    drop(client);
    eventually("both halves have ended", || gateway.metric("keygate_in_flight") == 0.0);
    assert_eq!(gateway.records()[0].outcome, Outcome::Completed);
}

#[test]
fn idle_tunnel_is_closed() {
    let (address, handed) = switching_upstream(SWITCH.as_bytes());
    let blocks = format!("{ROUTES}timeouts: {{ tunnel_idle: 500ms, exchange: 100ms, response_idle: 100ms }}");
    let (gateway, key) = Gateway::with(&[address], &blocks).and_secret();
    let (mut client, mut upstream) = open_tunnel(&gateway, &key, &handed);
    for _ in 0..10 {
        upstream.write_all(b"x").unwrap();
        assert_eq!(client.read_exact(1), b"x");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(client.is_closed());
    assert_eq!(upstream.read(&mut [0]).unwrap_or_default(), 0);
    assert_eq!(gateway.metric("keygate_timeouts_total{kind=\"tunnel_idle\"}"), 1.0);
    assert_eq!(gateway.records()[0].outcome, Outcome::Aborted);
}

#[test]
fn unread_tunnel_buffers_little() {
    let (address, handed) = switching_upstream(SWITCH.as_bytes());
    let (gateway, key) = Gateway::with(&[address], ROUTES).and_secret();
    let (_client, mut upstream) = open_tunnel(&gateway, &key, &handed);
    upstream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    // The kernel buffers what its limits allow on both connections; the gateway has 16 KiB of its own.
    let limit = |name: &str| -> usize {
        let limits = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        limits.split_whitespace().last().unwrap().parse().unwrap()
    };
    let kernel = 2 * (limit("tcp_rmem") + limit("tcp_wmem"));
    let piece = vec![0; 1 << 20];
    let most = kernel / piece.len() + 2;
    let taken = (0..=most).take_while(|_| upstream.write_all(&piece).is_ok()).count();
    assert!(taken <= most, "more than {taken} MiB were buffered although the client reads nothing");
}

#[test]
fn tunnels_end_with_the_grace_period_of_a_drain() {
    let (address, handed) = switching_upstream(SWITCH.as_bytes());
    let mut gateway = Gateway::with(&[address], &format!("{ROUTES}timeouts: {{ drain: 300ms }}"));
    let key = gateway.key().text;
    let (mut client, mut upstream) = open_tunnel(&gateway, &key, &handed);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| gateway.restart(&Upstream::start()));
        upstream.write_all(b"still served").unwrap();
        assert_eq!(client.read_exact(12), b"still served");
        assert!(client.is_closed());
        assert!(began.elapsed() >= Duration::from_millis(300), "the grace period was given");
    });
    assert_eq!(upstream.read(&mut [0]).unwrap_or_default(), 0);
    let records = gateway.records();
    let record = records.iter().find(|record| record.action == "socket").unwrap();
    assert_eq!((record.outcome, record.response_bytes), (Outcome::Aborted, Some(12)));
}
