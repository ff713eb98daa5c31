//! gRPC: HTTP/2 to the upstream, and trailers.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;

use crate::support::{Client, Gateway, HyperOptions, HyperUpstream, Upstream, eventually, head, over_http2};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");
const CALLS: &str = "
workers: 1
routes:
  - { name: calls, path: /calls/**, trailers: true }
  - { name: plain, path: /plain/** }
";

/// Upstream that speaks HTTP/2.
pub struct Server {
    upstream: HyperUpstream,
    heads: Arc<Mutex<Vec<HeaderMap>>>,
    /// Lengths of request bodies that came whole; errors for those that broke off.
    pub bodies: mpsc::Receiver<Result<usize, ()>>,
}

impl Server {
    pub fn start(max_streams: u32) -> Self {
        let (told, bodies) = mpsc::channel();
        let (heads, calls) = (Arc::<Mutex<Vec<HeaderMap>>>::default(), Arc::<AtomicUsize>::default());
        let log = Arc::clone(&heads);
        let upstream = HyperOptions::http2_with_streams(max_streams).start(move |request| {
            log.lock().unwrap().push(Request::headers(&request).clone());
            answer(request, calls.fetch_add(1, Ordering::SeqCst), told.clone())
        });
        Self { upstream, heads, bodies }
    }

    pub fn with(&self, blocks: &str) -> Gateway {
        let endpoint = format!("upstream: {{ endpoints: [\"http://{}\"], protocol: http2 }}\n", self.upstream.address);
        Gateway::with(&[], &format!("{endpoint}{blocks}"))
    }

    pub fn calls(&self) -> usize {
        self.upstream.count()
    }
}

async fn answer(
    request: Request<Incoming>,
    number: usize,
    told: mpsc::Sender<Result<usize, ()>>,
) -> Result<Response<Body>, h2::Error> {
    let refused = || Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
    let ok = Response::builder().header("content-type", "application/grpc");
    let path = request.uri().path().to_owned();
    let body = match path.rsplit('/').next().unwrap() {
        "refused-once" if number == 0 => return refused(),
        "refused" => return refused(),
        "reset" => return Err(h2::Error::from(h2::Reason::INTERNAL_ERROR)),
        "silent" => {
            std::future::pending::<()>().await;
            Full::default().boxed_unsync()
        }
        "only-trailers" => {
            return Ok(ok.header("grpc-status", "12").body(Full::default().boxed_unsync()).unwrap());
        }
        "many" => {
            let mut response = Response::new(Full::default().boxed_unsync());
            for number in 0..101 {
                response
                    .headers_mut()
                    .insert(http::HeaderName::try_from(format!("x-{number}")).unwrap(), "1".parse().unwrap());
            }
            return Ok(response);
        }
        "early" => {
            tokio::spawn(read(request.into_body(), told));
            Full::from("early").boxed_unsync()
        }
        "endless" => {
            let frames = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b'x'; 1024]))));
            StreamBody::new(frames).boxed_unsync()
        }
        // Frame by frame, as they come.
        "echo" => request.into_body().map_err(|_| unreachable!("the client goes on")).boxed_unsync(),
        _ => {
            let length = read(request.into_body(), told).await;
            let trailers = [("grpc-status", "0"), ("x-user-id", "forged"), ("content-length", "5"), ("x_odd", "1")];
            let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            let frames =
                [Frame::data(Bytes::from(format!("{length}"))), Frame::trailers(trailers.into_iter().collect())];
            StreamBody::new(stream::iter(frames.map(Ok))).boxed_unsync()
        }
    };
    Ok(ok.body(body).unwrap())
}

async fn read(mut body: Incoming, told: mpsc::Sender<Result<usize, ()>>) -> usize {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => length += frame.data_ref().map_or(0, Bytes::len),
            Err(_) => {
                told.send(Err(())).ok();
                return length;
            }
        }
    }
    told.send(Ok(length)).ok();
    length
}

fn request(gateway: &Gateway, path: &str, key: &str, body: Body) -> Request<Body> {
    Request::post(format!("http://{}{path}", gateway.address))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

fn whole(bytes: &'static [u8]) -> Body {
    Full::from(bytes).boxed_unsync()
}

/// Body that begins and never ends.
fn unfinished(bytes: &'static [u8]) -> Body {
    let first = stream::iter([Ok(Frame::data(Bytes::from_static(bytes)))]);
    StreamBody::new(first.chain(stream::pending())).boxed_unsync()
}

/// Waits for a condition while the client's connection goes on.
async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "ten seconds passed without: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

type Answer = (u16, HeaderMap, Bytes, Option<HeaderMap>);

async fn call(sender: &mut SendRequest<Body>, request: Request<Body>) -> Result<Answer, hyper::Error> {
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    Ok((head.status.as_u16(), head.headers, body.to_bytes(), trailers))
}

/// Makes one call on a connection of its own.
fn call_once(gateway: &Gateway, path: &str, key: &str, body: Body) -> Result<Answer, hyper::Error> {
    let request = request(gateway, path, key, body);
    over_http2(gateway.address, async |mut sender| call(&mut sender, request).await)
}

#[test]
fn trailers_end_a_call() {
    let server = Server::start(100);
    let gateway = server.with(CALLS);
    let key = gateway.key();
    let (status, headers, body, trailers) = call_once(&gateway, "/calls/a", &key.text, whole(b"hello")).unwrap();
    assert_eq!((status, &*body, &headers["content-type"]), (200, &b"5"[..], &"application/grpc".parse().unwrap()));
    let trailers = trailers.unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse().unwrap()), "{trailers:?}");
    let received = server.heads.lock().unwrap().pop().unwrap();
    assert_eq!(
        (&received["te"], &received["x-user-id"]),
        (&"trailers".parse().unwrap(), &key.user.to_string().parse().unwrap())
    );
    for gone in ["authorization", "host", "connection", "transfer-encoding"] {
        assert!(!received.contains_key(gone), "{gone}: {received:?}");
    }

    let (status, _, body, trailers) = call_once(&gateway, "/plain/a", &key.text, whole(b"hello")).unwrap();
    assert_eq!((status, &*body, trailers), (200, &b"5"[..], None), "not on a route that does not allow them");
    assert!(!server.heads.lock().unwrap().pop().unwrap().contains_key("te"));
}

#[test]
fn response_may_have_trailers_only() {
    let server = Server::start(100);
    let gateway = server.with(CALLS);
    let (status, headers, body, _) =
        call_once(&gateway, "/calls/only-trailers", &gateway.key().text, whole(b"x")).unwrap();
    assert_eq!((status, &headers["grpc-status"], body.len()), (200, &"12".parse().unwrap(), 0));
}

#[test]
fn response_head_has_100_fields_at_most_over_http2() {
    let server = Server::start(100);
    let gateway = server.with(CALLS);
    let (status, headers, ..) = call_once(&gateway, "/calls/many", &gateway.key().text, whole(b"")).unwrap();
    assert_eq!((status, &headers["grpc-status"]), (200, &UNAVAILABLE));
}

#[test]
fn http1_clients_are_served_by_an_http2_upstream() {
    let server = Server::start(100);
    let gateway = server.with(CALLS);
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    for _ in 0..3 {
        assert_eq!(client.request("POST", "/calls/a", &key, &[], b"hello").body, b"5");
        client
            .send(head("POST", "/calls/a", &key, &[("Transfer-Encoding", "chunked")], 0))
            .send("2\r\nab\r\n0\r\n\r\n");
        assert_eq!(client.response().body, b"2");
        assert_eq!(client.get("/calls/a", &key).body, b"0");
    }
    assert_eq!(server.upstream.connections(), 1);
}

/// Each leaves data on its way to a stream that was reset.
#[test]
fn responses_that_clients_abort_end_no_response_of_the_others() {
    let server = Server::start(1000);
    let limits = "limits: { key: { requests: 100000, per: 1h, burst: 100000 } }\n";
    let gateway = server.with(&format!("{CALLS}{limits}"));
    let key = gateway.key().text;
    let mut other = Client::connect(gateway.address);
    other.send(head("GET", "/calls/endless", &key, &[], 0));
    assert_eq!(other.head().unwrap().0, 200);
    for _ in 0..2000 {
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", "/calls/endless", &key, &[], 0));
        assert_eq!(client.head().unwrap().0, 200);
        // More than the windows of its connection in all; and not too slow a reader.
        other.read_exact(64 << 10);
    }
    let connections = server.upstream.connections();
    assert!((2000 / 96..=2000 / 40).contains(&connections), "{connections} connections");
}

#[test]
fn refused_stream_is_retried_once() {
    let cases: [(&str, Body, Option<HeaderValue>, usize, f64); 4] = [
        ("/calls/refused-once", whole(b"hello"), None, 2, 1.0),
        ("/calls/refused-once", whole(b""), None, 2, 1.0),
        ("/calls/refused", whole(b"hello"), Some(UNAVAILABLE), 2, 1.0),
        ("/calls/reset", whole(b""), Some(UNAVAILABLE), 1, 0.0),
    ];
    for (path, body, refusal, calls, retries) in cases {
        let server = Server::start(100);
        let gateway = server.with(CALLS);
        let (status, head, answer, _) = call_once(&gateway, path, &gateway.key().text, body).unwrap();
        let told = head.get("grpc-status").cloned();
        assert_eq!((status, &told, server.calls()), (200, &refusal, calls), "{path}: {answer:?}");
        assert_eq!(gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}"), retries, "{path}");
        if refusal.is_none() {
            assert!(answer == "5" || answer == "0", "the body came whole: {answer:?}");
        }
    }
}

#[test]
fn calls_share_a_connection_until_its_streams_are_used_up() {
    for (max_streams, connections) in [(100, 1..=1), (10, 3..=4)] {
        let server = Server::start(max_streams);
        let gateway = server.with(CALLS);
        let key = gateway.key().text;
        let first = request(&gateway, "/calls/a", &key, whole(b"x"));
        let held: Vec<_> = (0..30).map(|_| request(&gateway, "/calls/silent", &key, whole(b"x"))).collect();
        over_http2(gateway.address, async |mut sender| {
            call(&mut sender, first).await.unwrap();
            for request in held {
                let calls = server.calls();
                tokio::spawn(sender.send_request(request));
                wait_until("the call has arrived", || server.calls() > calls).await;
            }
        });
        let made = server.upstream.connections();
        assert!(connections.contains(&made), "{made} connections for 30 calls, {max_streams} on each");
    }
}

#[test]
fn grpc_stream_may_outlast_the_exchange_timeout() {
    let server = Server::start(100);
    let gateway = server.with(&format!("{CALLS}timeouts: {{ exchange: 300ms }}"));
    let key = gateway.key().text;
    let ticking = || {
        let ticks = stream::unfold(0, |tick| async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            (tick < 16).then(|| (Ok(Frame::data(Bytes::from_static(b"x"))), tick + 1))
        });
        StreamBody::new(ticks).boxed_unsync()
    };
    let (_, _, body, _) = call_once(&gateway, "/calls/echo", &key, ticking()).unwrap();
    assert_eq!(body.len(), 16);
    assert!(call_once(&gateway, "/plain/echo", &key, ticking()).is_err(), "elsewhere it may not");
    assert_eq!(gateway.metric("keygate_timeouts_total{kind=\"upstream_whole\"}"), 1.0);
}

#[test]
fn grpc_stream_may_be_idle_longer_than_an_exchange() {
    let server = Server::start(100);
    let quick = "timeouts: { exchange: 300ms, body_idle: 100ms, response: 100ms, response_idle: 100ms }";
    let gateway = server.with(&format!("{CALLS}{quick}\nhttp: {{ min_body_rate: 1MiB }}"));
    let key = gateway.key().text;
    let slow = stream::unfold(0, |tick| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        (tick < 3).then(|| (Ok(Frame::data(Bytes::from_static(b"x"))), tick + 1))
    });
    let (_, _, body, _) = call_once(&gateway, "/calls/echo", &key, StreamBody::new(slow).boxed_unsync()).unwrap();
    assert_eq!(body.len(), 3);
}

#[test]
fn abandoned_call_is_cancelled() {
    let server = Server::start(100);
    let gateway = server.with(CALLS);
    let key = gateway.key().text;
    let request = request(&gateway, "/calls/a", &key, unfinished(b"some"));
    over_http2(gateway.address, async |mut sender| {
        let waiting = tokio::spawn(sender.send_request(request));
        wait_until("the call has arrived", || server.calls() > 0).await;
        waiting.abort();
        let _ = waiting.await;
    });
    assert_eq!(server.bodies.recv_timeout(Duration::from_secs(10)).unwrap(), Err(()));
    eventually("the slot is back", || gateway.metric("keygate_in_flight") == 0.0);
}

#[test]
fn early_response_cancels_the_rest_of_the_request() {
    let server = Server::start(100);
    // No minimum rate: the upload must not end because the client is slow.
    let gateway = server.with(&format!("{CALLS}http: {{ min_body_rate: 0 }}"));
    let key = gateway.key().text;
    let request = request(&gateway, "/calls/early", &key, unfinished(b"some"));
    over_http2(gateway.address, async |mut sender| {
        let (_, _, body, _) = call(&mut sender, request).await.unwrap();
        assert_eq!(body, "early");
        let mut ended = None;
        wait_until("the rest of the request is not waited for", || {
            ended = server.bodies.try_recv().ok();
            ended.is_some()
        })
        .await;
        assert_eq!(ended, Some(Err(())), "it broke off");
    });
}

/// Upstream of HTTP/1.1 whose response has trailers, of which some must not be forwarded.
fn trailing_upstream() -> Upstream {
    Upstream::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-User-Id, Content-Length, \
                    Set-Cookie\r\n\r\n";
        let rest = "2\r\nok\r\n0\r\nX-Sum: 7\r\nX-User-Id: forged\r\nContent-Length: 9\r\nSet-Cookie: a\r\nX-Unsaid: \
                    1\r\n\r\n";
        stream.write_all(format!("{head}{rest}").as_bytes()).ok();
    })
}

#[test]
fn trailers_pass_on_http1_to_clients_that_read_them() {
    let upstream = trailing_upstream();
    let (gateway, key) = Gateway::with(&[upstream.address], CALLS).and_secret();
    for (path, fields, passes) in [
        ("/calls/a", &[("TE", "trailers"), ("Connection", "te")][..], true),
        ("/calls/a", &[], false),
        ("/plain/a", &[("TE", "trailers"), ("Connection", "te")], false),
    ] {
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", path, &key, fields, 0));
        let (status, headers) = client.head().unwrap();
        let trailer = headers.iter().find(|(name, _)| name == "trailer").map(|(_, value)| value.as_str());
        assert_eq!((status, trailer), (200, passes.then_some("x-sum")), "{path} {fields:?}");
        let expected = if passes { "2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n" } else { "2\r\nok\r\n0\r\n\r\n" };
        assert_eq!(String::from_utf8(client.read_exact(expected.len())).unwrap(), expected, "{path} {fields:?}");
        assert_eq!(upstream.last().header("te"), passes.then_some("trailers"));
        assert_eq!(upstream.last().header("connection"), passes.then_some("te"));
        // The connection can be used again.
        assert_eq!(client.get(path, &key).status, 200);
    }
}

#[test]
fn trailers_pass_from_http1_to_http2() {
    let upstream = trailing_upstream();
    let (gateway, key) = Gateway::with(&[upstream.address], CALLS).and_secret();
    let (_, _, body, trailers) = call_once(&gateway, "/calls/a", &key, whole(b"")).unwrap();
    let trailers = trailers.unwrap();
    assert_eq!((&*body, trailers.len(), &trailers["x-sum"]), (&b"ok"[..], 2, &"7".parse().unwrap()), "{trailers:?}");
    let (.., body, trailers) = call_once(&gateway, "/plain/a", &key, whole(b"")).unwrap();
    assert_eq!((&*body, trailers), (&b"ok"[..], None));
}
