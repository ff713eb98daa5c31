//! An upstream that speaks TLS.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use platform::tls::{ClientAuth, ServerSettings, ServerTls};
use rustls::pki_types::CertificateDer;
use rustls::{ServerConnection, StreamOwned};

use super::authority::{Authority, settings};
use crate::support::{Client, Gateway};

/// A request that reached the upstream: its head, and the client's certificate in the handshake.
#[derive(Clone, Debug)]
struct Received {
    head: Vec<String>,
    client: Option<CertificateDer<'static>>,
    protocol: Option<Vec<u8>>,
    connection: usize,
}

/// An upstream with TLS that answers everything with 200, and closes the connection after a request for `/close`.
pub(super) struct TlsUpstream {
    pub(super) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl TlsUpstream {
    pub(super) fn start(settings: &ServerSettings) -> Self {
        let config = Arc::clone(ServerTls::open(settings).unwrap().acceptor().config());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let log = Arc::clone(&received);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let (connection, log) = (ServerConnection::new(Arc::clone(&config)).unwrap(), Arc::clone(&log));
                std::thread::spawn(move || serve(StreamOwned::new(connection, stream), number, &log));
            }
        });
        Self { address, received }
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(stream: StreamOwned<ServerConnection, TcpStream>, connection: usize, log: &Mutex<Vec<Received>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            let Ok(1..) = stream.read_line(&mut line) else { return };
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_ascii_lowercase());
        }
        let tls = &stream.get_ref().conn;
        let client = tls.peer_certificates().map(|all| all[0].clone().into_owned());
        let protocol = tls.alpn_protocol().map(<[u8]>::to_vec);
        let closes = head[0].contains("/close");
        log.lock().unwrap().push(Received { head, client, protocol, connection });
        let connection = if closes { "close" } else { "keep-alive" };
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: {connection}\r\ncontent-length: 2\r\n\r\nok");
        let answered = stream.get_mut().write_all(answer.as_bytes()).and_then(|()| stream.get_mut().flush());
        if answered.is_err() || closes {
            return;
        }
    }
}

/// A gateway in front of an encrypted upstream.
fn gateway(address: SocketAddr, tls: &str) -> Gateway {
    let tls = if tls.is_empty() { String::new() } else { format!(", tls: {{ {tls} }}") };
    let blocks = format!("\nupstream: {{ endpoints: ['https://{address}']{tls} }}\ntimeouts: {{ connect: 3s }}\n");
    Gateway::with(&[], &blocks)
}

/// The status and body of the response to a request through the gateway.
fn answered(gateway: &Gateway) -> (u16, String) {
    let key = gateway.key();
    let response = Client::connect(gateway.address).get("/x", &key.text);
    (response.status, String::from_utf8(response.body).unwrap())
}

fn is_unavailable((status, body): &(u16, String)) -> bool {
    *status == 503 && body.contains("upstream_unavailable")
}

/// An upstream that is certified by an authority, and the file of the authority's certificate.
fn certified(dir: &Path, authority: &Authority, names: &[&str]) -> (TlsUpstream, String) {
    let pair = authority.certify(names).write(dir, "upstream");
    let ca = authority.write(&dir.join("ca.pem"));
    (TlsUpstream::start(&settings(vec![pair])), format!("ca: {}", ca.display()))
}

#[test]
fn verified_upstream_gets_requests_over_one_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (upstream, ca) = certified(dir.path(), &Authority::new(), &["127.0.0.1"]);
    let gateway = Gateway::with(
        &[],
        &format!("\nworkers: 1\nupstream: {{ endpoints: ['https://{}'], tls: {{ {ca} }} }}\n", upstream.address),
    );
    let key = gateway.key();
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        let response = client.get("/x", &key.text);
        assert_eq!((response.status, &response.body[..]), (200, &b"ok"[..]));
    }
    let received = upstream.received();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|received| received.connection == 0), "{received:?}");
    assert_eq!(received[0].protocol.as_deref(), Some(&b"http/1.1"[..]));
    assert_eq!(received[0].client, None);
    assert!(received[0].head.contains(&format!("host: {}", upstream.address)), "{received:?}");
    assert!(received[0].head.contains(&format!("x-user-id: {}", key.user).to_ascii_lowercase()), "{received:?}");
}

#[test]
fn upstream_certified_by_another_authority_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (upstream, _) = certified(dir.path(), &Authority::new(), &["127.0.0.1"]);
    let other = Authority::new().write(&dir.path().join("other.pem"));
    for tls in [format!("ca: {}", other.display()), String::new()] {
        let gateway = gateway(upstream.address, &tls);
        let answer = answered(&gateway);
        assert!(is_unavailable(&answer), "{tls}: {answer:?}");
        let up = format!("keygate_upstream_endpoint_up{{endpoint=\"{}\",upstream=\"default\"}}", upstream.address);
        assert!(gateway.metric(&up) == 0.0);
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn upstream_of_another_name_gets_nothing_unless_the_name_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let (upstream, ca) = certified(dir.path(), &Authority::new(), &["store.test"]);
    for tls in [ca.clone(), format!("{ca}, server_name: other.test")] {
        let answer = answered(&gateway(upstream.address, &tls));
        assert!(is_unavailable(&answer), "{tls}: {answer:?}");
    }
    assert!(upstream.received().is_empty());
    let answer = answered(&gateway(upstream.address, &format!("{ca}, server_name: store.test")));
    assert_eq!(answer, (200, "ok".into()));
}

