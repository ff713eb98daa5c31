//! Requests and their lines: what a line says, and that each request has exactly one, however it ends.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{FILE, lines};
use crate::decisions::{self, Asked, PROTOCOLS};
use crate::support::{Client, Collector, Gateway, Upstream, eventually, fetch_http2, free_address, head};

/// The members of a line with these names.
fn members<const N: usize>(line: &Value, names: [&str; N]) -> [Value; N] {
    names.map(|name| line.get(name).cloned().unwrap_or(Value::Null))
}

#[test]
fn line_says_who_did_what_by_which_way_and_how_it_ended() {
    let routes = "routes: [{ name: things.create, methods: [POST], path: '/things/{id}' }]\n";
    let (upstream, gateway, key) = Gateway::with_key(&format!("gateway: edge-1\n{FILE}{routes}"));
    let mut client = Client::connect(gateway.address);
    let response = client.request("POST", "/things/7?q=1", &key.text, &[("User-Agent", "test/1")], b"hello");
    assert_eq!(response.status, 200);
    let lines = lines(&gateway, 1);
    let line = &lines[0];
    let names = ["http.request.id", "http.request.method", "http.response.status_code", "http.request.body.bytes"];
    let id = response.header("x-request-id").unwrap();
    assert_eq!(members(line, names), [json!(id), json!("POST"), json!(200), json!(5)]);
    let names = ["http.response.body.bytes", "http.version", "url.path", "url.query", "user_agent.original"];
    assert_eq!(members(line, names), [json!(2), json!("1.1"), json!("/things/7"), Value::Null, json!("test/1")]);
    let names = ["client.ip", "client.address", "source.ip", "tls.version", "user.id", "organization.id"];
    let ip = json!("127.0.0.1");
    let (user, org) = (json!(key.user.to_string()), json!(key.org.to_string()));
    assert_eq!(members(line, names), [ip.clone(), ip.clone(), ip, Value::Null, user, org]);
    let names = ["keygate.key_id", "keygate.route", "keygate.upstream", "keygate.endpoint", "keygate.gateway"];
    let endpoint = upstream.address.to_string();
    let expected = [key.id.to_string(), "things.create".into(), "default".into(), endpoint, "edge-1".into()];
    assert_eq!(members(line, names), expected.map(Value::from));
    let names = ["keygate.outcome", "keygate.refusal", "event.outcome", "event.category", "keygate.auth_method"];
    let expected = [json!("completed"), Value::Null, json!("success"), json!(["web"]), json!("api-key")];
    assert_eq!(members(line, names), expected);
    assert!(line["event.duration"].as_u64().unwrap() > 0);
    assert!(line["http.request.bytes"].as_u64().unwrap() > 100, "{line}");
    assert_eq!(line["@timestamp"], gateway.records()[0].time.to_string(), "the time of the audit record");
}

#[test]
fn line_of_a_decision_names_the_client_and_not_the_proxy_that_asks() {
    let upstream = Upstream::start();
    let gateway = decisions::gateway(&upstream, "none", FILE);
    let key = gateway.key();
    for (protocol, address) in PROTOCOLS.iter().zip(&gateway.addresses()[1..]) {
        protocol.ask(*address, Asked::get("/a", &key.text));
    }
    for line in lines(&gateway, PROTOCOLS.len()) {
        let names = ["client.ip", "source.ip", "url.path", "keygate.outcome"];
        assert_eq!(members(&line, names), ["192.0.2.9", "127.0.0.1", "/a", "decided"].map(Value::from));
    }
}

/// The trace of a line is that of the audit record and of the problem.
#[test]
fn traced_requests_have_the_id_of_their_trace() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let telemetry = format!(
        "telemetry: {{ access_log: {{ file: access.log }}, traces: {{ endpoint: 'http://{}', ratio: 0 }} }}\n",
        collector.address()
    );
    let blocks =
        format!("{telemetry}routes: [{{ name: a, path: /a }}, {{ name: b, path: /b, permission: 'b:read' }}]\n");
    let (gateway, key) = Gateway::with(&[upstream.address], &blocks).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/a", &key).status, 200);
    let refused = client.get("/b", &key);
    assert_eq!(refused.status, 403);
    let unknown = client.get("/a", "");
    assert_eq!(unknown.status, 401);
    let lines = lines(&gateway, 3);
    let traces: Vec<&str> = lines.iter().map(|line| line["trace.id"].as_str().unwrap()).collect();
    let recorded: Vec<String> =
        gateway.records().iter().rev().map(|record| record.trace_id.unwrap().to_string()).collect();
    assert_eq!(traces[..2], recorded);
    assert_eq!([&refused, &unknown].map(|response| response.json()["trace_id"].clone()), [traces[1], traces[2]]);
    gateway.reconfigure(|text| {
        text.replace(&format!(", traces: {{ endpoint: 'http://{}', ratio: 0 }}", collector.address()), "")
    });
    eventually("an untraced request has no trace", || {
        assert_eq!(client.get("/a", &key).status, 200);
        let path = gateway.dir.path().join("access.log");
        super::lines_of(&path).iter().any(|line| line.get("trace.id").is_none())
    });
}

