//! Retries over HTTP/2: refused streams, GOAWAY, resets, and what gRPC says.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::PLENTY;
use super::retries::{NO_EJECTION, retries};
use crate::support::upstream_blocks::endpoints;
use crate::support::{Client, Gateway, eventually, head};

const REQUESTS: usize = 16;

/// Answer of a server to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Good,
    Unavailable,
    Refuses,
    Resets,
    Silent,
    /// Answers late.
    Slow,
    /// gRPC's UNAVAILABLE without a message.
    GrpcUnavailable,
}

/// Upstream that speaks HTTP/2, and records the id and the body of each request.
struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, Bytes)>>>,
}

impl Server {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = Arc::clone(&server.requests);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let requests = Arc::clone(&requests);
                    let service = service_fn(move |request| answer(request, behaviour, Arc::clone(&requests)));
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
                }
            });
        });
        server
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn ids(&self) -> HashSet<String> {
        self.requests.lock().unwrap().iter().map(|(id, _)| id.clone()).collect()
    }
}

async fn answer(
    request: Request<Incoming>,
    behaviour: Behaviour,
    requests: Arc<Mutex<Vec<(String, Bytes)>>>,
) -> Result<Response<Full<Bytes>>, h2::Error> {
    let id = request.headers()["x-request-id"].to_str().unwrap().to_owned();
    // One that refuses to begin has read nothing but the head.
    let body = match behaviour {
        Behaviour::Refuses => Bytes::new(),
        _ => request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
    };
    requests.lock().unwrap().push((id, body));
    let ok = Response::builder();
    match behaviour {
        Behaviour::Good => Ok(ok.body(Full::from("ok")).unwrap()),
        Behaviour::Unavailable => Ok(ok.status(503).body(Full::from("no")).unwrap()),
        Behaviour::Refuses => Err(h2::Reason::REFUSED_STREAM.into()),
        Behaviour::Resets => Err(h2::Reason::INTERNAL_ERROR.into()),
        Behaviour::Silent => std::future::pending::<Result<_, Infallible>>().await.map_err(|never| match never {}),
        Behaviour::Slow => {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(ok.body(Full::from("ok")).unwrap())
        }
        Behaviour::GrpcUnavailable => {
            let response = ok.header("content-type", "application/grpc").header("grpc-status", "14");
            Ok(response.body(Full::default()).unwrap())
        }
    }
}

fn gateway(addresses: &[SocketAddr], retries: &str) -> Gateway {
    gateway_by(addresses, "balance: { policy: round_robin }", retries)
}

fn gateway_by(addresses: &[SocketAddr], balance: &str, retries: &str) -> Gateway {
    let endpoints = endpoints(addresses);
    let upstream = format!("{endpoints}, protocol: http2, {balance}, {NO_EJECTION}, retries: {{ {retries} }}");
    let routes = "routes:\n  - { name: again, path: /again/**, idempotent: true, trailers: true }\n  - { name: all, \
                  path: /** }\n";
    Gateway::with(&[], &format!("{PLENTY}workers: 1\n{routes}upstream: {{ {upstream} }}\n"))
}

fn statuses(gateway: &Gateway, method: &str, path: &str, body: &[u8]) -> Vec<u16> {
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    (0..REQUESTS).map(|_| client.request(method, path, &key, &[], body).status).collect()
}

#[test]
fn request_goes_to_another_endpoint_for_each_reason_over_http2() {
    let cases = [(Behaviour::Unavailable, "status"), (Behaviour::Resets, "broken"), (Behaviour::Refuses, "refused")];
    let body = [b'x'; 30_000];
    for (behaviour, reason) in cases {
        for (method, path, body) in [("GET", "/a", &b""[..]), ("PUT", "/a", &body), ("POST", "/again/a", &body)] {
            let (failing, good) = (Server::start(behaviour), Server::start(Behaviour::Good));
            let gateway = gateway(&[failing.address, good.address], "budget: 100");
            assert_eq!(statuses(&gateway, method, path, body), [200; REQUESTS], "{method} {behaviour:?}");
            assert_eq!(failing.count(), REQUESTS / 2, "{method} {behaviour:?}");
            assert!(failing.ids().is_subset(&good.ids()) && good.count() == REQUESTS);
            assert!(
                good.requests.lock().unwrap().iter().all(|(_, received)| received == body),
                "{method} {behaviour:?}"
            );
            assert_eq!(retries(&gateway, reason), (REQUESTS / 2) as f64, "{method} {behaviour:?}");
        }
    }
}

#[test]
fn post_is_sent_again_only_when_it_was_refused() {
    for (behaviour, status) in [(Behaviour::Unavailable, 503), (Behaviour::Resets, 502), (Behaviour::Refuses, 200)] {
        let (failing, good) = (Server::start(behaviour), Server::start(Behaviour::Good));
        let gateway = gateway(&[failing.address, good.address], "budget: 100");
        let statuses = statuses(&gateway, "POST", "/", b"once");
        let given = statuses.iter().filter(|given| **given == status).count();
        assert_eq!(given, if status == 200 { REQUESTS } else { REQUESTS / 2 }, "{behaviour:?}: {statuses:?}");
        assert_eq!(failing.count(), REQUESTS / 2);
    }
}

