//! Hostile upstreams that speak HTTP/2, frame by frame.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::edge::frames::{self, frame};
use crate::support::upstream_blocks::endpoints;
use crate::support::{Client, Gateway, eventually, head};

/// No endpoint is set aside.
const NO_EJECTION: &str = "outlier: { server_errors: 0, gateway_errors: 0, timeouts: 0 }";

/// Frames that an upstream has sent at most when its connection ends: more than the buffers of sockets hold.
const SOON: usize = 3_000_000;

/// Request as its upstream sees it, with the numbers of its connection and of the request, from 0.
pub(super) struct Asked {
    connection: usize,
    pub(super) request: usize,
    stream: u32,
}

/// Upstream whose answers are frames.
pub(super) struct Http2Upstream {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    /// Streams that were reset on each connection.
    pub(super) resets: Arc<Mutex<Vec<usize>>>,
}

type Answer = dyn Fn(Asked, &mut TcpStream) + Send + Sync;

impl Http2Upstream {
    pub(super) fn answering(answer: impl Fn(Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Self { address, connections: Arc::default(), requests: Arc::default(), resets: Arc::default() };
        let (connections, requests) = (Arc::clone(&upstream.connections), Arc::clone(&upstream.requests));
        let (answer, resets): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&upstream.resets));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (requests, answer, resets) = (Arc::clone(&requests), Arc::clone(&answer), Arc::clone(&resets));
                resets.lock().unwrap().push(0);
                std::thread::spawn(move || serve(stream, number, &requests, &resets, &*answer));
            }
        });
        upstream
    }

    /// Answers every request with these frames.
    fn sending(frames: impl Fn(Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::answering(move |asked, stream| drop(stream.write_all(&frames(asked))))
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Gateway with one worker, which has one connection to this upstream.
    pub(super) fn gateway(&self, blocks: &str) -> Gateway {
        gateway(&[self.address], blocks)
    }
}

fn gateway(addresses: &[SocketAddr], blocks: &str) -> Gateway {
    let upstream = format!("{}, protocol: http2, balance: {{ policy: round_robin }}", endpoints(addresses));
    let upstream = format!("upstream: {{ {upstream}, {NO_EJECTION}, retries: {{ budget: 100 }} }}\n");
    Gateway::with(&[], &format!("{}\nworkers: 1\n{upstream}{blocks}", super::PLENTY))
}

/// Serves a connection: acknowledges settings and pings, and answers each head.
fn serve(
    mut stream: TcpStream,
    connection: usize,
    requests: &AtomicUsize,
    resets: &Mutex<Vec<usize>>,
    answer: &Answer,
) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    stream.read_exact(&mut [0; frames::PREFACE.len()]).ok()?;
    stream.write_all(&frame(frames::SETTINGS, 0, 0, &[])).ok()?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).ok()?;
        let [a, b, c, kind, flags, number @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload).ok()?;
        match (kind, flags & frames::ACK) {
            (frames::SETTINGS, 0) => stream.write_all(&frame(frames::SETTINGS, frames::ACK, 0, &[])).ok()?,
            (frames::PING, 0) => stream.write_all(&frame(frames::PING, frames::ACK, 0, &payload)).ok()?,
            (frames::HEADERS, _) => {
                let request = requests.fetch_add(1, Ordering::SeqCst);
                answer(Asked { connection, request, stream: u32::from_be_bytes(number) }, &mut stream);
            }
            (frames::RST_STREAM, _) => resets.lock().unwrap()[connection] += 1,
            _ => {}
        }
    }
}

/// Head of a response of which these fields are the whole, and more follows.
fn interim(stream: u32, fields: &[u8]) -> Vec<u8> {
    frame(frames::HEADERS, frames::END_HEADERS, stream, fields)
}

/// Response with 200 and no body.
pub(super) fn ok(stream: u32) -> Vec<u8> {
    frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, stream, &[0x88])
}

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(frames::RST_STREAM, 0, stream, &code.to_be_bytes())
}

/// `:status` with this code in every representation of RFC 7541: the bytes of the first such field of a connection, and
/// of the further ones.
fn representations(code: &[u8; 3], huffman: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let literal = |first: u8| [&[first, 3][..], code].concat();
    let coded = [&[0x48, 0x80 | u8::try_from(huffman.len()).unwrap()], huffman].concat();
    vec![
        (literal(0x08), literal(0x08)),
        (literal(0x18), literal(0x18)),
        (literal(0x48), vec![0xbe]),
        (literal(0x48), literal(0x48)),
        (coded, vec![0xbe]),
    ]
}

/// 103 and 101 in Huffman code.
const HINTS: &[u8] = &[0x08, 0x19];
const SWITCHING: &[u8] = &[0x08, 0x03];

