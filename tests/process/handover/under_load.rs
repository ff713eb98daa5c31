//! Upgrades under load: no connection is refused, no request fails, and limits and records are exact.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{BLOCKS, Backend, Lineage, Tunnel};
use crate::authority::Authority;
use crate::support::redis::Redis;
use crate::support::{Client, Setup, eventually, free_address, head};

/// Upgrades of each gateway; four gateways are replaced side by side.
const UPGRADES: usize = 5;
/// Requests at a time on one HTTP/2 connection.
const STREAMS: usize = 3;

/// State that all clients of a gateway share.
struct Load {
    plain: SocketAddr,
    encrypted: SocketAddr,
    tls: Arc<ClientConfig>,
    key: String,
    answered: AtomicUsize,
    stop: AtomicBool,
}

impl Load {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    fn answers(&self, status: u16, body: &[u8]) {
        assert_eq!((status, body), (200, &b"ok"[..]));
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    /// Requests over HTTP/1. A connection is left when it was announced to close, or when the load stops.
    fn http1(&self) {
        while self.goes_on() {
            let mut client = Client::try_connect(self.plain).expect("no connection is refused");
            while self.goes_on() {
                client.try_send(head("GET", "/", &self.key, &[], 0)).expect("the connection has not announced its end");
                let response = client.try_response_to("GET").expect("a whole response");
                self.answers(response.status, &response.body);
                if response.header("connection") == Some("close") {
                    break;
                }
            }
        }
    }

    /// The same, encrypted.
    fn tls(&self) {
        while self.goes_on() {
            let stream = TcpStream::connect(self.encrypted).expect("no connection is refused");
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let name = ServerName::try_from("a.test").unwrap();
            let connection = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            while self.goes_on() {
                stream.write_all(head("GET", "/", &self.key, &[], 0).as_bytes()).expect("the connection is open");
                let mut response = Vec::new();
                while !response.ends_with(b"\r\n\r\nok") {
                    let mut piece = [0; 1024];
                    let read = stream.read(&mut piece).expect("a whole response");
                    assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&response));
                    response.extend_from_slice(&piece[..read]);
                }
                let text = String::from_utf8(response).unwrap().to_ascii_lowercase();
                assert!(text.starts_with("http/1.1 200 "), "{text}");
                self.answered.fetch_add(1, Ordering::SeqCst);
                if text.contains("connection: close") {
                    break;
                }
            }
        }
    }

    /// Requests over HTTP/2, several at a time. A connection is left after its GOAWAY.
    async fn http2(&self) {
        while self.goes_on() {
            let stream = tokio::net::TcpStream::connect(self.plain).await.expect("no connection is refused");
            let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(connection);
            join_all((0..STREAMS).map(|_| self.stream(sender.clone()))).await;
            drop(sender);
            connection.await.unwrap().expect("the connection ended cleanly");
        }
    }

    async fn stream(&self, mut sender: SendRequest<Empty<Bytes>>) {
        while self.goes_on() && sender.ready().await.is_ok() {
            let request = Request::get(format!("http://{}/", self.plain));
            let request = request.header("authorization", format!("Bearer {}", self.key)).body(Empty::new()).unwrap();
            let response = match sender.try_send_request(request).await {
                Ok(response) => response,
                Err(mut error) => match error.take_message() {
                    // It was not sent: the connection takes no more.
                    Some(_) => return,
                    None => panic!("the request was sent and not answered: {:?}", error.into_error()),
                },
            };
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.expect("a whole response").to_bytes();
            self.answers(status, &body);
        }
    }
}

/// A gateway with a plain and an encrypted listener.
fn set_up(backend: &Backend, state: &str) -> (Setup, SocketAddr, Arc<ClientConfig>) {
    let setup = Setup::with_state(backend.upstream.address, state, BLOCKS);
    let (authority, encrypted) = (Authority::new(), free_address());
    authority.certify(&["a.test"]).write(setup.path(), "a");
    let path = setup.path().display();
    let tls = format!(
        "http2: prior_knowledge }}, {{ address: '{encrypted}', tls: {{ certificates: [{{ chain: {path}/a.pem, key: \
         {path}/a.key }}] }} }}]"
    );
    setup.write(&setup.text().replace("http2: prior_knowledge }]", &tls));
    (setup, encrypted, Arc::new(authority.client()))
}

/// Replaces a gateway several times under load.
fn replace_under_load(state: &str) {
    let backend = Backend::start();
    let (setup, encrypted, tls) = set_up(&backend, state);
    let (key, plain) = (setup.key(), setup.address);
    let mut lineage = Lineage::start(setup);
    let load =
        Load { plain, encrypted, tls, key: key.clone(), answered: AtomicUsize::new(0), stop: AtomicBool::new(false) };
    let mut tunnels = 0;
    std::thread::scope(|scope| {
        let mut clients = vec![scope.spawn(|| load.http1()), scope.spawn(|| load.http1()), scope.spawn(|| load.tls())];
        clients.push(scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(load.http2());
        }));
        for _ in 0..UPGRADES {
            let mut tunnel = Tunnel::open(&lineage.setup, &key);
            tunnels += 1;
            let before = load.answered.load(Ordering::SeqCst);
            eventually("requests are answered, or a client has failed", || {
                load.answered.load(Ordering::SeqCst) >= before + 20 || clients.iter().any(|client| client.is_finished())
            });
            let replaced = lineage.upgrade();
            tunnel.echo();
            tunnel.close();
            lineage.wait_for_end(replaced);
        }
        load.stop.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().expect("no request fails"));
    });
    let used = load.answered.load(Ordering::SeqCst) + tunnels;
    assert_eq!(lineage.taken(&key), used, "each request took one token");
    lineage.stop();
    let outcomes = lineage.outcomes();
    assert_eq!(outcomes.get("completed"), Some(&used), "{outcomes:?}");
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
}

/// Twenty upgrades, of four gateways at a time.
fn replace_four(state: impl Fn(usize) -> String + Sync) {
    std::thread::scope(|scope| {
        let fleet: Vec<_> = (0..4)
            .map(|number| {
                let state = state(number);
                scope.spawn(move || replace_under_load(&state))
            })
            .collect();
        fleet.into_iter().for_each(|gateway| gateway.join().expect("no request fails"));
    });
}

#[test]
fn twenty_upgrades_under_load_fail_no_request_on_the_embedded_state() {
    replace_four(|_| "{ embedded: { path: state.db } }".to_owned());
}

#[test]
fn twenty_upgrades_under_load_fail_no_request_on_redis() {
    let server = Redis::start();
    replace_four(|number| {
        format!("{{ redis: {{ url: '{}', prefix: 'gateway{number}', deadline: 2s }} }}", server.url())
    });
}
