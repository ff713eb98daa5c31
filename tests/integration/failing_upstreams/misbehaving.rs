//! Endpoints that answer nothing, break off, or go up and down.

use std::convert::Infallible;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body_util::StreamBody;
use hyper::body::Frame;
use socket2::SockRef;

use super::checks::{with, with_blocks};
use super::logged::Logged;
use super::{ejections, gateway, labelled, responding, responding_by};
use crate::support::hyper_upstream::ok;
use crate::support::{HyperOptions, Upstream, eventually, part_of, traffic_of};

/// An endpoint is ejected once. It has requests in turns: by cost, one that fails has too few to be ejected soon.
const EJECTED_FOR_LONG: &str = "outlier: { ejection: 1h, max_ejection: 1h }, balance: { policy: round_robin }";

/// Up for two seconds and down for two seconds, by turns: each return is followed by an ejection that is longer,
/// and costs few requests.
#[test]
fn flapping_endpoint_is_ejected_for_longer_each_time() {
    const CLIENTS: usize = 4;
    const EJECTIONS: usize = 4;
    let start = Instant::now();
    let is_down = move || (start.elapsed().as_secs() / 2).is_multiple_of(2);
    // The test takes seconds: as many requests as the processor can do would take it from others.
    let pause = Duration::from_millis(5);
    let flapping = responding_by(move |_| if is_down() { 503 } else { 200 }, pause);
    let good = [(); 2].map(|()| responding(200, pause));
    let endpoints = [&flapping, &good[0], &good[1]].map(|upstream| format!("http://{}", upstream.address));
    let gateway = Logged::start(&endpoints, ", outlier: { ejection: 500ms }, balance: { policy: round_robin }");
    let (mut answers, mut ejections) = (Vec::new(), Vec::new());
    eventually("it is ejected several times", || {
        answers.extend(traffic_of(gateway.setup.address, &gateway.key, CLIENTS, 50));
        ejections = gateway.lines("ejected an endpoint");
        ejections.len() >= EJECTIONS
    });
    let ejected = format!("endpoint={}", flapping.address);
    assert!(ejections.iter().all(|line| line.contains(&ejected)), "{ejections:?}");
    let seconds: Vec<f64> = ejections
        .iter()
        .map(|line| line.split_once("seconds=").unwrap().1.split(' ').next().unwrap().parse().unwrap())
        .collect();
    // Twice the time, each give or take a fifth.
    assert!(seconds.windows(2).all(|pair| pair[1] > 1.3 * pair[0]), "{seconds:?}");
    let failed = answers.iter().filter(|answer| answer.status != Some(200)).count();
    // Three failures in a row eject it first, one each time that it returns; the other clients may have
    // a request there then.
    let times = seconds.len();
    let most = 3 + (times - 1) + times * (CLIENTS - 1);
    assert!(failed <= most, "{failed} of {} requests failed, in {times} ejections", answers.len());
}

#[test]
fn half_open_endpoint_is_ejected_for_its_timeouts() {
    const CLIENTS: usize = 4;
    // It accepts connections, reads requests, and answers nothing.
    let (half_open, good) = (Upstream::answering(|_, _| {}), responding(200, Duration::ZERO));
    let addresses = [half_open.address, good.address];
    let gateway = with_blocks(&addresses, EJECTED_FOR_LONG, "timeouts: { response: 2s }\n");
    let key = gateway.key().text;
    let mut answers = Vec::new();
    eventually("it is ejected", || {
        answers.extend(traffic_of(gateway.address, &key, CLIENTS, 2));
        gateway.metric(&labelled("endpoint_up", half_open.address)) == 0.0
    });
    assert_eq!(ejections(&gateway, "timeouts"), 1.0);
    let late = answers.iter().filter(|answer| answer.status == Some(504)).count();
    // The third ejects it; the other clients may have a request there then.
    assert!((3..3 + CLIENTS).contains(&late), "{late} of {}", answers.len());
    let before = half_open.count();
    assert_eq!(part_of(&traffic_of(gateway.address, &key, CLIENTS, 50), 200), 1.0);
    assert_eq!(half_open.count(), before);
}

#[test]
fn resets_after_the_head_eject_an_endpoint() {
    let resetting = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\nok").ok();
        stream.shutdown(std::net::Shutdown::Both).ok();
    });
    let good = responding(200, Duration::ZERO);
    let (gateway, key) = gateway(&[&resetting, &good], "").and_secret();
    let up = labelled("endpoint_up", resetting.address);
    eventually("it is ejected", || {
        traffic_of(gateway.address, &key, 2, 10);
        gateway.metric(&up) == 0.0
    });
    assert_eq!(ejections(&gateway, "gateway_errors"), 1.0);
}

