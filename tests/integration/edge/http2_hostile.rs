//! HTTP/2 clients that flood the gateway with idle work: their connections end soon, and other clients are served.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{GatedUpstream, Gateway, Upstream, eventually};

use super::frames::{self, Raw};
use super::{PLENTY, all_is_given_back, serves};

/// Frames that a client has sent at most when its connection ends.
const SOON: usize = 200_000;

/// Sends these frames again and again until the gateway ends the connection. Returns the error that its GOAWAY names.
fn flood(gateway: &Gateway, begin: &[u8], mut more: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send(begin.to_vec());
    let mut reader = Raw { stream: raw.stream.try_clone().unwrap() };
    let listening = std::thread::spawn(move || reader.goaway_error());
    let mut sent = 0;
    while raw.try_send((sent..sent + 100).flat_map(&mut more).collect()).is_ok() {
        sent += 100;
        assert!((sent as usize) < SOON, "the flood is not ended");
    }
    let error = listening.join().unwrap();
    all_is_given_back(gateway);
    error
}

/// The stream of the request with this number.
fn stream(number: u32) -> u32 {
    number * 2 + 1
}

fn start(upstream: &Upstream) -> Gateway {
    Gateway::with(&[upstream.address], &format!("{PLENTY}timeouts: {{ head: 2s }}\n"))
}

#[test]
fn floods_of_frames_that_ask_for_nothing_end_the_connection() {
    let upstream = Upstream::answering(|_, _| {});
    let (gateway, key) = start(&upstream).and_key();
    let open = frames::head(1, "POST", "/", &key.text, &[], false);
    let padded = [&[7][..], &[0; 7]].concat();
    let floods: [(&str, Vec<u8>); 11] = [
        ("PING", frames::frame(frames::PING, 0, 0, &[0; 8])),
        ("PING that answers", frames::frame(frames::PING, frames::ACK, 0, &[0; 8])),
        ("SETTINGS", frames::frame(frames::SETTINGS, 0, 0, &[])),
        ("SETTINGS that change much", frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255].repeat(100))),
        ("PRIORITY", frames::frame(frames::PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("PRIORITY of idle streams", frames::frame(frames::PRIORITY, 0, 0x7fff_0001, &[0, 0, 0, 0, 1])),
        ("empty DATA", frames::frame(frames::DATA, 0, 1, &[])),
        ("DATA of padding", frames::frame(frames::DATA, frames::PADDED, 1, &padded)),
        ("tiny WINDOW_UPDATE of the connection", frames::frame(frames::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("tiny WINDOW_UPDATE of the stream", frames::frame(frames::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("unknown", frames::frame(0xee, 0, 0, b"x")),
    ];
    for (number, (name, frame)) in floods.into_iter().enumerate() {
        let error = flood(&gateway, &open, |_| frame.clone());
        // With many bytes on their way, a reset may overtake the GOAWAY.
        assert!(matches!(error, None | Some(frames::ENHANCE_YOUR_CALM)), "{name}: {error:?}");
        eventually(name, || gateway.metric("keygate_http2_floods_total") == number as f64 + 1.0);
        eventually(name, || gateway.explain_in_flight(&key) == 0);
    }
    let records = gateway.records();
    assert!(records.len() <= 11 && upstream.count() <= 11, "{records:?}");
}

#[test]
fn goaway_names_the_error() {
    let upstream = Upstream::start();
    let gateway = start(&upstream);
    let mut raw = Raw::connect(gateway.address);
    // One more than the allowance.
    raw.send(frames::frame(frames::PING, frames::ACK, 0, &[0; 8]).repeat(200 + 128 * 4 + 1));
    assert_eq!(raw.goaway_error(), Some(frames::ENHANCE_YOUR_CALM));
}

#[test]
fn requests_that_are_all_reset_end_the_connection() {
    let upstream = Upstream::answering(|_, _| {});
    let (gateway, key) = start(&upstream).and_key();
    for waits in [false, true] {
        flood(&gateway, &[], |number| {
            let request = frames::request(stream(number), "GET", "/", &key.text);
            let reset = frames::frame(frames::RST_STREAM, 0, stream(number), &frames::CANCEL.to_be_bytes());
            // The ping lets some requests be served before their resets come.
            let ping = if waits { frames::frame(frames::PING, 0, 0, &[0; 8]) } else { Vec::new() };
            [request, ping, reset].concat()
        });
        eventually("nothing is in flight", || gateway.explain_in_flight(&key) == 0);
        assert_eq!(gateway.metric("keygate_http2_floods_total"), if waits { 2.0 } else { 1.0 });
        assert!(upstream.count() < 2000, "{} requests reached the upstream", upstream.count());
    }
}

/// A reason for the gateway to reset a stream, and the frames that cause it.
type Provocation = (&'static str, fn(u32) -> Vec<u8>);

#[test]
fn resets_provoked_by_the_client_end_the_connection() {
    let upstream = Upstream::answering(|_, _| {});
    let (gateway, key) = start(&upstream).and_key();
    let provocations: [Provocation; 5] = [
        ("WINDOW_UPDATE of 0", |stream| frames::frame(frames::WINDOW_UPDATE, 0, stream, &[0; 4])),
        ("a window too large", |stream| frames::frame(frames::WINDOW_UPDATE, 0, stream, &[0x7f, 255, 255, 255])),
        ("DATA on a half-closed stream", |stream| frames::frame(frames::DATA, 0, stream, b"x")),
        ("HEADERS on a half-closed stream", |stream| frames::request(stream, "GET", "/", "x")),
        ("a dependency on itself", |stream| {
            frames::frame(frames::PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[1]].concat())
        }),
    ];
    for (name, provoke) in provocations {
        let before = upstream.count();
        flood(&gateway, &[], |number| {
            let stream = stream(number);
            [frames::request(stream, "GET", "/", &key.text), provoke(stream)].concat()
        });
        eventually(name, || gateway.explain_in_flight(&key) == 0);
        assert!(upstream.count() - before < 2000, "{name}: {} requests", upstream.count() - before);
    }
}

/// A trusted proxy has the requests of many clients on a connection.
#[test]
fn floods_of_one_client_of_a_trusted_proxy_end_no_request_of_another() {
    let upstream = GatedUpstream::start();
    let gateway = Gateway::with(&[upstream.address()], &format!("{PLENTY}trusted_proxies: [127.0.0.0/8]\n"));
    let key = gateway.key().text;
    let mut raw = Raw::connect(gateway.address).settled();
    raw.send(frames::head(1, "GET", "/", &key, &[("x-forwarded-for", "192.0.2.1")], true));
    eventually("the request of the other is at the upstream", || upstream.count() == 1);
    let mut reader = Raw { stream: raw.stream.try_clone().unwrap() };
    let other = std::thread::spawn(move || reader.until(|frame| frame.ends(1)));
    // Without a key: a hundred refusals of keys in a row would close the connection.
    let keyless = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "gateway.test")];
    let keyless = keyless.iter().chain(&[("x-forwarded-for", "192.0.2.2")]);
    let keyless = keyless.map(|(name, value)| frames::field(name, value)).collect::<Vec<_>>().concat();
    for number in 1..4000 {
        let stream = stream(number);
        let request = frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &keyless);
        // By the client, and by the gateway.
        let reset = match number % 2 {
            0 => frames::frame(frames::RST_STREAM, 0, stream, &frames::CANCEL.to_be_bytes()),
            _ => frames::frame(frames::WINDOW_UPDATE, 0, stream, &[0x7f, 255, 255, 255]),
        };
        raw.send([request, reset].concat());
    }
    upstream.open();
    other.join().unwrap();
    assert_eq!(gateway.metric("keygate_http2_floods_total"), 0.0);
}

#[test]
fn heads_without_an_end_end_the_connection() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let mut begun = frames::request(1, "GET", "/", &key);
    begun[4] = frames::END_STREAM;
    let long = frames::field("x", &"y".repeat(120)).repeat(100);
    for (number, piece) in [Vec::new(), frames::field("x", "y"), long, vec![0]].into_iter().enumerate() {
        flood(&gateway, &begun, |_| frames::frame(frames::CONTINUATION, 0, 1, &piece));
        eventually("the metric counts it", || gateway.metric("keygate_http2_floods_total") == number as f64 + 1.0);
    }
    assert_eq!(super::timeouts(gateway.admin, "head"), 0.0, "no head timed out");
    assert_eq!(upstream.count(), 0);
    serves(&gateway, &key);
}

