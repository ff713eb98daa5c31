//! Discovery with HTTP/2 to the upstream: its long connections keep no request from new endpoints.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{blocks, endpoints, equal_shares, request};
use crate::support::{Gateway, NameServer, eventually, free_port};

/// An upstream that speaks HTTP/2 and answers every request with 200.
struct Replica {
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Replica {
    fn start(address: &str, port: u16) -> Self {
        let listener = std::net::TcpListener::bind(SocketAddr::new(address.parse().unwrap(), port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (requests, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let replica = Self { requests: Arc::clone(&requests), connections: Arc::clone(&connections) };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::SeqCst);
                    let requests = Arc::clone(&requests);
                    let service = service_fn(move |_: Request<Incoming>| {
                        requests.fetch_add(1, Ordering::SeqCst);
                        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"ok")))) }
                    });
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
                }
            });
        });
        replica
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

#[test]
fn new_addresses_have_their_share_over_http2_and_removed_ones_have_none() {
    let (dns, port) = (NameServer::start(1), free_port());
    let replicas = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|address| Replica::start(address, port));
    dns.set("store.test", &["127.0.0.1"]);
    let entry = format!("['http://store.test:{port}'], protocol: http2");
    let gateway = Gateway::with(&[], &blocks(&entry, &dns, "workers: 2"));
    let key = gateway.key();
    request(&gateway, &key.text, 10);
    assert_eq!(replicas[0].requests(), 10);

    dns.set("store.test", &["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    endpoints(&gateway, 3);
    equal_shares(&gateway, &key.text, || replicas.each_ref().map(Replica::requests));

    dns.set("store.test", &["127.0.0.2", "127.0.0.3"]);
    eventually("the first replica has no more requests", || {
        let before = replicas[0].requests();
        request(&gateway, &key.text, 20);
        replicas[0].requests() == before
    });
}

#[test]
fn http2_connections_end_after_their_number_of_requests() {
    let (dns, port) = (NameServer::start(1), free_port());
    let replica = Replica::start("127.0.0.1", port);
    dns.set("store.test", &["127.0.0.1"]);
    let entry = format!("['http://store.test:{port}'], protocol: http2, connections: {{ max_requests: 2 }}");
    let gateway = Gateway::with(&[], &blocks(&entry, &dns, "workers: 1"));
    let key = gateway.key();
    request(&gateway, &key.text, 10);
    assert_eq!((replica.requests(), replica.connections.load(Ordering::SeqCst)), (10, 5));
}
