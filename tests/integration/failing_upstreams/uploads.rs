//! Uploads: slow ones, which are no latency of the endpoint, and those that it refuses early.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;

use super::checks::{with, with_blocks};
use super::labelled;
use crate::support::hyper_upstream::ok;
use crate::support::{Client, Gateway, HyperOptions, eventually, head};

fn latency(gateway: &Gateway, what: &str, endpoint: std::net::SocketAddr) -> f64 {
    gateway.metric(&format!("keygate_upstream_latency_seconds_{what}{{endpoint=\"{endpoint}\",upstream=\"default\"}}"))
}

async fn answer_behind_the_body(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(Full::new(body)))
}

#[test]
fn latency_counts_from_the_end_of_a_slow_upload() {
    for (options, protocol) in [(HyperOptions::http1(), "http1"), (HyperOptions::http2(), "http2")] {
        let upstream = options.start(answer_behind_the_body);
        let gateway = with(&[upstream.address], &format!("protocol: {protocol}"));
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        // Over a new connection, and then over a pooled one.
        for number in 1..=2 {
            client.send(head("POST", "/", &key, &[], 10)).send(b"first");
            eventually("it is in flight", || upstream.count() == number);
            // The client is slow. Were this counted, the sum would be larger than what the client can see of the rest.
            std::thread::sleep(Duration::from_millis(300));
            let (before, rest) = (latency(&gateway, "sum", upstream.address), Instant::now());
            assert_eq!(client.send(b"later").response().body, b"firstlater");
            let seen = rest.elapsed().as_secs_f64();
            let counted = latency(&gateway, "sum", upstream.address) - before;
            assert_eq!(latency(&gateway, "count", upstream.address), number as f64);
            assert!(counted <= seen, "{protocol}: {counted} s of {seen} s");
        }
    }
}

/// While the body advances, the upstream is not late: it may wait for the rest. Behind the body it has the whole time.
#[test]
fn upload_that_advances_is_no_time_out_of_the_response() {
    const PIECE: Duration = Duration::from_millis(450);
    let run = |options: HyperOptions, protocol: &str| {
        let upstream = options.start(answer_behind_the_body);
        let gateway =
            with_blocks(&[upstream.address], &format!("protocol: {protocol}"), "timeouts: { response: 3s }\n");
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key, &[], 8));
        for _ in 0..8 {
            std::thread::sleep(PIECE);
            client.send(b"x");
        }
        assert_eq!(client.response().body, b"xxxxxxxx", "{protocol}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(HyperOptions::http1(), "http1"));
        scope.spawn(|| run(HyperOptions::http2(), "http2"));
    });
}

#[test]
fn response_before_the_end_of_an_upload_has_no_latency() {
    for (options, protocol) in [(HyperOptions::http1(), "http1"), (HyperOptions::http2(), "http2")] {
        let upstream = options.start(ok);
        let gateway = with(&[upstream.address], &format!("protocol: {protocol}"));
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key, &[], 10)).send(b"first");
        assert_eq!(client.response().status, 200);
        let forwarded = format!(
            "keygate_upstream_requests_total{{endpoint=\"{}\",result=\"ok\",upstream=\"default\"}}",
            upstream.address
        );
        assert_eq!(
            (gateway.metric(&forwarded), latency(&gateway, "count", upstream.address)),
            (1.0, 0.0),
            "{protocol}"
        );
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
        assert_eq!(latency(&gateway, "count", upstream.address), 1.0, "{protocol}");
    }
}

/// Endpoint that reads so much of a request that `until` is a part of it, sends this, and closes: what it has not read
/// has the kernel reset the connection.
fn refusing_early(until: &'static [u8], answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut received = Vec::<u8>::new();
                while !received.windows(until.len()).any(|window| window == until) {
                    let mut piece = [0; 1024];
                    match stream.read(&mut piece) {
                        Ok(read) if read > 0 => received.extend(&piece[..read]),
                        _ => return,
                    }
                }
                stream.write_all(answer).ok();
            });
        }
    });
    address
}

/// RFC 9112, section 9.6: a server that closes without reading the rest may have its response lost with the reset.
#[test]
fn early_refusal_of_an_upload_reaches_the_client() {
    const ANSWER: &[u8] = b"HTTP/1.1 413 x\r\ncontent-length: 9\r\nconnection: close\r\n\r\ntoo large";
    let endpoints = [(); 2].map(|()| refusing_early(b"\r\n\r\n", ANSWER));
    let gateway = with(&endpoints, "protocol: http1");
    let key = gateway.key().text;
    let mut statuses = Vec::new();
    for _ in 0..60 {
        let stream = TcpStream::connect(gateway.address).unwrap();
        let (mut sender, mut client) = (stream.try_clone().unwrap(), Client::over(stream));
        let upload = [head("POST", "/", &key, &[], 1 << 20).into_bytes(), vec![b'x'; 1 << 20]].concat();
        // The gateway closes before the end.
        let sending = std::thread::spawn(move || sender.write_all(&upload).ok());
        let response = client.response();
        statuses.push((response.status, response.body == b"too large"));
        drop(client);
        sending.join().unwrap();
    }
    assert_eq!(statuses, [(413, true); 60]);
    assert_eq!(endpoints.map(|endpoint| gateway.metric(&labelled("endpoint_up", endpoint))), [1.0; 2]);
}

#[test]
fn endpoint_that_resets_the_streams_of_uploads_is_not_ejected_for_it() {
    let resetting = [(); 2].map(|()| {
        HyperOptions::http2().start(async |_| Err::<Response<Full<Bytes>>, h2::Error>(h2::Reason::CANCEL.into()))
    });
    let endpoints = resetting.each_ref().map(|upstream| upstream.address);
    let gateway = with(&endpoints, "protocol: http2");
    let key = gateway.key().text;
    for _ in 0..10 {
        let mut client = Client::connect(gateway.address);
        client.send(head("POST", "/", &key, &[], 1000)).send(b"some");
        assert_eq!(client.response().status, 502);
    }
    assert_eq!(endpoints.map(|endpoint| gateway.metric(&labelled("endpoint_up", endpoint))), [1.0; 2]);
}

/// A request that was not sent whole says nothing about its endpoint, which may have refused it.
#[test]
fn endpoint_that_breaks_uploads_off_is_not_ejected_for_it() {
    let truncated: &[u8] = b"HTTP/1.1 413 x\r\ncontent-length: 100\r\n\r\nsome";
    for (protocol, answer) in [("http1", &b""[..]), ("http1", truncated), ("http2", b"")] {
        let endpoints = [(); 2].map(|()| refusing_early(b"some", answer));
        let gateway = with(&endpoints, &format!("protocol: {protocol}"));
        let key = gateway.key().text;
        for _ in 0..10 {
            let mut client = Client::connect(gateway.address);
            client.send(head("POST", "/", &key, &[], 1000)).send(b"some");
            let expected = if answer.is_empty() { 502 } else { 413 };
            assert_eq!(client.head().unwrap().0, expected, "{protocol}");
            client.try_response_to("GET").ok();
        }
        let up = endpoints.map(|endpoint| gateway.metric(&labelled("endpoint_up", endpoint)));
        assert_eq!(up, [1.0; 2], "{protocol}, {} bytes", answer.len());
    }
}
