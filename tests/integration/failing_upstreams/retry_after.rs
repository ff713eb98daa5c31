//! Endpoints that ask for a pause with `Retry-After` (RFC 9110, section 10.2.3).

use std::io::Write as _;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::retries::{ALL, REQUESTS, gateway, good, statuses};
use crate::support::{Client, Upstream, eventually};

/// Also of a single endpoint, whose requests go on.
#[test]
fn endpoint_that_asks_for_a_pause_gets_no_retry() {
    let count = AtomicUsize::new(0);
    let busy = Upstream::answering(move |_, stream| match count.fetch_add(1, Ordering::SeqCst) {
        0 => drop(stream.write_all(b"HTTP/1.1 503 x\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n")),
        _ => drop(stream.shutdown(Shutdown::Both)),
    });
    let gateway = gateway(&[&busy], ALL, "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 503);
    // The connection is stale: without the pause the request would be sent again, to the same endpoint.
    assert_eq!((client.get("/", &key).status, busy.count()), (502, 2));
}

/// Upstream that answers with 503 and this `Retry-After`, once, and then with 200.
fn busy_once(retry_after: impl Fn() -> String + Send + Sync + 'static) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_, stream| {
        let response = match count.fetch_add(1, Ordering::SeqCst) {
            0 => format!("HTTP/1.1 503 x\r\nretry-after: {}\r\ncontent-length: 0\r\n\r\n", retry_after()),
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
        let (busy, good) = (busy_once(retry_after), good());
        let gateway = gateway(&[&busy, &good], ALL, "");
        assert_eq!(statuses(&gateway, "GET", "/", b""), [200; REQUESTS]);
        assert_eq!((busy.count(), good.count()), (1, REQUESTS), "{}", retry_after());
    }
}

#[test]
fn endpoint_has_requests_again_after_its_pause() {
    let (busy, good) = (busy_once(|| "1".to_owned()), good());
    let gateway = gateway(&[&busy, &good], ALL, "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    eventually("the pause is over", || {
        assert_eq!(client.get("/", &key).status, 200);
        busy.count() > 1
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
    // Of two, both have asked for a pause after the first request: then none is sent again, and each still goes to one.
    for (upstreams, tries) in [(vec![&alone], REQUESTS), (both.iter().collect(), REQUESTS + 1)] {
        let gateway = gateway(&upstreams, ALL, "");
        let key = gateway.key().text;
        let mut client = Client::connect(gateway.address);
        for _ in 0..REQUESTS {
            let response = client.get("/", &key);
            assert_eq!((response.status, response.header("retry-after")), (503, Some("30")));
            assert_eq!(response.body, b"busy");
        }
        assert_eq!(upstreams.iter().map(|upstream| upstream.count()).sum::<usize>(), tries);
    }
}
