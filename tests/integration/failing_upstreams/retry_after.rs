//! Endpoints that ask for a pause with `Retry-After` (RFC 9110, section 10.2.3).

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::logged::Logged;
use super::retries::{ALL, NO_EJECTION, REQUESTS, gateway, good, statuses};
use super::{PLENTY, labelled, responding};
use crate::support::upstream_blocks::endpoints;
use crate::support::{Client, Gateway, Upstream, eventually};

/// Upstream that answers `/busy` with 503 and a time, and everything else with 200.
fn busy_for_some() -> Upstream {
    Upstream::answering(|request, stream| {
        let response: &[u8] = match request.path() {
            "/busy" => b"HTTP/1.1 503 x\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n",
            _ => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        };
        stream.write_all(response).ok();
    })
}

/// The two requests ask each of the four healthy endpoints, which answer with 503: each has one try and one retry.
#[test]
fn pause_that_one_client_causes_sends_no_request_to_an_ejected_endpoint() {
    let (failing, healthy) = (responding(500, Duration::ZERO), [(); 4].map(|()| busy_for_some()));
    let addresses: Vec<_> = healthy.iter().map(|upstream| upstream.address).chain([failing.address]).collect();
    let outlier = "balance: { policy: round_robin }, outlier: { ejection: 1h, max_ejection: 1h }";
    let upstream = format!("{}, {outlier}, retries: {{ {ALL} }}", endpoints(&addresses));
    let (gateway, key) = Gateway::with(&[], &format!("{PLENTY}workers: 1\nupstream: {{ {upstream} }}\n")).and_secret();
    let mut client = Client::connect(gateway.address);
    eventually("the failing endpoint is ejected", || {
        client.get("/", &key);
        gateway.metric(&labelled("endpoint_up", failing.address)) == 0.0
    });
    let (before, of_healthy) = (failing.count(), healthy.each_ref().map(Upstream::count));
    for _ in 0..2 {
        assert_eq!(client.get("/busy", &key).status, 503);
    }
    let asked: usize = healthy.iter().zip(of_healthy).map(|(upstream, before)| upstream.count() - before).sum();
    assert_eq!(asked, 4, "pauses that were asked for");
    let mut other = Client::connect(gateway.address);
    let answered = (0..300).filter(|_| other.get("/", &key).status == 200).count();
    assert_eq!((answered, failing.count() - before), (300, 0));
}

#[test]
fn pauses_are_of_at_most_half_of_the_endpoints_and_shown() {
    let upstreams = [(); 5].map(|()| busy_for_some());
    let urls = upstreams.each_ref().map(|upstream| format!("http://{}", upstream.address));
    let gateway = Logged::start(&urls, &format!(", {NO_EJECTION}, retries: {{ {ALL} }}"));
    let mut client = gateway.setup.client();
    for _ in 0..40 {
        assert_eq!(client.get("/busy", &gateway.key).status, 503);
    }
    let is_paused = |upstream: &&Upstream| gateway.metric(&labelled("endpoint_paused", upstream.address)) == 1.0;
    let mut paused = Vec::new();
    eventually("two of five are paused in the metrics", || {
        paused = upstreams.iter().filter(is_paused).collect();
        paused.len() == 2
    });
    for upstream in &upstreams {
        let is_paused = paused.iter().any(|paused| paused.address == upstream.address);
        let shown = gateway.shown(upstream.address);
        assert_eq!((shown["state"].as_str(), shown["paused_until"].is_string()), (Some("up"), is_paused), "{shown}");
    }
    let before: Vec<_> = paused.iter().map(|upstream| upstream.count()).collect();
    assert!((0..100).all(|_| client.get("/", &gateway.key).status == 200));
    let after: Vec<_> = paused.iter().map(|upstream| upstream.count()).collect();
    assert_eq!(before, after, "the others take the requests");
}

/// Also of a single endpoint, whose requests go on.
#[test]
fn endpoint_that_asks_for_a_pause_gets_no_retry() {
    let count = AtomicUsize::new(0);
    let busy = Upstream::answering(move |_, stream| match count.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => drop(stream.write_all(b"HTTP/1.1 503 x\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n")),
        _ => drop(stream.shutdown(Shutdown::Both)),
    });
    let (gateway, key) = gateway(&[&busy], ALL, "").and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!([(); 2].map(|()| client.get("/", &key).status), [503; 2]);
    // The connection is stale: without the pause the request would be sent again, to the same endpoint.
    assert_eq!((client.get("/", &key).status, busy.count()), (502, 3));
}

/// Upstream that answers with 503 and this `Retry-After`, twice, and then with 200.
fn busy_twice(retry_after: impl Fn() -> String + Send + Sync + 'static) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_, stream| {
        let response = match count.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => format!("HTTP/1.1 503 x\r\nretry-after: {}\r\ncontent-length: 0\r\n\r\n", retry_after()),
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned(),
        };
        stream.write_all(response.as_bytes()).ok();
    })
}

/// The time in a minute, as a date of HTTP.
fn in_a_minute() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 60;
    let time = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[test]
fn endpoint_that_asks_for_a_pause_is_avoided() {
    let forms: [fn() -> String; 2] = [|| "30".to_owned(), in_a_minute];
    for retry_after in forms {
        let (busy, good) = (busy_twice(retry_after), good());
        let gateway = gateway(&[&busy, &good], ALL, "");
        assert_eq!(statuses(&gateway, "GET", "/", b""), [200; REQUESTS]);
        assert_eq!((busy.count(), good.count()), (2, REQUESTS), "{}", retry_after());
    }
}

#[test]
fn endpoint_has_requests_again_after_its_pause() {
    let (busy, good) = (busy_twice(|| "1".to_owned()), good());
    let (gateway, key) = gateway(&[&busy, &good], ALL, "").and_secret();
    let mut client = Client::connect(gateway.address);
    eventually("the pause is over", || {
        assert_eq!(client.get("/", &key).status, 200);
        busy.count() > 2
    });
}

#[test]
fn request_without_another_endpoint_sees_the_503_with_its_time() {
    let busy = || {
        Upstream::answering(|_, stream| {
            stream.write_all(b"HTTP/1.1 503 x\r\nretry-after: 30\r\ncontent-length: 4\r\n\r\nbusy").ok();
        })
    };
    let alone = busy();
    let both = [busy(), busy()];
    // Of two, the second request pauses one: then none is sent again, and each still goes to the other one.
    for (upstreams, tries) in [(vec![&alone], REQUESTS), (both.iter().collect(), REQUESTS + 2)] {
        let (gateway, key) = gateway(&upstreams, ALL, "").and_secret();
        let mut client = Client::connect(gateway.address);
        for _ in 0..REQUESTS {
            let response = client.get("/", &key);
            assert_eq!((response.status, response.header("retry-after")), (503, Some("30")));
            assert_eq!(response.body, b"busy");
        }
        assert_eq!(upstreams.iter().map(|upstream| upstream.count()).sum::<usize>(), tries);
    }
}
