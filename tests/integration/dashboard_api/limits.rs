//! Limits of what one person may ask of the dashboard: requests, and reads of the audit journal.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::fixture::{API, SessionUser, Setup};
use crate::support::{Client, eventually, lenient};

#[test]
fn requests_of_a_person_are_limited() {
    let setup = Setup::with_limit("{ requests: 6, per: 1h, burst: 4 }");
    let (ada, bob) = (setup.admin(), setup.member());
    let (_, key) = ada.key("leaked");
    // The dashboard and its API share the bucket, and so do all sessions of the person.
    ada.page("/settings/keys");
    let other = ada.in_another_session();
    assert_eq!((ada.get("/keys").status, other.get("/org").status), (200, 200));
    for user in [&ada, &other] {
        let refused = user.get("/keys");
        assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limited"));
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=600).contains(&wait), "{wait}");
    }
    let headers = [("Cookie", ada.cookie.as_str())];
    let page = Client::connect(setup.address()).request("GET", "/settings/keys", "", &headers, b"");
    assert_eq!(page.status, 429);
    assert!(page.header("retry-after").is_some());
    assert!(String::from_utf8(page.body).unwrap().contains("Too many requests"));
    assert!((setup.gateway.metric("keygate_dashboard_rate_limited_total") - 3.0).abs() < 0.5);
    assert_eq!(bob.get("/keys").status, 200, "another person is not limited");
    // A bucket that others have used up does not keep a person from revoking.
    for what in ["disable", "revoke"] {
        assert_eq!(ada.send("POST", &format!("/keys/{key}/{what}"), None).status, 200, "{what}");
    }
    assert_eq!(ada.send("DELETE", "/session", None).status, 204);
}

/// Sends a request for a page of uses and does not wait for its response.
fn begin(setup: &Setup, user: &SessionUser<'_>, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(setup.address()).unwrap();
    let head =
        format!("GET {API}/keys/{key}/requests?outcome=revoked HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", user.cookie);
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Returns `true` if a response that begins so has arrived.
fn has_begun_with(mut stream: &TcpStream, expected: &[u8]) -> bool {
    let mut begin = vec![0; expected.len()];
    stream.set_nonblocking(true).unwrap();
    stream.read_exact(&mut begin).is_ok() && begin == expected
}

/// 300 requests for a page of uses, of which none waits for its response, delay neither another person nor requests.
#[test]
fn abandoned_reads_stop_and_delay_no_other_person() {
    let limits = "limits: { key: { requests: 1000000, per: 1h } }\n";
    let setup = Setup::with("{ requests: 1000000, per: 1m }", limits);
    let (ada, other) = (setup.member(), setup.other_org("globex"));
    let eve = setup.user_of(other, "eve@example.com", &[]);
    let ((key, id), (_, of_eve)) = (ada.key("busy"), eve.key("idle"));
    let uses = std::env::var("KEYGATE_ABANDONED_USES").map_or(2_000, |number| number.parse().unwrap());
    let mut client = Client::connect(setup.address());
    for _ in 0..uses {
        assert_eq!(client.get("/x", &key).status, 200);
    }
    let abandoned: Vec<TcpStream> = (0..300).map(|_| begin(&setup, &ada, &id)).collect();
    let begun = Instant::now();
    assert_eq!(eve.get(&format!("/keys/{of_eve}/requests")).status, 200);
    assert!(begun.elapsed() < lenient(Duration::from_secs(10)), "{:?}", begun.elapsed());
    let read = abandoned.iter().filter(|stream| has_begun_with(stream, b"HTTP/1.1 200")).count();
    assert!(read <= 20, "{read} reads of one person came before the only one of another");
    drop(abandoned);
    eventually("the queue is empty: what was abandoned has left it", || {
        let debug = format!("{:?}", setup.gateway.management());
        debug.contains("ReadQueue { reading: 0, waiting: 0 }")
    });
    assert_eq!(ada.get(&format!("/keys/{id}/requests")).status, 200);
}
