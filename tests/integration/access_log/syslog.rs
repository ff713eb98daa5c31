//! Syslog servers as the destination: messages of RFC 5424 on real sockets, which go away and come back.

use std::io::{BufReader, Read as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Client, Gateway, Upstream, eventually, free_address, listen_at};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

fn gateway(upstream: &Upstream, server: &str) -> Gateway {
    let log = format!("telemetry: {{ access_log: {{ syslog: {{ server: '{server}', facility: local3 }} }} }}\n");
    Gateway::with(&[upstream.address], &format!("gateway: edge 1\n{log}"))
}

fn get(gateway: &Gateway, key: &str, path: &str) {
    assert_eq!(Client::connect(gateway.address).get(path, key).status, 200);
}

/// Number and line of a message, which must be as the standard says.
fn parse(message: &[u8]) -> (u64, Value) {
    let text = std::str::from_utf8(message).unwrap();
    let fields: Vec<&str> = text.splitn(7, ' ').collect();
    // Facility 19 and severity 6.
    assert_eq!((fields[0], fields[2], fields[3], fields[5]), ("<158>1", "edge_1", "keygate", "access"), "{text}");
    assert!(fields[1].parse::<domain::clock::Micros>().is_ok(), "{text}");
    assert_eq!(fields[4], std::process::id().to_string());
    let (data, line) = fields[6].split_once("] {").unwrap();
    let number = data.rsplit_once("[meta sequenceId=\"").unwrap().1.trim_end_matches('"').parse().unwrap();
    assert!(data.starts_with("[origin software=\"keygate\" swVersion=\""), "{text}");
    (number, serde_json::from_str(&format!("{{{line}")).unwrap())
}

/// Reads a message with its length in front (RFC 6587).
fn read_framed(stream: &mut impl std::io::Read) -> Vec<u8> {
    let mut length = 0;
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        match byte[0] {
            b' ' => break,
            digit => length = length * 10 + usize::from(digit - b'0'),
        }
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message).unwrap();
    message
}

#[test]
fn udp_server_gets_a_datagram_for_each_line() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(PATIENCE).unwrap();
    let upstream = Upstream::start();
    let (gateway, key) = gateway(&upstream, &format!("udp://{}", server.local_addr().unwrap())).and_secret();
    for expected in 1..=3 {
        get(&gateway, &key, &format!("/{expected}"));
        let mut buffer = [0; 4096];
        let length = server.recv(&mut buffer).unwrap();
        let (number, line) = parse(&buffer[..length]);
        assert_eq!((number, &line["url.path"]), (expected, &format!("/{expected}").into()));
    }
}

#[test]
fn tcp_server_that_goes_away_gets_all_lines_when_it_is_back() {
    let address = free_address();
    let server = TcpListener::bind(address).unwrap();
    let upstream = Upstream::start();
    let (gateway, key) = gateway(&upstream, &format!("tcp://{address}")).and_secret();
    let accept = |server: &TcpListener| {
        let stream: TcpStream = server.accept().unwrap().0;
        stream.set_read_timeout(PATIENCE).unwrap();
        BufReader::new(stream)
    };
    get(&gateway, &key, "/1");
    get(&gateway, &key, "/2");
    let mut stream = accept(&server);
    let paths = |stream: &mut BufReader<TcpStream>, count: usize| -> Vec<(u64, String)> {
        let message = |_| {
            let (number, line) = parse(&read_framed(stream));
            (number, line["url.path"].as_str().unwrap().to_owned())
        };
        (0..count).map(message).collect()
    };
    assert_eq!(paths(&mut stream, 2), [(1, "/1".into()), (2, "/2".into())]);
    drop((stream, server));
    // Nothing listens: requests go on, and their lines wait.
    (3..=20).for_each(|n| get(&gateway, &key, &format!("/{n}")));
    let server = listen_at(address);
    let mut stream = accept(&server);
    let expected: Vec<(u64, String)> = (3..=20).map(|n| (n, format!("/{n}"))).collect();
    assert_eq!(paths(&mut stream, 18), expected);
    eventually("all lines count as written", || {
        gateway.metric("keygate_access_log_lines_total{result=\"written\"}") as u64 == 20
    });
}

#[test]
fn unix_socket_of_either_kind_gets_the_lines() {
    let dir = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let path = dir.path().join("datagram");
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(PATIENCE).unwrap();
    let gateway_with = |name: &str| gateway(&upstream, &format!("unix:{}", dir.path().join(name).display()));
    let gateway = gateway_with("datagram");
    let key = gateway.key().text;
    let receive = |server: &UnixDatagram| {
        let mut buffer = [0; 4096];
        let length = server.recv(&mut buffer).unwrap();
        parse(&buffer[..length])
    };
    get(&gateway, &key, "/1");
    assert_eq!(receive(&server).1["url.path"], "/1");
    // The syslog daemon restarts.
    drop(server);
    std::fs::remove_file(&path).unwrap();
    get(&gateway, &key, "/2");
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(PATIENCE).unwrap();
    assert_eq!(receive(&server).1["url.path"], "/2");
    drop(gateway);
    let server = UnixListener::bind(dir.path().join("stream")).unwrap();
    let gateway = gateway_with("stream");
    let key = gateway.key().text;
    get(&gateway, &key, "/3");
    let mut stream = server.accept().unwrap().0;
    stream.set_read_timeout(PATIENCE).unwrap();
    assert_eq!(parse(&read_framed(&mut stream)).1["url.path"], "/3");
}

#[test]
fn server_that_never_comes_stops_nothing_and_its_lines_are_counted() {
    let gone = free_address();
    let upstream = Upstream::start();
    let settings = platform::telemetry::access_log::Settings {
        sink: platform::telemetry::access_log::SinkSettings::Syslog(platform::telemetry::access_log::SyslogSettings {
            server: platform::telemetry::access_log::SyslogServer::Tcp(gone.to_string()),
            facility: 16,
        }),
        requests: platform::telemetry::access_log::LoggedRequests::All,
        gateway: "gw".into(),
    };
    let metrics = platform::metrics::Metrics::new().access_log;
    let log = platform::telemetry::access_log::AccessLog::open(&settings, &metrics).unwrap();
    (0..5).for_each(|_| log.push(b"{}\n"));
    log.close();
    assert_eq!((metrics.written.get(), metrics.dropped.get()), (0, 5));
    log.push(b"{}\n");
    assert_eq!(metrics.dropped.get(), 6, "a closed log takes nothing");

    let (gateway, key) = gateway(&upstream, &format!("tcp://{gone}")).and_secret();
    (0..20).for_each(|n| get(&gateway, &key, &format!("/{n}")));
}

#[test]
fn server_that_takes_nothing_is_left_after_a_while_and_no_request_waits() {
    // The backlog takes the connection, and nobody reads.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Upstream::start();
    let (gateway, key) = gateway(&upstream, &format!("tcp://{}", server.local_addr().unwrap())).and_secret();
    (0..50).for_each(|n| get(&gateway, &key, &format!("/{n}")));
    let mut stream = server.accept().unwrap().0;
    stream.set_read_timeout(PATIENCE).unwrap();
    let mut first = [0; 1];
    stream.read_exact(&mut first).unwrap();
    assert!(first[0].is_ascii_digit());
}