#[test]
fn upstream_that_requests_a_certificate_gets_ours() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (_, ca) = certified(dir.path(), &authority, &["127.0.0.1"]);
    let pair = authority.certify(&["127.0.0.1"]).write(dir.path(), "asking");
    let client_auth = Some(ClientAuth { ca: dir.path().join("ca.pem"), required: true });
    let upstream = TlsUpstream::start(&ServerSettings { client_auth, ..settings(vec![pair]) });
    let (status, _) = answered(&gateway(upstream.address, &ca));
    assert!(matches!(status, 502 | 503), "{status}");
    assert!(upstream.received().is_empty());
    let own = authority.certify(&["gateway.test"]);
    let files = own.write(dir.path(), "own");
    let identity = format!("{ca}, certificate: {}, key: {}", files.chain.display(), files.key.display());
    assert_eq!(answered(&gateway(upstream.address, &identity)).0, 200);
    assert_eq!(upstream.received()[0].client, Some(own.der()));
}

#[test]
fn certificate_for_the_upstream_changes_with_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let pair = authority.certify(&["127.0.0.1"]).write(dir.path(), "asking");
    let client_auth = Some(ClientAuth { ca: authority.write(&dir.path().join("ca.pem")), required: true });
    let upstream = TlsUpstream::start(&ServerSettings { client_auth, ..settings(vec![pair]) });
    let ending = |year| {
        authority.certify_with(&["gateway.test"], &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
        })
    };
    let (old, new) = (ending(2040), ending(2050));
    let files = old.write(dir.path(), "own");
    let ca = dir.path().join("ca.pem");
    let identity =
        format!("ca: {}, certificate: {}, key: {}", ca.display(), files.chain.display(), files.key.display());
    let gateway = gateway(upstream.address, &identity);
    let not_after = "keygate_tls_certificate_not_after_timestamp_seconds{certificate=\"upstream\"}";
    assert!(gateway.metric(not_after) == 2_208_988_800.0);
    let key = gateway.key();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/close", &key.text).status, 200);
    fs::write(&files.key, &new.key).unwrap();
    (0..5).for_each(|_| gateway.reload_certificates());
    assert!(gateway.metric("keygate_tls_reload_failures_total") == 1.0);
    new.write(dir.path(), "own");
    gateway.reload_certificates();
    assert!(gateway.metric(not_after) == 2_524_608_000.0);
    assert_eq!(client.get("/close", &key.text).status, 200);
    let shown: Vec<_> = upstream.received().into_iter().map(|received| received.client.unwrap()).collect();
    assert_eq!(shown, [old.der(), new.der()]);
}

#[test]
fn handshake_that_does_not_end_is_limited_by_the_connect_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new().write(&dir.path().join("ca.pem"));
    // The kernel completes the TCP handshake, and no TLS byte ever comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let tls = format!("tls: {{ ca: {} }}", ca.display());
    let blocks = format!("\nupstream: {{ endpoints: ['https://{address}'], {tls} }}\ntimeouts: {{ connect: 200ms }}\n");
    let (status, answer) = answered(&Gateway::with(&[], &blocks));
    assert!(status == 504 && answer.contains("upstream_timeout"), "{status} {answer}");
    assert!(answer.contains("has not executed the request"), "{answer}");
}

#[test]
fn http2_to_the_upstream_is_negotiated_by_alpn() {
    let dir = tempfile::tempdir().unwrap();
    let (upstream, ca) = certified(dir.path(), &Authority::new(), &["127.0.0.1"]);
    let tls = format!("tls: {{ {ca} }}");
    let blocks = format!("\nupstream: {{ endpoints: ['https://{}'], protocol: http2, {tls} }}\n", upstream.address);
    // It agrees, and then answers in HTTP/1.
    assert_eq!(answered(&Gateway::with(&[], &blocks)).0, 502);
    let received = upstream.received();
    assert_eq!(received[0].protocol.as_deref(), Some(&b"h2"[..]));
    assert_eq!(received[0].head, ["pri * http/2.0"]);
}

#[test]
fn upstream_that_does_not_speak_tls_gets_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new().write(&dir.path().join("ca.pem"));
    let upstream = crate::support::Upstream::start();
    let answer = answered(&gateway(upstream.address, &format!("ca: {}", ca.display())));
    assert!(is_unavailable(&answer), "{answer:?}");
}