#[test]
fn refused_request_is_not_sent_again_without_a_budget() {
    let (failing, good) = (Server::start(Behaviour::Refuses), Server::start(Behaviour::Good));
    let gateway = gateway(&[failing.address, good.address], "budget: 0");
    let statuses = statuses(&gateway, "POST", "/", b"once");
    assert_eq!(statuses.iter().filter(|status| **status == 502).count(), REQUESTS / 2, "{statuses:?}");
    assert_eq!(good.count(), REQUESTS / 2);
}

/// A slow endpoint is not given up: the body is not kept, or the exchange may last.
#[test]
fn slow_endpoint_is_given_up_neither_for_a_large_body_nor_for_a_stream() {
    let slow = [Server::start(Behaviour::Slow), Server::start(Behaviour::Slow)];
    let settings = "budget: 100, per_try_timeout: 50ms, max_body: 1KiB";
    let (gateway, key) = gateway(&slow.each_ref().map(|server| server.address), settings).and_secret();
    let mut client = Client::connect(gateway.address);
    client.send(head("PUT", "/", &key, &[("Transfer-Encoding", "chunked")], 0));
    client.send("400\r\n").send([b'x'; 1024]).send("\r\n1\r\nx\r\n0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    assert_eq!(
        client
            .request("POST", "/again/a", &key, &[("TE", "trailers"), ("Content-Type", "application/grpc")], b"call")
            .status,
        200
    );
    for metric in ["retries_total", "retries_refused_total"] {
        assert_eq!(gateway.metric(&format!("keygate_upstream_{metric}{{upstream=\"default\"}}")), 0.0, "{metric}");
    }
}

#[test]
fn request_that_every_endpoint_refuses_was_not_executed() {
    let servers = [Server::start(Behaviour::Refuses), Server::start(Behaviour::Refuses)];
    let gateway = gateway(&servers.each_ref().map(|server| server.address), "");
    let response = Client::connect(gateway.address).request("POST", "/", &gateway.key().text, &[], b"once");
    assert_eq!((response.status, response.code().as_str()), (502, "upstream_failed"));
    assert!(response.json()["detail"].as_str().unwrap().contains("has not executed"));
    assert_eq!(servers.each_ref().map(Server::count), [1, 1]);
}

#[test]
fn request_that_may_have_been_executed_is_told_so_when_its_retry_is_refused() {
    let servers = [Server::start(Behaviour::Resets), Server::start(Behaviour::Refuses)];
    let (gateway, key) = gateway(&servers.each_ref().map(|server| server.address), "").and_secret();
    let mut client = Client::connect(gateway.address);
    for _ in 0..2 {
        let response = client.get("/", &key);
        assert_eq!(response.status, 502);
        assert!(response.json()["detail"].as_str().unwrap().contains("may have executed"));
    }
}

#[test]
fn grpc_unavailable_is_not_retried() {
    let (failing, good) = (Server::start(Behaviour::GrpcUnavailable), Server::start(Behaviour::Good));
    let gateway = gateway(&[failing.address, good.address], "budget: 100");
    assert_eq!(statuses(&gateway, "POST", "/again/a", b"call"), [200; REQUESTS]);
    assert_eq!((failing.count(), good.count()), (REQUESTS / 2, REQUESTS / 2));
    assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
}

/// Frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Response with 200 and no body.
fn ok(stream: u32) -> Vec<u8> {
    frame(1, 5, stream, &[0x88])
}

/// GOAWAY without an error.
fn go_away(last_stream: u32) -> Vec<u8> {
    frame(7, 0, 0, &[last_stream.to_be_bytes(), [0; 4]].concat())
}

/// Upstream that speaks HTTP/2 by hand. `answer` returns the frames that answer the N-th request, and whether the
/// connection stays open.
fn by_hand(answer: impl Fn(usize, u32) -> (Vec<u8>, bool) + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count, answer) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)), Arc::new(answer));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (answer, counted) = (Arc::clone(&answer), Arc::clone(&counted));
            std::thread::spawn(move || serve_by_hand(stream, &counted, &*answer));
        }
    });
    (address, count)
}

fn serve_by_hand(
    mut stream: TcpStream,
    count: &AtomicUsize,
    answer: &dyn Fn(usize, u32) -> (Vec<u8>, bool),
) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).ok()?;
    stream.write_all(&frame(4, 0, 0, &[])).ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).ok()?;
        let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4]) {
            (4, 0) => stream.write_all(&frame(4, 1, 0, &[])).ok()?,
            (6, 0) => stream.write_all(&frame(6, 1, 0, &payload)).ok()?,
            (1, _) => {
                let (frames, goes_on) = answer(count.fetch_add(1, Ordering::SeqCst), number);
                stream.write_all(&frames).ok()?;
                if !goes_on {
                    stream.shutdown(std::net::Shutdown::Both).ok()?;
                }
            }
            _ => {}
        }
    }
}