#[test]
fn others_are_served_during_floods() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream).and_secret();
    let ping = frames::frame(frames::PING, 0, 0, &[0; 8]).repeat(1000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut raw = Raw::connect(gateway.address);
                    let ended = (0..SOON).any(|_| raw.try_send(ping.clone()).is_err());
                    assert!(ended, "the flood is not ended");
                }
            });
        }
        for _ in 0..50 {
            serves(&gateway, &key);
        }
    });
    assert_eq!(gateway.metric("keygate_http2_floods_total"), 80.0);
    all_is_given_back(&gateway);
}

/// 1,000 requests of an ordinary client: large responses, small ones, and some that it cancels.
async fn busy(gateway: &Gateway, key: &str) {
    let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    for _ in 0..50 {
        let mut streams = tokio::task::JoinSet::new();
        for number in 0..20 {
            let mut sender = sender.clone();
            let path = if number % 5 == 0 { "/large" } else { "/small" };
            let request = Request::get(format!("http://{}{path}", gateway.address));
            let request = request.header("authorization", format!("Bearer {key}")).body(Empty::<Bytes>::new()).unwrap();
            streams.spawn(async move {
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                let mut body = response.into_body();
                if number % 4 == 0 {
                    // Cancelled after its first frame.
                    body.frame().await.unwrap().unwrap();
                    return;
                }
                let length = body.collect().await.unwrap().to_bytes().len();
                assert_eq!(length, if path == "/large" { LARGE } else { 2 });
            });
        }
        while let Some(ended) = tokio::time::timeout(Duration::from_secs(20), streams.join_next()).await.unwrap() {
            ended.unwrap();
        }
    }
    assert!(!connection.is_finished(), "the connection stays open");
}

const LARGE: usize = 1 << 20;

#[test]
fn frames_of_a_busy_client_are_no_flood() {
    let upstream = Upstream::answering(|request, stream| {
        use std::io::Write as _;
        let length = if request.path() == "/large" { LARGE } else { 2 };
        stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes()).ok();
        stream.write_all(&vec![b'x'; length]).ok();
    });
    let (gateway, key) = start(&upstream).and_key();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(busy(&gateway, &key.text));
    assert_eq!(gateway.metric("keygate_http2_floods_total"), 0.0);
    all_is_given_back(&gateway);
    assert_eq!(gateway.explain_in_flight(&key), 0);
    assert_eq!(gateway.records().len(), 1000);
}
