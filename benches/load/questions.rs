//! Questions of other proxies, as they ask the gateway about a small request.

use envoy_wire::ext_authz::{AttributeContext, CheckRequest, HttpRequest, Peer, Request};
use envoy_wire::grpc;

/// Target of the request.
const TARGET: &str = "/api/queries?limit=20";

/// The question of a proxy with ForwardAuth, with the fields that Caddy sends.
pub(crate) fn forward_auth(key: &str) -> Vec<u8> {
    format!(
        "GET /v1/forward_auth HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\
         Authorization: Bearer {key}\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: bench.test\r\n\
         X-Forwarded-Method: GET\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Uri: {TARGET}\r\n\
         Accept-Encoding: gzip\r\n\r\n"
    )
    .into_bytes()
}

/// The question of Envoy by gRPC, as a message with its length before it.
pub(crate) fn check(key: &str) -> Vec<u8> {
    let authorization = format!("Bearer {key}");
    let headers = [
        (":authority", "bench.test"),
        (":method", "GET"),
        (":path", TARGET),
        (":scheme", "http"),
        ("accept", "*/*"),
        ("authorization", &authorization),
        ("user-agent", "bench/1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-request-id", "7f3c1a52-9d0e-4b7e-8a43-5f2d9c6b1e08"),
    ];
    let http = HttpRequest {
        id: "1234567890123456789".to_owned(),
        method: "GET".to_owned(),
        headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        path: TARGET.to_owned(),
        host: "bench.test".to_owned(),
        scheme: "http".to_owned(),
        protocol: "HTTP/1.1".to_owned(),
        ..HttpRequest::default()
    };
    let peer = |port: u16| Some(Peer { address: Some(std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()) });
    let attributes = AttributeContext {
        source: peer(40_000),
        destination: peer(8080),
        request: Some(Request { time: None, http: Some(http) }),
        ..AttributeContext::default()
    };
    grpc::encode_message(&CheckRequest { attributes: Some(attributes) }).to_vec()
}