#[test]
fn stream_beyond_a_go_away_is_sent_again_whatever_its_method() {
    // The second request of each connection is not processed, the first one is.
    let (address, count) = by_hand(|_, stream| if stream == 1 { (ok(1), true) } else { (go_away(1), true) });
    let gateway = gateway(&[address], "budget: 100");
    assert_eq!(statuses(&gateway, "POST", "/", b""), [200; REQUESTS]);
    assert_eq!(retries(&gateway, "refused"), (REQUESTS - 1) as f64);
    assert_eq!(count.load(Ordering::SeqCst), REQUESTS + REQUESTS - 1);
}

#[test]
fn stream_within_a_go_away_is_not_sent_again_unless_it_is_repeatable() {
    // The request may be processed: the connection breaks after a GOAWAY that includes its stream.
    let (address, count) = by_hand(|number, stream| match number {
        0 => (ok(stream), true),
        1 | 2 => (go_away(stream), false),
        _ => (ok(stream), true),
    });
    let (gateway, key) = gateway(&[address], "budget: 100").and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 200);
    let response = client.request("POST", "/", &key, &[], b"");
    assert_eq!(response.status, 502);
    assert!(response.json()["detail"].as_str().unwrap().contains("may have executed"));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert_eq!(client.get("/", &key).status, 502, "on a new connection, of the only endpoint");
    assert_eq!(client.get("/", &key).status, 200);
}

/// Its reason is that of a new connection, or that of one that had carried other requests; an invalid response is none.
#[test]
fn broken_connections_over_http2_are_told_apart() {
    let good = Server::start(Behaviour::Good);
    let (broken, _) = by_hand(|_, _| (Vec::new(), false));
    let gateway_of_broken = gateway(&[broken, good.address], "budget: 100");
    assert_eq!(statuses(&gateway_of_broken, "GET", "/", b""), [200; REQUESTS]);
    assert_eq!(retries(&gateway_of_broken, "broken"), (REQUESTS / 2) as f64);
    // A block of fields that nothing can decode (RFC 7541, section 6.1: index 0).
    let (invalid, count) = by_hand(|_, stream| (frame(1, 5, stream, &[0x80]), true));
    let gateway_of_invalid = gateway(&[invalid, good.address], "budget: 100");
    let failed = statuses(&gateway_of_invalid, "GET", "/", b"").iter().filter(|status| **status == 502).count();
    assert_eq!((failed, count.load(Ordering::SeqCst)), (REQUESTS / 2, REQUESTS / 2));
    assert_eq!(gateway_of_invalid.metric("keygate_upstream_retries_total{upstream=\"default\"}"), 0.0);
}

#[test]
fn repeatable_request_survives_a_connection_that_ends() {
    let (address, _) = by_hand(|_, stream| if stream == 1 { (ok(1), true) } else { (Vec::new(), false) });
    let gateway = gateway(&[address], "budget: 100");
    assert_eq!(statuses(&gateway, "GET", "/", b""), [200; REQUESTS]);
    assert_eq!(retries(&gateway, "stale"), (REQUESTS - 1) as f64);
    // An idle connection that is closed is no failure of the endpoint that then answers.
    let labels = format!("endpoint=\"{address}\",result=\"bad_response\",upstream=\"default\"");
    assert_eq!(gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}")), 0.0);
}

#[test]
fn silent_endpoint_is_given_up_and_keeps_no_stream() {
    let (silent, good) = (Server::start(Behaviour::Silent), Server::start(Behaviour::Good));
    // Nearly every first try: the other endpoint's are not bounded by a time that a busy machine may need.
    let weights = format!("[{{ endpoint: \"{}\", weight: 1000 }}]", silent.address);
    let balance = format!("balance: {{ policy: round_robin, weights: {weights} }}");
    let gateway = gateway_by(&[silent.address, good.address], &balance, "budget: 100, per_try_timeout: 50ms");
    let body = [b'x'; 30_000];
    assert_eq!(statuses(&gateway, "PUT", "/", &body), [200; REQUESTS]);
    assert!(good.requests.lock().unwrap().iter().all(|(_, received)| *received == body[..]));
    eventually("each retry follows a request", || retries(&gateway, "timeout") == silent.count() as f64);
    assert!(silent.count() > REQUESTS / 2 && silent.ids().is_subset(&good.ids()));
    let in_flight =
        |server: &Server| format!("keygate_upstream_in_flight{{endpoint=\"{}\",upstream=\"default\"}}", server.address);
    eventually("nothing is in flight", || {
        [&silent, &good].iter().all(|server| gateway.metric(&in_flight(server)) == 0.0)
    });
}
