//! Every kind of exchange ends, whatever it is waiting for; over plain connections and TLS.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use journal::audit::Outcome;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::upstream::Endless;
use super::{End, PATIENCE, ROUTES, begin, end_of, open_tunnel, request};
use crate::support::{Gateway, eventually};
use crate::tls::authority::Authority;

const PATHS: [&str; 5] = ["/tunnel", "/download", "/trickle", "/upload", "/silent"];

/// Asserts that all exchanges of a key have ended as they must: slots free, connections to the upstream closed,
/// one record for each.
fn assert_ended(gateway: &Gateway, upstream: &Endless, count: usize) {
    eventually("all slots are free", || gateway.metric("keygate_in_flight") == 0.0);
    upstream.until_all_ended();
    assert_eq!(upstream.begun(), count);
    let records = gateway.records();
    assert_eq!(records.len(), count);
    assert!(records.iter().all(|record| record.outcome == Outcome::Terminated), "{records:?}");
    #[allow(clippy::cast_precision_loss, reason = "a small number")]
    let terminated = count as f64;
    assert_eq!(gateway.metric("keygate_exchanges_terminated_total{reason=\"key\"}"), terminated);
}

#[test]
fn every_kind_of_exchange_is_reset_when_its_key_is_revoked() {
    let upstream = Endless::start();
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_key();
    let streams = PATHS.map(|path| match path {
        "/tunnel" => open_tunnel(&gateway, &key.text),
        path => begin(gateway.address, path, &key.text),
    });
    eventually("all exchanges have begun", || upstream.begun() == PATHS.len());
    assert_eq!(gateway.explain_in_flight(&key), 5);
    gateway.revoke(&key);
    for (path, stream) in PATHS.into_iter().zip(streams) {
        assert_eq!(end_of(stream), End::Reset, "{path}");
    }
    assert_eq!(gateway.explain_in_flight(&key), 0);
    assert_ended(&gateway, &upstream, PATHS.len());
    assert_eq!(upstream.reset(), 1, "the tunnel is reset at the upstream's side, too");
}

#[test]
fn exchanges_over_tls_are_reset_when_their_key_is_revoked() {
    let upstream = Endless::start();
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    authority.certify(&["a.test"]).write(dir.path(), "a");
    let path = dir.path().display();
    let tls = format!("tls: {{ certificates: [{{ chain: {path}/a.pem, key: {path}/a.key }}] }}");
    let listen = format!("\nlisten: [{{ address: 127.0.0.1:0, {tls} }}]\n{ROUTES}");
    let (gateway, key) = Gateway::with(&[upstream.address], &listen).and_key();
    let config = Arc::new(authority.client());
    let streams = PATHS.map(|path| {
        let name = ServerName::try_from("a.test").unwrap();
        let connection = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(request(path, &key.text).as_bytes()).unwrap();
        stream.flush().unwrap();
        stream
    });
    eventually("all exchanges have begun", || upstream.begun() == PATHS.len());
    gateway.revoke(&key);
    for (path, stream) in PATHS.into_iter().zip(streams) {
        assert_eq!(end_of(stream), End::Reset, "{path}");
    }
    assert_ended(&gateway, &upstream, PATHS.len());
}

#[test]
fn download_that_its_client_does_not_take_ends_all_the_same() {
    let upstream = Endless::start();
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_key();
    let mut stream = begin(gateway.address, "/download", &key.text);
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    // The client takes nothing more. As soon as no buffer has room, the exchange is blocked.
    gateway.revoke(&key);
    assert_ended(&gateway, &upstream, 1);
    assert_eq!(end_of(stream), End::Reset);
}

#[test]
fn ordinary_requests_on_a_connection_that_had_a_revoked_exchange_before_are_served() {
    let upstream = crate::support::Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (revoked, other) = (gateway.key(), gateway.key());
    let mut client = crate::support::Client::connect(gateway.address);
    assert_eq!(client.get("/", &revoked.text).status, 200);
    gateway.revoke(&revoked);
    assert_eq!(client.get("/", &revoked.text).status, 401);
    assert_eq!(client.get("/", &other.text).status, 200);
    assert_eq!(gateway.metric("keygate_exchanges_terminated_total{reason=\"key\"}"), 0.0);
}

#[test]
fn revocation_is_read_after_a_reload() {
    let upstream = Endless::start();
    let (gateway, key) = Gateway::with(&[upstream.address], ROUTES).and_key();
    let before = open_tunnel(&gateway, &key.text);
    gateway.reconfigure(|text| text.replace("concurrent: 1000", "concurrent: 2000"));
    eventually("the configuration is reloaded", || gateway.metric("keygate_config_last_reload_successful") == 1.0);
    let after = open_tunnel(&gateway, &key.text);
    gateway.revoke(&key);
    assert_eq!([end_of(before), end_of(after)], [End::Reset; 2]);
}