/// The second request is answered with these frames and 200, and the first one behind them. The first one is served,
/// the second one is not, and the connection goes on.
fn second_is_refused(what: &str, bad: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) {
    let upstream = Http2Upstream::sending(move |asked| match asked.request {
        0 => Vec::new(),
        1 => [bad(asked.stream), ok(asked.stream), ok(1)].concat(),
        _ => ok(asked.stream),
    });
    let gateway = upstream.gateway("");
    let key = gateway.key().text;
    let mut first = Client::connect(gateway.address);
    first.send(head("GET", "/", &key, &[], 0));
    eventually("the first request is at the upstream", || upstream.requests() == 1);
    let mut second = Client::connect(gateway.address);
    let response = second.get("/", &key);
    assert_eq!((response.status, response.code().as_str()), (502, "upstream_failed"), "{what}");
    assert_eq!(first.response().status, 200, "{what}");
    assert_eq!(second.get("/", &key).status, 200, "{what}");
    assert_eq!((upstream.requests(), upstream.connections()), (3, 1), "{what}: nothing is sent again");
}

#[test]
fn interim_responses_are_limited_in_number_over_http2() {
    for (first, further) in representations(b"103", HINTS) {
        let what = format!("{first:02x?}");
        let most = move |stream, count: usize| {
            let further = interim(stream, &further).repeat(count - 1);
            [interim(stream, &first), further].concat()
        };
        let sixteen = most.clone();
        let upstream = Http2Upstream::sending(move |asked| match asked.request {
            0 => [sixteen(asked.stream, 16), ok(asked.stream)].concat(),
            _ => ok(asked.stream),
        });
        let gateway = upstream.gateway("");
        let response = Client::connect(gateway.address).get("/", &gateway.key().text);
        assert_eq!(response.status, 200, "{what}");
        second_is_refused(&what, move |stream| most(stream, 17));
    }
}

#[test]
fn endless_interim_responses_end() {
    let upstream = Http2Upstream::answering(|asked, stream| {
        let hint = interim(asked.stream, b"\x08\x03103").repeat(100);
        let ended = (0..SOON / 100).any(|_| stream.write_all(&hint).is_err());
        assert!(ended, "the flood is not ended");
    });
    let gateway = upstream.gateway("timeouts: { response: 50s }");
    assert_eq!(Client::connect(gateway.address).get("/", &gateway.key().text).status, 502);
}

#[test]
fn protocol_switch_over_http2_is_refused() {
    for (first, further) in representations(b"101", SWITCHING) {
        let what = format!("{first:02x?}");
        let upstream = Http2Upstream::sending(move |asked| match asked.request {
            0 => Vec::new(),
            1 => [interim(asked.stream, &first), ok(asked.stream)].concat(),
            2 => [interim(asked.stream, &further), ok(asked.stream), ok(1)].concat(),
            _ => ok(asked.stream),
        });
        let gateway = upstream.gateway("");
        let key = gateway.key().text;
        let mut other = Client::connect(gateway.address);
        other.send(head("GET", "/", &key, &[], 0));
        eventually("the first request is at the upstream", || upstream.requests() == 1);
        let mut client = Client::connect(gateway.address);
        assert_eq!([(); 3].map(|()| client.get("/", &key).status), [502, 502, 200], "{what}");
        assert_eq!(other.response().status, 200, "{what}");
        assert_eq!((upstream.requests(), upstream.connections()), (4, 1), "{what}: nothing is sent again");
    }
}