#[test]
fn every_refusal_has_one_line_with_its_code() {
    let blocks = format!("{FILE}routes: [{{ name: a, path: /a }}]\nhttp: {{ max_target: 1KiB }}\n");
    let (_upstream, gateway, key) = Gateway::with_secret(&blocks);
    let ask = |request: String| {
        let mut client = Client::connect(gateway.address);
        client.send(request);
        client.response()
    };
    let long = format!("/{}", "a".repeat(2000));
    let responses = [
        (ask(head("GET", "/a", "", &[], 0).replace("Authorization: Bearer \r\n", "")), "unauthenticated"),
        (ask(head("GET", "/a", "sk_live_unknown", &[], 0)), "invalid_token"),
        (ask(head("GET", "/none", &key, &[], 0)), "not_found"),
        (ask(head("GET", &long, &key, &[], 0)), "target_too_long"),
        (ask("NOT HTTP AT ALL\r\n\r\n".into()), "malformed_request"),
        (ask(head("TRACE", "/a", &key, &[], 0)), "malformed_request"),
        (ask(head("GET", "/a", &key, &[("Expect", "wonders")], 0)), "expectation_failed"),
    ];
    let lines = lines(&gateway, responses.len());
    for (response, code) in responses {
        let id = response.header("x-request-id").unwrap();
        let of_request: Vec<_> = lines.iter().filter(|line| line["http.request.id"] == *id).collect();
        assert_eq!(of_request.len(), 1, "{code}: {lines:#?}");
        let names = ["http.response.status_code", "keygate.refusal", "event.outcome", "http.response.body.bytes"];
        let expected = [json!(response.status), json!(code), json!("failure"), json!(response.body.len())];
        assert_eq!(members(of_request[0], names), expected);
        assert_eq!(of_request[0]["source.ip"], "127.0.0.1");
    }
}

#[test]
fn failing_upstream_and_slow_head_have_their_lines() {
    let gone = free_address();
    let (gateway, key) = Gateway::with(&[gone], &format!("{FILE}timeouts: {{ head: 100ms }}\n")).and_key();
    let response = Client::connect(gateway.address).get("/", &key.text);
    assert_eq!(response.status, 503);
    let mut slow = Client::connect(gateway.address);
    slow.send("GET / HTT");
    assert_eq!(slow.response().status, 408);
    let lines = lines(&gateway, 2);
    let names = ["keygate.refusal", "keygate.outcome", "keygate.upstream", "keygate.key_id", "url.path"];
    let expected = ["upstream_unavailable", "upstream_error", "default", &key.id.to_string(), "/"];
    assert_eq!(members(&lines[0], names), expected.map(Value::from));
    let expected = [json!("request_timeout"), json!("client_error"), Value::Null, Value::Null, Value::Null];
    assert_eq!(members(&lines[1], names), expected);
}

#[test]
fn client_that_goes_away_has_a_line_without_a_status() {
    let (arrived, arrivals) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::answering(move |_, _| {
        arrived.send(()).unwrap();
        released.lock().unwrap().recv_timeout(Duration::from_secs(60)).ok();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], FILE).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/slow", &key, &[], 0));
    arrivals.recv_timeout(Duration::from_secs(60)).unwrap();
    drop(client);
    let lines = lines(&gateway, 1);
    let names = ["url.path", "keygate.outcome", "http.response.status_code", "event.outcome"];
    assert_eq!(members(&lines[0], names), [json!("/slow"), json!("aborted"), Value::Null, json!("failure")]);
    release.send(()).unwrap();
}

#[test]
fn tunnel_has_its_line_when_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (hand, handed) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            received.push(byte[0]);
        }
        let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(switch.as_bytes()).unwrap();
        hand.send(stream).unwrap();
    });
    let routes = "routes: [{ name: socket, path: /socket, upgrade: [websocket] }]\n";
    let (gateway, key) = Gateway::with(&[address], &format!("{FILE}{routes}")).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/socket", &key, &[("Connection", "Upgrade"), ("Upgrade", "websocket")], 0));
    assert_eq!(client.head().unwrap().0, 101);
    let mut upstream: TcpStream = handed.recv_timeout(Duration::from_secs(60)).unwrap();
    client.send("ping!");
    let mut ping = [0; 5];
    upstream.read_exact(&mut ping).unwrap();
    upstream.write_all(b"pong").unwrap();
    assert_eq!(client.read_exact(4), b"pong");
    let path = gateway.dir.path().join("access.log");
    assert_eq!(std::fs::read(&path).unwrap(), b"", "the tunnel is open");
    upstream.shutdown(Shutdown::Write).unwrap();
    client.finish();
    let lines = lines(&gateway, 1);
    let names = ["http.response.status_code", "http.request.body.bytes", "http.response.body.bytes", "keygate.outcome"];
    assert_eq!(members(&lines[0], names), [json!(101), json!(5), json!(4), json!("completed")]);
}

