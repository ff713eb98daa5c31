//! Envoy asking by gRPC: the identity, refusals, and streams that live as long as the exchange.

use super::admitted::{assert_identity, spellings};
use super::envoy_peer::EnvoyPeer;
use super::{IDENTITY, Kind, Proxy, upstream};
use crate::support::{GatedUpstream, eventually, head};

/// Requests that are open at a time: more than the default of Envoy's circuit breaker.
const MANY: usize = 1_100;
/// Those that begin at once.
const BURST: usize = 100;

#[test]
fn identity_by_grpc_is_that_of_the_decision() {
    for kind in Kind::BY_GRPC {
        let (peer, upstream) = (EnvoyPeer::start(), upstream());
        let proxy = Proxy::start(kind, peer.address, upstream.address);
        for (key, has_key) in [("good", true), ("session", false)] {
            for (name, _) in IDENTITY {
                for spelling in spellings(name) {
                    let forged = [(spelling.as_str(), "forged"), ("Connection", name)];
                    let response = proxy.client().request("GET", "/plain", key, &forged, b"");
                    assert_eq!(response.status, 200, "{kind:?}: {spelling}: {response:?}");
                    assert_identity(kind, &upstream.last(), has_key);
                }
            }
        }
    }
}

#[test]
fn refusal_by_grpc_reaches_the_client_with_status_fields_and_body() {
    for kind in Kind::BY_GRPC {
        let (peer, upstream) = (EnvoyPeer::start(), upstream());
        let proxy = Proxy::start(kind, peer.address, upstream.address);
        assert_eq!(proxy.client().get("/plain", "bad").status, 401, "{kind:?}");
        for status in [400, 403, 404, 429, 503] {
            let response = proxy.client().request("POST", &format!("/refused/{status}"), "good", &[], b"body");
            assert_eq!(response.status, status, "{kind:?}: {response:?}");
            assert_eq!(response.json()["code"], "of_the_peer", "{kind:?}");
            assert_eq!(response.header("content-type"), Some("application/problem+json"), "{kind:?}");
            assert_eq!(response.header("retry-after"), Some("7"), "{kind:?}");
        }
        assert_eq!(upstream.count(), 0, "{kind:?}");
    }
}

#[test]
fn stream_lives_as_long_as_the_exchange() {
    let (peer, upstream) = (EnvoyPeer::start(), GatedUpstream::start());
    let proxy = Proxy::start(Kind::EnvoyExtProc, peer.address, upstream.address());
    let mut client = proxy.client();
    client.send(head("GET", "/plain", "good", &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    assert_eq!((peer.open(), peer.responses()), (1, 0));
    upstream.open();
    assert_eq!(client.response().status, 200);
    eventually("the stream has ended", || peer.open() == 0);
    assert_eq!((peer.questions(), peer.responses()), (1, 1));
}

#[test]
fn stream_ends_when_the_client_aborts() {
    let (peer, upstream) = (EnvoyPeer::start(), GatedUpstream::start());
    let proxy = Proxy::start(Kind::EnvoyExtProc, peer.address, upstream.address());
    let mut client = proxy.client();
    client.send(head("GET", "/plain", "good", &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    drop(client);
    eventually("the stream has ended", || peer.open() == 0);
    assert_eq!(peer.responses(), 0);
}

#[test]
fn exchange_ends_when_its_stream_ends_with_an_error() {
    let (peer, upstream) = (EnvoyPeer::start(), GatedUpstream::start());
    let proxy = Proxy::start(Kind::EnvoyExtProc, peer.address, upstream.address());
    let mut client = proxy.client();
    client.send(head("GET", "/plain", "good", &[], 0));
    eventually("the request is at the upstream", || upstream.count() == 1);
    peer.revoke();
    // Before the head of the response Envoy can still answer.
    let response = client.try_response_to("GET");
    assert!(
        response.as_ref().is_err() || response.as_ref().is_ok_and(|response| response.status == 503),
        "{response:?}"
    );
    assert_eq!(peer.open(), 0);
}

/// The default of Envoy's circuit breaker is 1,024.
#[test]
fn many_exchanges_are_open_at_a_time() {
    let (peer, upstream) = (EnvoyPeer::start(), GatedUpstream::start());
    let proxy = Proxy::start_changed(Kind::EnvoyExtProc, peer.address, upstream.address(), raised);
    let mut clients = Vec::new();
    while clients.len() < MANY {
        // As many as the backlog of the upstream's listener takes.
        let begun: Vec<_> = (0..BURST).map(|_| proxy.client()).collect();
        clients.extend(begun);
        let first = clients.len() - BURST;
        for client in &mut clients[first..] {
            client.send(head("GET", "/plain", "good", &[], 0));
        }
        eventually("all are at the upstream", || upstream.count() == clients.len());
    }
    assert_eq!(peer.open(), MANY);
    upstream.open();
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.status, 200, "{response:?}");
    }
    eventually("all streams have ended", || peer.open() == 0);
}

/// The same with a circuit breaker of the upstream that does not count.
fn raised(text: String) -> String {
    let breaker =
        "circuit_breakers: { thresholds: [{ max_connections: 9999, max_requests: 9999, max_pending_requests: 9999 }] }";
    text.replacen(
        "    - name: protected\n      connect",
        &format!("    - name: protected\n      {breaker}\n      connect"),
        1,
    )
}
