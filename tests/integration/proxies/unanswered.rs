//! A decision that does not come is a refusal, never an admission.

use std::io::Write as _;
use std::net::TcpStream;

use super::{Kind, Proxy, upstream};
use crate::support::upstream::Received;
use crate::support::{Upstream, free_address, head, until};

/// Answers that are no decision, by name.
const NO_DECISIONS: [(&str, &str); 6] = [
    ("nothing", ""),
    ("another protocol", "220 mail.example ESMTP\r\n\r\n"),
    ("half a head", "HTTP/1.1 200 OK\r\nX-User-Id: forged\r\n"),
    ("an error", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"),
    ("a redirection", "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"),
    ("an interim response", "HTTP/1.1 100 Continue\r\n\r\n"),
];

#[track_caller]
fn assert_refused(kind: Kind, name: &str, proxy: &Proxy, upstream: &Upstream) {
    for method in ["GET", "POST"] {
        let mut client = proxy.client();
        client.send(head(method, "/plain", "good", &[], 0));
        // Caddy passes an interim response of the peer on.
        let status = until("a response", || Some(client.head().unwrap().0).filter(|status| *status >= 200));
        println!("{kind:?}: {name}: {status}");
        assert!(status >= 300, "{kind:?}: {name}: {status}");
    }
    assert_eq!(upstream.count(), 0, "{kind:?}: {name}");
}

#[test]
fn peer_that_is_gone_is_a_refusal() {
    for kind in Kind::all() {
        let upstream = upstream();
        let proxy = Proxy::start(kind, free_address(), upstream.address);
        assert_refused(kind, "gone", &proxy, &upstream);
    }
}

#[test]
fn answer_that_is_no_decision_is_a_refusal() {
    for kind in Kind::all() {
        for (name, answer) in NO_DECISIONS {
            let upstream = upstream();
            let peer = Upstream::answering(move |_: &Received, stream: &mut TcpStream| {
                stream.write_all(answer.as_bytes()).ok();
                stream.shutdown(std::net::Shutdown::Both).ok();
            });
            let proxy = Proxy::start(kind, peer.address, upstream.address);
            assert_refused(kind, name, &proxy, &upstream);
        }
    }
}

/// A peer that accepts and is silent: each file has a time-out, except that of Traefik, whose own is half a minute.
#[test]
fn peer_that_is_silent_is_a_refusal_in_time() {
    std::thread::scope(|scope| {
        for kind in Kind::all().into_iter().filter(|kind| *kind != Kind::Traefik) {
            scope.spawn(move || {
                let (upstream, peer) = (upstream(), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
                let proxy = Proxy::start(kind, peer.local_addr().unwrap(), upstream.address);
                assert_refused(kind, "silent", &proxy, &upstream);
            });
        }
    });
}