/// Frames that ask for nothing, by their name and the stream of the request.
type Flood = (&'static str, fn(u32) -> Vec<u8>);

#[test]
fn floods_of_an_upstream_end_the_connection() {
    let floods: [Flood; 9] = [
        ("WINDOW_UPDATE of the connection", |_| frame(frames::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE of the stream", |stream| frame(frames::WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1])),
        ("PING", |_| frame(frames::PING, 0, 0, &[0; 8])),
        ("PING that answers", |_| frame(frames::PING, frames::ACK, 0, &[0; 8])),
        ("SETTINGS", |_| frame(frames::SETTINGS, 0, 0, &[])),
        ("PRIORITY", |_| frame(frames::PRIORITY, 0, 1, &[0, 0, 0, 0, 3])),
        ("GOAWAY", |_| frame(frames::GOAWAY, 0, 0, &[0x7f, 255, 255, 255, 0, 0, 0, 0])),
        ("RST_STREAM of a stream that has ended", |_| reset(1, frames::CANCEL)),
        ("unknown", |_| frame(0xee, 0, 0, b"x")),
    ];
    for (name, flood) in floods {
        let ended = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ended);
        let upstream = Http2Upstream::answering(move |asked, stream| {
            if asked.request != 1 {
                return drop(stream.write_all(&ok(asked.stream)));
            }
            let flood = flood(asked.stream).repeat(100);
            if (0..SOON / 100).any(|_| stream.write_all(&flood).is_err()) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let gateway = upstream.gateway("timeouts: { response: 50s }");
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        assert_eq!(client.get("/", &key).status, 200, "{name}");
        assert_eq!(client.request("POST", "/", &key, &[], b"").status, 502, "{name}");
        eventually(name, || ended.load(Ordering::SeqCst) == 1);
        assert_eq!(client.get("/", &key).status, 200, "{name}");
        assert_eq!((upstream.requests(), upstream.connections()), (3, 2), "{name}");
    }
}

/// An upstream that grants the window of an upload in small steps, and pings for each piece, is an ordinary one.
#[test]
fn window_updates_that_an_upload_earns_are_no_flood() {
    const PIECES: usize = 2000;
    let address = echoing_updates();
    let gateway = gateway(&[address], "");
    let mut client = Client::connect(gateway.address);
    client.send(head("POST", "/", &gateway.key().text, &[("Transfer-Encoding", "chunked")], 0));
    for _ in 0..PIECES {
        client.send("1\r\nx\r\n");
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

/// Upstream that answers each DATA frame with a WINDOW_UPDATE of the connection, one of the stream and a PING.
fn echoing_updates() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut raw = frames::Raw { stream: listener.accept().unwrap().0 };
        raw.stream.read_exact(&mut [0; frames::PREFACE.len()]).unwrap();
        raw.send(frame(frames::SETTINGS, 0, 0, &[]));
        while let Some(received) = raw.next() {
            if received.kind == frames::DATA && !received.payload.is_empty() {
                raw.open_window(0, 1);
                raw.open_window(received.stream, 1);
                raw.send(frame(frames::PING, 0, 0, &[0; 8]));
            }
            if received.ends(received.stream) {
                raw.send(ok(received.stream));
            }
        }
    });
    address
}

#[test]
fn request_that_was_answered_by_an_interim_response_is_not_sent_again() {
    let go_away = |last: u32| frame(frames::GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat());
    type Taken = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;
    let hint = |stream| interim(stream, b"\x08\x03103");
    let cases: [(&str, &str, Taken); 5] = [
        (
            "REFUSED_STREAM",
            "POST",
            Box::new(move |stream| [hint(stream), reset(stream, frames::REFUSED_STREAM)].concat()),
        ),
        (
            "REFUSED_STREAM",
            "GET",
            Box::new(move |stream| [hint(stream), reset(stream, frames::REFUSED_STREAM)].concat()),
        ),
        ("CANCEL", "GET", Box::new(move |stream| [hint(stream), reset(stream, frames::CANCEL)].concat())),
        ("GOAWAY", "POST", Box::new(move |stream| [hint(stream), go_away(0)].concat())),
        ("end of the connection", "GET", Box::new(hint)),
    ];
    for (what, method, taken) in cases {
        let good = Http2Upstream::sending(|asked| ok(asked.stream));
        let hostile = Http2Upstream::answering(move |asked, stream| {
            stream.write_all(&taken(asked.stream)).ok();
            if matches!(what, "GOAWAY" | "end of the connection") {
                stream.shutdown(std::net::Shutdown::Both).ok();
            }
        });
        let (gateway, key) = gateway(&[hostile.address, good.address], "").and_secret();
        let mut client = Client::connect(gateway.address);
        let statuses = [(); 4].map(|()| client.request(method, "/", &key, &[], b"").status);
        let refused = statuses.iter().filter(|status| **status == 502).count();
        assert_eq!((refused, hostile.requests(), good.requests()), (2, 2, 2), "{what} {method}: {statuses:?}");
    }
}

#[test]
fn connection_that_answers_nothing_is_retired_when_a_request_times_out() {
    let upstream = Http2Upstream::answering(|asked, stream| {
        if asked.connection > 0 {
            stream.write_all(&ok(asked.stream)).ok();
        }
    });
    let gateway = upstream.gateway("timeouts: { response: 200ms }");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 504);
    for _ in 0..3 {
        assert_eq!(client.get("/", &key).status, 200);
    }
    assert_eq!((upstream.requests(), upstream.connections()), (4, 2));
}

#[test]
fn connection_that_answers_nothing_is_not_the_only_one() {
    let upstream = Http2Upstream::answering(|asked, stream| {
        if asked.connection > 0 {
            stream.write_all(&ok(asked.stream)).ok();
        }
    });
    let gateway = upstream.gateway("timeouts: { response: 10m, exchange: 10m }");
    let key = gateway.key().text;
    let mut waiting = Vec::new();
    eventually("another connection serves requests", || {
        let mut client = Client::connect(gateway.address);
        client.send(head("GET", "/", &key, &[], 0));
        let is_served = client.hears_within(Duration::from_millis(200));
        waiting.push(client);
        is_served
    });
    assert_eq!(upstream.connections(), 2);
}

/// A connection on which some request is answered is shared by all, however long others wait.
#[test]
fn connection_that_answers_is_shared_also_with_slow_requests() {
    let upstream = Http2Upstream::sending(|asked| if asked.request == 0 { Vec::new() } else { ok(asked.stream) });
    let gateway = upstream.gateway("");
    let key = gateway.key().text;
    let mut slow = Client::connect(gateway.address);
    slow.send(head("GET", "/", &key, &[], 0));
    eventually("the slow request is at the upstream", || upstream.requests() == 1);
    let mut client = Client::connect(gateway.address);
    for _ in 0..100 {
        assert_eq!(client.get("/", &key).status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}
