//! Slow uploads, which are no latency of the endpoint.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;

use super::checks::{with, with_blocks};
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