/// Endpoint that resets each connection behind the head of its response, and the number of its requests.
fn resetting() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let has_end = |line: io::Result<String>| line.is_ok_and(|line| line.is_empty());
            // A probe sends nothing.
            if !BufReader::new(&stream).lines().any(has_end) {
                continue;
            }
            count.fetch_add(1, Ordering::SeqCst);
            (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\nok").ok();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
    });
    (address, requests)
}

#[test]
fn connections_reset_after_the_head_eject_an_endpoint_and_repeat_no_request() {
    let ((resetting, requests), good) = (resetting(), responding(200, Duration::ZERO));
    let gateway = with(&[resetting, good.address], EJECTED_FOR_LONG);
    let key = gateway.key().text;
    let mut answers = Vec::new();
    eventually("it is ejected", || {
        answers.extend(traffic_of(gateway.address, &key, 2, 10));
        gateway.metric(&labelled("endpoint_up", resetting)) == 0.0
    });
    assert_eq!(ejections(&gateway, "gateway_errors"), 1.0);
    assert_eq!(requests.load(Ordering::SeqCst) + good.count(), answers.len(), "none is sent twice");
}

#[test]
fn streams_reset_after_the_head_eject_an_endpoint() {
    let resetting = HyperOptions::http2().start(async |_| {
        let frames = [Ok(Frame::data(Bytes::from_static(b"some"))), Err(io::Error::other("it breaks off"))];
        Ok::<_, Infallible>(Response::new(StreamBody::new(stream::iter(frames))))
    });
    let good = HyperOptions::http2().start(ok);
    let gateway = with(&[resetting.address, good.address], &format!("protocol: http2, {EJECTED_FOR_LONG}"));
    let key = gateway.key().text;
    let mut answers = Vec::new();
    eventually("it is ejected", || {
        answers.extend(traffic_of(gateway.address, &key, 2, 10));
        gateway.metric(&labelled("endpoint_up", resetting.address)) == 0.0
    });
    assert_eq!(ejections(&gateway, "gateway_errors"), 1.0);
    // A reset may overtake the head, which is dropped with it: only then the request is sent again.
    let retries = gateway.metric("keygate_upstream_retries_total{upstream=\"default\"}");
    let sent = (resetting.count() + good.count()) as f64;
    assert_eq!(sent, answers.len() as f64 + retries, "none is sent twice after its head");
}

#[test]
fn stalling_and_invalid_responses_eject_an_endpoint() {
    const STALLING: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome";
    const INVALID: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx y: 1\r\n\r\nok";
    // Valid, and still refused: nothing was asked for.
    const SWITCHING: &[u8] = b"HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    for (response, reason) in [(STALLING, "timeouts"), (INVALID, "gateway_errors"), (SWITCHING, "gateway_errors")] {
        let failing = Upstream::answering(move |_, stream| drop(stream.write_all(response)));
        let good = responding(200, Duration::ZERO);
        let addresses = [failing.address, good.address];
        let gateway = with_blocks(&addresses, EJECTED_FOR_LONG, "timeouts: { response_idle: 1s }\n");
        let key = gateway.key().text;
        eventually("it is ejected", || {
            traffic_of(gateway.address, &key, 4, 4);
            gateway.metric(&labelled("endpoint_up", failing.address)) == 0.0
        });
        assert_eq!(ejections(&gateway, reason), 1.0, "{reason}");
    }
}

#[test]
fn failure_of_all_endpoints_is_logged_once_and_so_is_its_end() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let upstreams = [(); 4].map(|()| {
        let is_broken = Arc::clone(&is_broken);
        responding_by(move |_| if is_broken.load(Ordering::Relaxed) { 500 } else { 200 }, Duration::ZERO)
    });
    let endpoints = upstreams.each_ref().map(|upstream| format!("http://{}", upstream.address));
    let gateway = Logged::start(&endpoints, ", outlier: { ejection: 1h, max_ejection: 1h }");
    let mut client = gateway.setup.client();
    let panic = || gateway.metric("keygate_upstream_panic{upstream=\"default\"}");
    eventually("the upstream is in panic", || {
        assert_eq!(client.get("/", &gateway.key).status, 500, "requests still go");
        panic() == 1.0
    });
    let counts = || upstreams.each_ref().map(Upstream::count);
    let before = counts();
    eventually("requests go to all, also to those that are ejected", || {
        assert_eq!(client.get("/", &gateway.key).status, 500);
        counts().iter().zip(before).all(|(now, before)| *now > before)
    });
    let (begun, ended) = ("too many endpoints of the upstream fail", "enough endpoints of the upstream work again");
    assert_eq!((gateway.lines(begun).len(), gateway.lines(ended).len()), (1, 0));
    is_broken.store(false, Ordering::Relaxed);
    eventually("the panic is over", || {
        assert_eq!(client.get("/", &gateway.key).status, 200);
        panic() == 0.0
    });
    // The metric is set before the line is written.
    eventually("the end is logged", || gateway.lines(ended).len() == 1);
    assert_eq!(gateway.lines(begun).len(), 1);
}
