//! Attempts to connect: what they count for, and how long they last.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::logged::Logged;
use super::{labelled, responding, tls};
use crate::support::hyper_upstream::ok;
use crate::support::{Client, Gateway, HyperOptions, eventually};
use crate::tls::authority::Authority;

/// Every request is a new connection, whose handshake takes a while: were that counted, the sum would be larger than
/// what the client sees without it.
#[test]
fn connecting_is_no_latency() {
    const HANDSHAKE: Duration = Duration::from_millis(400);
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let ca = authority.write(&dir.path().join("ca.pem"));
    for (options, protocol) in [(HyperOptions::http1(), "http1"), (HyperOptions::http2(), "http2")] {
        let options = options.over_tls(&tls::server(dir.path(), &authority, "127.0.0.1"));
        let upstream = options.delayed(HANDSHAKE).start(ok);
        let block = format!(
            "upstream: {{ endpoints: ['https://{}'], protocol: {protocol}, tls: {{ ca: '{}' }} }}\n",
            upstream.address,
            ca.display()
        );
        let gateway = Gateway::with(&[], &block);
        let (key, begun) = (gateway.key().text, Instant::now());
        assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
        let rest = begun.elapsed() - HANDSHAKE;
        let latency = |what: &str| gateway.metric(&labelled(&format!("latency_seconds_{what}"), upstream.address));
        assert_eq!(latency("count"), 1.0, "{protocol}");
        assert!(latency("sum") <= rest.as_secs_f64(), "{protocol}: {} s, of {rest:?}", latency("sum"));
    }
}

/// Sets the number of file descriptors that a process may have.
fn limit_descriptors(process: u32, limit: &str) {
    let limited = Command::new("prlimit").args(["--pid", &process.to_string(), &format!("--nofile={limit}:")]).status();
    assert!(limited.unwrap().success());
}

/// Soft limit of the descriptors of a process.
fn descriptors(process: u32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn endpoint_is_not_blamed_for_a_gateway_without_descriptors() {
    let upstreams = [responding(200, Duration::ZERO), responding(200, Duration::ZERO)];
    let endpoints = upstreams.each_ref().map(|upstream| format!("http://{}", upstream.address));
    let gateway = Logged::start(&endpoints, "");
    let (mut client, process) = (gateway.setup.client(), gateway.running.id());
    // The gateway has accepted the connection, and has none to the upstream.
    assert_eq!(client.get("/", "").status, 401);
    let before = descriptors(process);
    limit_descriptors(process, "0");
    let response = client.get("/", &gateway.key);
    limit_descriptors(process, &before);
    assert_eq!((response.status, response.code().as_str()), (503, "upstream_unavailable"));
    for upstream in &upstreams {
        let labels = format!("endpoint=\"{}\",result=\"connect_failed\",upstream=\"default\"", upstream.address);
        assert_eq!(gateway.metric(&format!("keygate_upstream_requests_total{{{labels}}}")), 1.0);
        assert_eq!(gateway.metric(&labelled("endpoint_up", upstream.address)), 1.0);
        assert_eq!(gateway.shown(upstream.address)["state"], "up");
    }
    assert_eq!(gateway.lines("cannot be reached"), Vec::<String>::new());
    assert_eq!(client.get("/", &gateway.key).status, 200);
}

/// An endpoint that accepts connections and never answers the handshake of TLS: a probe that had no
/// time-out would be the last.
#[test]
fn probe_has_the_time_out_of_connecting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, accepted) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            open.push(stream);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let good = responding(200, Duration::ZERO);
    let block = format!("upstream: {{ endpoints: ['https://{address}', 'http://{}'] }}\n", good.address);
    let (gateway, key) = Gateway::with(&[], &format!("{block}timeouts: {{ connect: 200ms }}\n")).and_secret();
    let mut client = Client::connect(gateway.address);
    eventually("a request finds it out", || {
        assert_eq!(client.get("/", &key).status, 200);
        gateway.metric(&labelled("endpoint_up", address)) == 0.0
    });
    let before = accepted.load(Ordering::SeqCst);
    eventually("it is probed again and again", || accepted.load(Ordering::SeqCst) >= before + 2);
    assert_eq!(gateway.metric(&labelled("endpoint_up", address)), 0.0);
}
