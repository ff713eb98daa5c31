//! The edge: hostile, malformed and slow clients, byte by byte, while other clients are served.

mod framing;
mod pipelining;
mod timeouts;
mod connections;
mod parking;
mod balance;
pub mod frames;
mod http2_hostile;
mod http2_requests;
mod proxy_protocol;
mod real_clients;

use std::net::SocketAddr;

use crate::support::{Client, Gateway, Upstream, eventually, metric};

/// More requests than any test makes.
const PLENTY: &str = "limits: { key: { requests: 1000000, per: 1s } }\n";

/// Waits until nothing is in flight and no client is connected.
fn all_is_given_back(gateway: &Gateway) {
    for gauge in ["keygate_in_flight", "keygate_connections"] {
        eventually(gauge, || gateway.metric(gauge) == 0.0);
    }
}

fn timeouts(admin: SocketAddr, kind: &str) -> f64 {
    metric(admin, &format!("keygate_timeouts_total{{kind=\"{kind}\"}}"))
}

/// Checks that another client, on a connection of its own, is served.
fn serves(gateway: &Gateway, key: &str) {
    let response = Client::connect(gateway.address).get("/honest", key);
    assert_eq!(response.status, 200, "{response:?}");
}

/// An upstream that answers with the path of the request.
fn echo() -> Upstream {
    Upstream::answering(|request, stream| {
        use std::io::Write as _;
        let path = request.path();
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len()).as_bytes()).ok();
    })
}

/// An upstream that answers `/endless` with more than any socket buffers, and everything else with `ok`.
fn endless() -> Upstream {
    Upstream::answering(|request, stream| {
        use std::io::Write as _;
        if request.path() != "/endless" {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n").ok();
        while stream.write_all(&[0; 65536]).is_ok() {}
    })
}
