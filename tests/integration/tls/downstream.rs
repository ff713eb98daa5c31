//! Clients that connect over TLS.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use tokio_rustls::TlsConnector;

use super::authority::{Authority, Issued};
use super::client::TlsClient;
use crate::support::{Client, Gateway, Upstream, eventually, head};

/// A gateway with a certificate for `a.test`, and the certificate's files.
pub struct Encrypted {
    pub upstream: Upstream,
    pub gateway: Gateway,
    pub authority: Authority,
    pub shown: Issued,
    pub dir: TempDir,
}

impl Encrypted {
    pub fn start() -> Self {
        Self::with("")
    }

    /// Starts one with more keys in the block `tls`.
    pub fn with(keys: &str) -> Self {
        Self::in_front_of(Upstream::start(), keys)
    }

    fn in_front_of(upstream: Upstream, keys: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let shown = authority.certify(&["a.test"]);
        shown.write(dir.path(), "a");
        let gateway = Gateway::with(&[upstream.address], &listen(&dir, keys));
        Self { upstream, gateway, authority, shown, dir }
    }

    pub fn connect(&self) -> TlsClient {
        TlsClient::connect(self.gateway.address, self.authority.client(), "a.test").unwrap()
    }
}

/// A listener with the certificate `a.pem` of the directory, and a quota for more requests than any test makes.
fn listen(dir: &TempDir, keys: &str) -> String {
    let path = dir.path().display();
    format!(
        "\nlisten: [{{ address: 127.0.0.1:0, \
         tls: {{ certificates: [{{ chain: {path}/a.pem, key: {path}/a.key }}]{keys} }} }}]\n\
         limits: {{ key: {{ requests: 1000000 }} }}\n"
    )
}

#[test]
fn forwarded_proto_is_https_for_tls_clients() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let mut client = encrypted.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/x", &key.text).unwrap().status, 200);
    }
    let received = encrypted.upstream.last();
    assert_eq!(received.header("x-forwarded-proto"), Some("https"));
    assert!(received.header("forwarded").unwrap().contains("proto=https"), "{received:?}");
    assert_eq!(received.header("via"), Some("1.1 keygate"));
    assert_eq!(encrypted.gateway.records().len(), 2);
}

/// A client gives everything back at once when it closes its half of the encryption, or the connection, while its
/// request is served, also behind what it has sent ahead.
#[test]
fn disconnect_is_seen_while_the_response_is_due() {
    let encrypted = Encrypted::in_front_of(Upstream::answering(|_, _| {}), "");
    let key = encrypted.gateway.key();
    let request = head("GET", "/silent", &key.text, &[], 0);
    for (number, (ahead, closes)) in [("", false), ("", true), ("GET / HT", true)].into_iter().enumerate() {
        let mut client = encrypted.connect();
        let records = client.encrypt(&request);
        client.send_records(&records);
        eventually("the request is at the upstream", || encrypted.upstream.count() == number + 1);
        let records = client.encrypt(ahead);
        client.send_records(&records);
        assert_eq!(encrypted.gateway.explain_in_flight(&key), 1);
        let open = if closes {
            drop(client);
            None
        } else {
            let records = client.encrypt_close();
            client.send_records(&records);
            Some(client)
        };
        eventually("the disconnect is seen", || encrypted.gateway.explain_in_flight(&key) == 0);
        drop(open);
    }
}

#[test]
fn protocol_is_the_one_that_alpn_selected() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let offering = |protocols: &[&[u8]]| {
        let mut config = encrypted.authority.client();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config
    };
    let address = encrypted.gateway.address;
    let mut first = TlsClient::connect(address, offering(&[b"http/1.1"]), "a.test").unwrap();
    assert_eq!(first.get("/1", &key.text).unwrap().status, 200);
    assert_eq!(encrypted.upstream.last().header("via"), Some("1.1 keygate"));
    over_http2(address, offering(&[b"h2", b"http/1.1"]), &key.text);
    assert_eq!(encrypted.upstream.last().header("via"), Some("2 keygate"));
    assert_eq!(encrypted.upstream.last().header("x-forwarded-proto"), Some("https"));
}

fn over_http2(address: SocketAddr, config: ClientConfig, key: &str) {
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("a.test").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("https://a.test/2").header("authorization", format!("Bearer {key}"));
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(exchange);
}

#[test]
fn bytes_that_are_not_tls_fail_the_handshake_and_others_are_served() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let mut before = encrypted.connect();
    for bytes in [&b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0x16; 300]] {
        let mut plain = Client::connect(encrypted.gateway.address);
        plain.send(bytes);
        // An alert at most, then the end; never a response.
        let mut received = Vec::new();
        while let Ok(1..) = plain.read_some().inspect(|read| received.push(*read)) {}
        assert!(received.iter().sum::<usize>() < 20, "{received:?}");
    }
    assert_eq!(before.get("/", &key.text).unwrap().status, 200);
    assert_eq!(encrypted.connect().get("/", &key.text).unwrap().status, 200);
    assert_eq!(encrypted.upstream.count(), 2);
}

#[test]
fn client_without_the_required_certificate_reaches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new();
    let file = ca.write(&dir.path().join("ca.pem"));
    let encrypted = Encrypted::with(&format!(", client_ca: {}", file.display()));
    let key = encrypted.gateway.key();
    let address = encrypted.gateway.address;
    // With TLS 1.3 the client's handshake is complete before the server has checked its certificate. It learns of the
    // refusal at its first read.
    let refused = TlsClient::connect(address, encrypted.authority.client(), "a.test");
    assert!(refused.and_then(|mut client| client.get("/", &key.text)).is_err());
    assert_eq!(encrypted.upstream.count(), 0);
    let certified =
        encrypted.authority.client_with_certificate(&ca.certify(&["client.test"]), rustls::DEFAULT_VERSIONS);
    let mut client = TlsClient::connect(address, certified, "a.test").unwrap();
    assert_eq!(client.get("/", &key.text).unwrap().status, 200);
}

