//! HTTP/2 with prior knowledge, down to an HTTP/1.1 upstream.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use crate::support::{Gateway, Upstream};

/// Runs the client's side. The gateway is started and stopped outside, because it has threads of its own.
fn block_on(client: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(client);
}

async fn connect(gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    // Pings are frames between the requests that are no part of any.
    let mut builder = Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).keep_alive_interval(Duration::from_millis(50)).keep_alive_while_idle(true);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(gateway: &Gateway, path: &str, key: &str, body: &[u8]) -> Request<Full<Bytes>> {
    Request::post(format!("http://{}{path}", gateway.address))
        .header("authorization", format!("Bearer {key}"))
        .header("x_user_id", "forged")
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap()
}

#[test]
fn streams_share_a_connection() {
    let (upstream, gateway, key) = Gateway::with_key("");
    block_on(async {
        let sender = connect(&gateway).await;
        let mut streams = Vec::new();
        for number in 0..50 {
            let mut sender = sender.clone();
            let request = request(&gateway, &format!("/{number}?q"), &key.text, format!("body {number}").as_bytes());
            streams.push(tokio::spawn(async move {
                let response = sender.send_request(request).await.unwrap();
                assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
                assert!(response.headers().contains_key("ratelimit"));
                response.into_body().collect().await.unwrap().to_bytes()
            }));
        }
        for stream in streams {
            assert_eq!(stream.await.unwrap(), "ok");
        }
        let mut received = upstream.received();
        assert_eq!(received.len(), 50);
        received.sort_by_key(|request| request.path().trim_matches(['/', '?', 'q']).parse::<u32>().unwrap());
        for (number, request) in received.iter().enumerate() {
            assert_eq!(request.line, format!("POST /{number}?q HTTP/1.1"));
            assert_eq!(request.body, format!("body {number}").as_bytes());
            assert_eq!(request.header("x-user-id"), Some(&*key.user.to_string()));
            assert_eq!(request.header("via"), Some("2 keygate"));
            assert_eq!(request.header("x-forwarded-host"), Some(&*gateway.address.to_string()));
            assert!(!request.headers.iter().any(|(_, value)| value == "forged"));
        }
    });
}

#[test]
fn refusals_are_the_same_as_over_http_1() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    block_on(async {
        let mut sender = connect(&gateway).await;
        let response = sender.send_request(request(&gateway, "/", "sk_live_bad", b"")).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["code"], "invalid_token");
        assert_eq!(upstream.count(), 0);
    });
}

#[test]
fn reset_stream_gives_its_slot_back() {
    let upstream = Upstream::answering(|_, _| {});
    let (gateway, key) = Gateway::with(&[upstream.address], "limits: { org: { concurrent: 1 } }").and_key();
    block_on(async {
        let mut sender = connect(&gateway).await;
        for _ in 0..5 {
            let before = upstream.count();
            let pending = sender.send_request(request(&gateway, "/", &key.text, b"x"));
            let waiting = tokio::spawn(pending);
            while upstream.count() == before {
                tokio::task::yield_now().await;
            }
            waiting.abort();
            tokio::task::spawn_blocking({
                let admin = gateway.admin;
                move || {
                    crate::support::eventually("the slot is given back", || {
                        crate::support::metric(admin, "keygate_in_flight") == 0.0
                    })
                }
            })
            .await
            .unwrap();
        }
    });
}

#[test]
fn head_requests_and_large_heads_are_refused_with_a_response() {
    let (upstream, gateway, key) = Gateway::with_key("");
    block_on(async {
        let mut sender = connect(&gateway).await;
        let mut head = request(&gateway, "/", "sk_live_bad", b"");
        *head.method_mut() = http::Method::HEAD;
        let response = sender.send_request(head).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
        for (count, size) in [(101, 1), (1, 70_000)] {
            let mut large = request(&gateway, "/", &key.text, b"");
            for number in 0..count {
                let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
                large.headers_mut().insert(name, "x".repeat(size).parse().unwrap());
            }
            let response = sender.send_request(large).await.unwrap();
            assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{count} of {size}");
        }
    });
    assert_eq!(upstream.count(), 0);
}

#[test]
fn idle_connection_lasts_as_long_as_keep_alive() {
    let (_upstream, gateway, key) = Gateway::with_key("timeouts: { head: 100ms, keep_alive: 1s }");
    block_on(async {
        let mut sender = connect(&gateway).await;
        for _ in 0..3 {
            let response = sender.send_request(request(&gateway, "/", &key.text, b"x")).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            // Longer than the time-out of heads: frames between the requests must not be taken for a head.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let closed = async {
            while !sender.is_closed() {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(Duration::from_secs(10), closed).await.expect("an idle connection is closed");
    });
}

#[test]
fn cookie_crumbs_are_joined() {
    let (upstream, gateway, key) = Gateway::with_key("");
    block_on(async {
        let mut sender = connect(&gateway).await;
        let mut crumbs = request(&gateway, "/", &key.text, b"");
        for crumb in ["a=1", "b=2", "c=3"] {
            crumbs.headers_mut().append("cookie", crumb.parse().unwrap());
        }
        assert_eq!(sender.send_request(crumbs).await.unwrap().status(), StatusCode::OK);
    });
    assert_eq!(upstream.last().header("cookie"), Some("a=1; b=2; c=3"));
}

#[test]
fn ambiguous_paths_and_hosts_are_refused() {
    let (upstream, gateway, key) = Gateway::with_key("");
    block_on(async {
        let mut sender = connect(&gateway).await;
        let mut other_host = request(&gateway, "/", &key.text, b"");
        other_host.headers_mut().insert("host", "elsewhere".parse().unwrap());
        let above_ascii = request(&gateway, "/\u{e4}", &key.text, b"");
        let mut tunnel = request(&gateway, "/", &key.text, b"");
        *tunnel.method_mut() = http::Method::TRACE;
        for refused in [other_host, above_ascii, tunnel] {
            let response = sender.send_request(refused).await.unwrap();
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        }
    });
    assert_eq!(upstream.count(), 0);
}
