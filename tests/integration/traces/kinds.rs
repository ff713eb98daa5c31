//! Requests of every kind: over HTTP/2, with retries, through tunnels, broken off.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};

use super::{ROUTES, clients, gateway, parent_at, servers};
use crate::support::{Client, Collector, Gateway, HyperOptions, Upstream, fetch_http2, free_address, head};

#[test]
fn each_try_has_a_span_of_its_own() {
    let failing =
        Upstream::answering(|_, stream| drop(stream.write_all(b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n")));
    let breaking = Upstream::answering(|_, stream| drop(stream.shutdown(Shutdown::Both)));
    let (good, collector) = (Upstream::start(), Collector::start());
    let endpoints = [&failing, &breaking, &good].map(|upstream| format!("'http://{}'", upstream.address)).join(", ");
    let off = "outlier: { server_errors: 0, gateway_errors: 0, timeouts: 0 }";
    let upstream = format!(
        "upstream: {{ endpoints: [{endpoints}], balance: {{ policy: round_robin }}, {off}, \
         retries: {{ budget: 100, attempts: 3 }} }}\n"
    );
    let gateway = Gateway::with(&[], &format!("workers: 1\n{upstream}{}{ROUTES}", collector.telemetry("")));
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    // In turns: some request begins at an endpoint that fails, and ends at the good one after two retries, or one.
    let requests = 6;
    (0..requests).for_each(|_| assert_eq!(client.get("/items/7", &key).status, 200));
    drop(gateway);
    let spans = collector.spans();
    assert_eq!(servers(&spans).len(), requests);
    let sent: usize = [&failing, &breaking, &good].iter().map(|upstream| upstream.count()).sum();
    assert_eq!(clients(&spans).len(), sent);
    for server in servers(&spans) {
        assert_eq!((server.get("http.response.status_code"), server.get("error.type")), ("200", ""));
        let tries: Vec<_> = clients(&spans).into_iter().filter(|try_| try_.trace_id() == server.trace_id()).collect();
        for (number, try_) in tries.iter().enumerate() {
            assert_eq!(try_.parent(), server.id());
            let resend = if number == 0 { String::new() } else { number.to_string() };
            assert_eq!(try_.get("http.request.resend_count"), resend);
            let (upstream, status, error) = match try_.get("server.port").parse::<u16>().unwrap() {
                port if port == failing.address.port() => (&failing, "503", "503"),
                port if port == breaking.address.port() => (&breaking, "", "bad_response"),
                _ => (&good, "200", ""),
            };
            assert_eq!((try_.get("http.response.status_code"), try_.get("error.type")), (status, error));
            let parents = upstream.received();
            assert!(
                parents.iter().any(|received| parent_at(received).1 == try_.id()),
                "the upstream has seen the span"
            );
        }
        assert_eq!(tries.last().unwrap().get("http.response.status_code"), "200");
        assert!(tries.windows(2).all(|two| two[0].span.end_time_unix_nano <= two[1].span.start_time_unix_nano));
    }
    assert!(sent > requests, "some were sent again");
}

#[test]
fn endpoint_without_a_connection_has_a_span_with_the_reason() {
    let collector = Collector::start();
    let nothing = free_address();
    let (gateway, key) = Gateway::with(&[nothing], &format!("{}{ROUTES}", collector.telemetry(""))).and_secret();
    let response = Client::connect(gateway.address).get("/items/7", &key);
    assert_eq!(response.code(), "upstream_unavailable");
    let spans = collector.wait_for(2);
    let (server, client) = (servers(&spans)[0], clients(&spans)[0]);
    assert_eq!((server.get("error.type"), client.get("error.type")), ("upstream_unavailable", "connect_error"));
    assert_eq!(response.json()["trace_id"], server.trace_id());
    assert_eq!(client.get("server.port"), nothing.port().to_string());
    let code = |span: &crate::support::ReceivedSpan| span.span.status.as_ref().unwrap().code;
    assert_eq!((code(server), code(client)), (2, 2), "both have failed");
}

#[test]
fn http2_is_traced_on_both_sides() {
    let collector = Collector::start();
    let upstream = HyperOptions::http2().start(|request: http::Request<hyper::body::Incoming>| async move {
        let parent = request.headers()["traceparent"].to_str().unwrap().to_owned();
        Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(bytes::Bytes::from(parent))))
    });
    let blocks = format!(
        "upstream: {{ endpoints: ['http://{}'], protocol: http2 }}\n{}",
        upstream.address,
        collector.telemetry("")
    );
    let (gateway, key) = Gateway::with(&[], &blocks).and_secret();
    let response = fetch_http2(gateway.address, "GET", "/items/7", &key).unwrap();
    let spans = collector.wait_for(2);
    let (server, client) = (servers(&spans)[0], clients(&spans)[0]);
    let versions = [server, client].map(|span| span.get("network.protocol.version"));
    assert_eq!(versions, ["2", "2"]);
    assert_eq!(server.get("server.address"), "127.0.0.1", "the authority of the target");
    let parent = format!("00-{}-{}-01", server.trace_id(), client.id());
    assert_eq!(String::from_utf8(response.body).unwrap(), parent);
}

#[test]
fn tunnel_is_one_span_from_the_request_to_its_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            received.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        String::from_utf8(received).unwrap()
    });
    let collector = Collector::start();
    let (gateway, key) = Gateway::with(&[address], &format!("{}{ROUTES}", collector.telemetry(""))).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/socket", &key, &[("Connection", "Upgrade"), ("Upgrade", "websocket")], 0));
    assert_eq!(client.head().unwrap().0, 101);
    assert!(collector.spans().is_empty(), "it goes on");
    client.send(b"bytes").finish();
    let received = upstream.join().unwrap();
    client.rest();
    let spans = collector.wait_for(2);
    let (server, try_) = (servers(&spans)[0], clients(&spans)[0]);
    assert_eq!([server, try_].map(|span| span.get("http.response.status_code")), ["101", "101"]);
    assert_eq!(server.span.end_time_unix_nano, try_.span.end_time_unix_nano);
    assert!(received.contains(&format!("traceparent: 00-{}-{}-01\r\n", server.trace_id(), try_.id())), "{received}");
}

#[test]
fn request_that_the_client_breaks_off_is_an_error() {
    // It never answers.
    let (upstream, collector) = (Upstream::answering(|_, _| {}), Collector::start());
    let (gateway, key) = gateway(&upstream, &collector, "ratio: 0").and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/items/7", &key, &[], 0));
    crate::support::eventually("the upstream has the request", || upstream.count() == 1);
    drop(client);
    let spans = collector.wait_for(2);
    let server = servers(&spans)[0];
    assert_eq!((server.get("error.type"), server.get("http.response.status_code")), ("aborted", ""));
}