#[test]
fn session_is_resumed_at_another_gateway_with_the_same_ticket_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tickets");
    fs::write(&path, format!("{}\n", uuid::Uuid::new_v4().simple())).unwrap();
    for (keys, resumes) in [(format!(", ticket_key: {{ file: {} }}", path.display()), true), (String::new(), false)] {
        let first = Encrypted::with(&keys);
        let second = Gateway::with(&[first.upstream.address], &listen(&first.dir, &keys));
        let config = Arc::new(first.authority.client());
        let (key, other) = (first.gateway.key(), second.key());
        let connect = |gateway: &Gateway| TlsClient::connect(gateway.address, Arc::clone(&config), "a.test").unwrap();
        // Tickets come before the response to the first request.
        assert_eq!(connect(&first.gateway).get("/", &key.text).unwrap().status, 200);
        let mut again = connect(&second);
        assert_eq!(again.get("/", &other.text).unwrap().status, 200);
        assert_eq!(again.is_resumed(), resumes);
    }
}

#[test]
fn metrics_show_the_earliest_end_of_certificates_with_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let mut pairs = String::new();
    for year in [2040, 2030, 2050] {
        let issued = authority.certify_with(&["a.test"], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        });
        let pair = issued.write(dir.path(), &year.to_string());
        pairs += &format!("{{ chain: {}, key: {} }}, ", pair.chain.display(), pair.key.display());
    }
    let listen = format!("\nlisten: [{{ address: 127.0.0.1:0, tls: {{ certificates: [{pairs}] }} }}]\n");
    let gateway = Gateway::with(&[Upstream::start().address], &listen);
    let shown = gateway.metric("keygate_tls_certificate_not_after_timestamp_seconds{certificate=\"a.test\"}");
    assert!(shown == 1_893_456_000.0, "{shown}");
}

#[test]
fn metrics_show_certificate_ends_and_failed_reloads() {
    let encrypted = Encrypted::start();
    let gateway = &encrypted.gateway;
    let ends = |name: &str| {
        gateway.metric(&format!("keygate_tls_certificate_not_after_timestamp_seconds{{certificate=\"{name}\"}}"))
    };
    assert!(ends("a.test") > 6e10, "the year 4096");
    assert!(gateway.metric("keygate_tls_reload_failures_total") == 0.0);
    fs::write(encrypted.dir.path().join("a.key"), "").unwrap();
    for _ in 0..5 {
        gateway.reload_certificates();
    }
    assert!(gateway.metric("keygate_tls_reload_failures_total") == 1.0, "reported once for each contents");
    assert_eq!(encrypted.connect().certificate(), encrypted.shown.der());
    let renewed = encrypted.authority.certify_with(&["b.test", "a.test"], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
        params.not_after = rcgen::date_time_ymd(2050, 1, 1);
    });
    renewed.write(encrypted.dir.path(), "a");
    gateway.reload_certificates();
    assert!(ends("b.test") == 2_524_608_000.0);
    let metrics = String::from_utf8(Client::connect(gateway.admin).get("/metrics", "").body).unwrap();
    assert!(!metrics.contains("certificate=\"a.test\""), "{metrics}");
    assert_eq!(encrypted.connect().certificate(), renewed.der());
}

#[test]
fn handshake_that_does_not_end_is_closed_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    Authority::new().certify(&["a.test"]).write(dir.path(), "a");
    let upstream = Upstream::start();
    let blocks = format!("{}timeouts: {{ handshake: 200ms }}\n", listen(&dir, ""));
    let gateway = Gateway::with(&[upstream.address], &blocks);
    // Silence, and the beginning of a TLS record.
    for bytes in [&b""[..], &[0x16, 3, 1, 1, 0]] {
        let mut silent = Client::connect(gateway.address);
        silent.send(bytes);
        assert!(silent.is_closed(), "{bytes:?}");
    }
    // Counted after the connection is closed.
    eventually("both are counted", || gateway.metric("keygate_timeouts_total{kind=\"handshake\"}") == 2.0);
}

#[test]
fn request_in_the_last_flight_of_the_handshake_is_answered() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let (address, config) = (encrypted.gateway.address, encrypted.authority.client());
    let request = head("GET", "/", &key.text, &[], 0);
    let mut client = TlsClient::connect_and_send(address, config, "a.test", &request).unwrap();
    assert_eq!(client.response().unwrap().status, 200);
}

#[test]
fn parked_connection_is_woken_by_bytes_of_a_record_and_answers_when_it_is_whole() {
    let encrypted = Encrypted::start();
    let key = encrypted.gateway.key();
    let parked = |count: f64| {
        eventually("parked", || encrypted.gateway.metric("keygate_connections_parked") == count);
    };
    let mut client = encrypted.connect();
    parked(1.0);
    for _ in 0..2 {
        let record = client.encrypt(&head("GET", "/", &key.text, &[], 0));
        let (first, rest) = record.split_at(record.len() / 2);
        client.send_records(first);
        parked(0.0);
        // Half a record is no byte of HTTP, so the connection falls silent again.
        parked(1.0);
        client.send_records(rest);
        assert_eq!(client.response().unwrap().status, 200);
        parked(1.0);
    }
}
