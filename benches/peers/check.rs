//! Check that a peer does the job before it is measured: it refuses requests without a key and with an unknown one,
//! replaces the client's identity headers, keeps the key to itself, and limits the rate.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::job::Job;
use super::{Frontend, Peer, Proxy, Setup};
use crate::load::ECHOED;

/// Requests an hour for the check.
const LIMIT: u32 = 3;

/// # Panics
/// When the peer does not do the job.
pub(crate) fn check(peer: Peer, job: &Job, setup: &Setup<'_>) {
    let proxy = Proxy::start(peer, job, &Setup { limit: LIMIT, frontend: Frontend::Plain, wrapper: &[], ..*setup });
    let authorization = format!("Authorization: Bearer {}\r\n", job.keys[0]);
    let expect = |what: &str, fields: &str, status: u16| {
        let answer = exchange(proxy.address, fields);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{}, {what}: {answer}", peer.name());
        answer
    };
    if !peer.does_the_job() {
        expect("a request", &authorization, 200);
        return;
    }
    expect("without a key", "", 401);
    expect("with an unknown key", "Authorization: Bearer sk_live_unknown\r\n", 401);
    let forged = format!("{authorization}X-User-Id: forged\r\nx-org-id: forged\r\n");
    // The body of the answer is the head that the upstream received.
    let echo = expect("with forged identity", &forged, 200).to_ascii_lowercase();
    assert!(echo.contains("x-user-id: ") && echo.contains("x-org-id: "), "{}: {echo}", peer.name());
    assert!(!echo.contains("forged") && !echo.contains("bearer"), "{}: {echo}", peer.name());
    expect("the second request", &authorization, 200);
    expect("the third request", &authorization, 200);
    expect("over the limit", &authorization, 429);
}

/// Sends one request on a connection of its own, and returns the whole answer.
fn exchange(proxy: SocketAddr, fields: &str) -> String {
    let mut stream = TcpStream::connect(proxy).unwrap();
    let request = format!("GET {ECHOED} HTTP/1.1\r\nHost: bench.test\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