#[test]
fn http2_requests_of_one_connection_have_a_line_each() {
    let (_upstream, gateway, key) = Gateway::with_secret(FILE);
    assert_eq!(fetch_http2(gateway.address, "GET", "/two", &key).unwrap().status, 200);
    assert_eq!(fetch_http2(gateway.address, "GET", "/three", "nonsense").unwrap().status, 401);
    let lines = lines(&gateway, 2);
    let names = ["http.version", "url.path", "http.response.status_code"];
    assert_eq!(members(&lines[0], names), [json!("2"), json!("/two"), json!(200)]);
    assert_eq!(members(&lines[1], names), [json!("2"), json!("/three"), json!(401)]);
}

#[test]
fn unaudited_requests_are_exactly_those_without_an_audit_record() {
    let upstream = Upstream::start();
    let blocks = "telemetry: { access_log: { file: access.log, requests: unaudited } }\n\
                  audit: { path: audit, unknown_per_second: 0 }\nroutes: [{ name: a, path: /a }]\n";
    let gateway = Gateway::with(&[upstream.address], "");
    let mut gateway = gateway;
    gateway.restart_with(|text| format!("{}{blocks}", text.replace("audit: { low_water: 0%, path: audit }\n", "")));
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    let audited = [client.get("/a", &key), client.get("/none", &key)];
    let unaudited =
        [client.get("/a", "sk_live_unknown"), client.request("GET", "/a", &key, &[("Expect", "wonders")], b"")];
    let id = |response: &crate::support::Response| response.header("x-request-id").unwrap().to_owned();
    let logged: Vec<_> =
        lines(&gateway, 2).iter().map(|line| line["http.request.id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(logged, unaudited.map(|response| id(&response)));
    let expected = audited.map(|response| id(&response));
    eventually("the others are recorded", || {
        let mut recorded: Vec<_> = gateway.records().iter().map(|record| record.id.to_string()).collect();
        recorded.sort();
        recorded == expected
    });
}

#[test]
fn dashboard_requests_have_lines_without_the_token_of_a_sign_in_link() {
    let upstream = Upstream::start();
    let blocks = format!("{FILE}session: {{ origin: 'http://127.0.0.1' }}\n");
    let gateway = Gateway::with(&[upstream.address], &blocks);
    let mut client = Client::connect(gateway.address);
    let responses = [
        client.request("GET", "/settings/link/very-secret-token", "", &[], b""),
        client.request("GET", "/settings/callback/acme?code=very-secret-code", "", &[], b""),
    ];
    let lines = lines(&gateway, 2);
    assert_eq!(lines[0]["url.path"], "/settings/link/\u{2026}");
    assert_eq!(lines[1]["url.path"], "/settings/callback/acme");
    for (line, response) in lines.iter().zip(responses) {
        assert_eq!(line["http.response.status_code"], response.status);
        assert_eq!(line["http.request.id"], response.header("x-request-id").unwrap());
        assert_eq!(line["keygate.outcome"], "completed");
    }
    let bytes = std::fs::read_to_string(gateway.dir.path().join("access.log")).unwrap();
    assert!(!bytes.contains("very-secret"), "{bytes}");
}

#[test]
fn lines_are_counted_and_none_is_written_without_an_access_log() {
    let (_upstream, gateway, key) = Gateway::with_secret("");
    let get = |count| (0..count).for_each(|_| assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200));
    get(2);
    assert_eq!(gateway.metric("keygate_access_log_lines_total{result=\"written\"}") as u64, 0);
    gateway.reconfigure(|text| format!("{text}{FILE}"));
    let file = gateway.dir.path().join("access.log");
    eventually("the reload has opened the file", || file.exists());
    eventually("the reload is in force", || gateway.metric("keygate_config_last_reload_successful") as u64 == 1);
    eventually("requests have lines", || {
        get(1);
        gateway.metric("keygate_access_log_lines_total{result=\"written\"}") > 0.0
    });
    assert_eq!(gateway.metric("keygate_access_log_lines_total{result=\"dropped\"}") as u64, 0);
}
