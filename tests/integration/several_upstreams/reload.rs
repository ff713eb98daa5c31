//! Upstreams that come, go and change by reload, while requests go on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use super::{blocks, endpoints, of_endpoint};
use crate::support::{Client, GatedUpstream, Gateway, SetOnDrop, Upstream, eventually, head, until};

/// Sends requests on some connections while `meanwhile` runs; each must be answered with 200.
fn under_load(gateway: &Gateway, path: &str, key: &str, meanwhile: impl FnOnce()) {
    let (is_over, address) = (AtomicBool::new(false), gateway.address);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut client, mut count) = (Client::connect(address), 0);
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(client.get(path, key).status, 200);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let over = SetOnDrop(&is_over);
        meanwhile();
        drop(over);
        for client in clients {
            assert!(client.join().expect("no request fails") > 0);
        }
    });
}

/// Changes the configuration, and waits until it is applied.
fn reconfigure(gateway: &Gateway, change: impl FnOnce(&str) -> String) {
    let time = || gateway.metric("keygate_config_last_reload_success_timestamp_seconds");
    let before = time();
    gateway.reconfigure(change);
    eventually("the reload applies", || time() > before);
}

#[test]
fn upstreams_come_and_go_without_a_failed_request() {
    let (store, reports) = (Upstream::start(), Upstream::start());
    let one = blocks(&[("store", endpoints(&[store.address]))]);
    let both = blocks(&[("reports", endpoints(&[reports.address])), ("store", endpoints(&[store.address]))]);
    let (gateway, key) = Gateway::with(&[], &one).and_secret();
    let count = |upstream, endpoint| of_endpoint(&gateway, "endpoint_up", upstream, endpoint);
    under_load(&gateway, "/store/", &key, || {
        let mut client = Client::connect(gateway.address);
        for _ in 0..3 {
            assert_eq!(client.get("/reports/", &key).code(), "not_found");
            reconfigure(&gateway, |text| text.replace(&one, &both));
            assert_eq!(client.get("/reports/", &key).status, 200);
            assert_eq!(count("reports", reports.address), 1.0);
            reconfigure(&gateway, |text| text.replace(&both, &one));
        }
    });
    assert_eq!((reports.count(), gateway.metric("keygate_config_reload_failures_total")), (3, 0.0));
    eventually("only the counters of the removed upstream are left", || {
        let metrics = String::from_utf8(Client::connect(gateway.admin).get("/metrics", "").body).unwrap();
        let mut removed = metrics.lines().filter(|line| line.contains("upstream=\"reports\""));
        removed.all(|line| line.contains("_total{"))
    });
}

#[test]
fn route_changes_its_upstream() {
    let (one, two) = (Upstream::start(), Upstream::start());
    let both = blocks(&[("one", endpoints(&[one.address])), ("two", endpoints(&[two.address]))]);
    let (gateway, key) = Gateway::with(&[], &both).and_secret();
    under_load(&gateway, "/one/", &key, || {
        eventually("the first upstream has requests", || one.count() > 10);
        assert_eq!(two.count(), 0);
        let moved = both.replace("path: '/one/**', upstream: one", "path: '/one/**', upstream: two");
        reconfigure(&gateway, |text| text.replace(&both, &moved));
        eventually("the second upstream has the requests", || two.count() > 10);
        eventually("the first upstream has no more requests", || {
            let (of_one, of_two) = (one.count(), two.count());
            eventually("requests go on", || two.count() > of_two + 20);
            one.count() == of_one
        });
    });
}

#[test]
fn upstream_that_stays_keeps_its_connections_and_ejections() {
    let failing = Upstream::answering(|_, stream| {
        stream.write_all(b"HTTP/1.1 500 x\r\ncontent-length: 2\r\n\r\nok").ok();
    });
    let (good, other) = (Upstream::start(), Upstream::start());
    let outlier = "outlier: { ejection: 1h, max_ejection: 1h }";
    let stays = ("stays", format!("{}, {outlier}", endpoints(&[failing.address, good.address])));
    let before = blocks(std::slice::from_ref(&stays));
    let after = blocks(&[("other", endpoints(&[other.address])), stays]);
    let (gateway, key) = Gateway::with(&[], &format!("{before}workers: 1\n")).and_secret();
    let mut client = Client::connect(gateway.address);
    eventually("one is ejected", || {
        client.get("/stays/", &key);
        of_endpoint(&gateway, "endpoint_up", "stays", failing.address) == 0.0
    });
    assert_eq!(client.get("/stays/", &key).status, 200);
    let counts = || (good.connections(), failing.count());
    let kept = counts();
    // The place of the upstream in the list changes, too.
    reconfigure(&gateway, |text| text.replace(&before, &after));
    for _ in 0..10 {
        assert_eq!(client.get("/stays/", &key).status, 200);
    }
    assert_eq!(client.get("/other/", &key).status, 200);
    assert_eq!((counts(), of_endpoint(&gateway, "endpoint_up", "stays", failing.address)), (kept, 0.0));
}

/// Upstream whose only connection stays open, and that reports its end.
fn start_single_connection() -> (std::net::SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        for line in reader.lines().map_while(Result::ok) {
            if line.is_empty() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
            }
        }
        ended.send(()).ok();
    });
    (address, has_ended)
}

#[test]
fn idle_connections_to_a_removed_upstream_close_although_requests_go_on() {
    let store = GatedUpstream::start();
    let (address, has_ended) = start_single_connection();
    let one = blocks(&[("store", endpoints(&[store.address()]))]);
    let both = blocks(&[("store", endpoints(&[store.address()])), ("removed", endpoints(&[address]))]);
    let (gateway, key) = Gateway::with(&[], &format!("{both}workers: 1\n")).and_secret();
    assert_eq!(Client::connect(gateway.address).get("/removed/", &key).status, 200);
    assert!(has_ended.try_recv().is_err(), "the connection is kept");
    // A request of the configuration before is in flight all the while.
    let mut slow = Client::connect(gateway.address);
    slow.send(head("GET", "/store/", &key, &[], 0));
    eventually("the request is at the other upstream", || store.count() == 1);
    reconfigure(&gateway, |text| text.replace(&both, &one));
    until("the connection closes", || has_ended.try_recv().ok());
    store.open();
    assert_eq!(slow.response().status, 200);
}

#[test]
fn short_form_is_the_upstream_named_default() {
    let upstream = Upstream::start();
    let short = format!("upstream: {{ {} }}\n", endpoints(&[upstream.address]));
    let long = format!("upstreams: {{ default: {{ {} }} }}\n", endpoints(&[upstream.address]));
    let (gateway, key) = Gateway::with(&[], &format!("{short}workers: 1\n")).and_secret();
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/", &key).status, 200);
    reconfigure(&gateway, |text| text.replace(&short, &long));
    assert_eq!(client.get("/", &key).status, 200);
    assert_eq!(upstream.connections(), 1, "the connection is kept");
}
