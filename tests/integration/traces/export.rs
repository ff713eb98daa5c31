//! Export: over HTTP and TLS, to collectors that fail, and never at the cost of a request.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use platform::tls::ServerTls;

use super::{ROUTES, gateway, servers};
use crate::support::collector::{rejecting, status};
use crate::support::{Client, Collector, Gateway, HyperOptions, Upstream, eventually, free_address};
use crate::tls::authority::Authority;

fn exported(gateway: &Gateway) -> f64 {
    gateway.metric("keygate_trace_spans_exported_total")
}

fn dropped(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!("keygate_trace_spans_dropped_total{{reason=\"{reason}\"}}"))
}

fn send(gateway: &Gateway, count: usize) {
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    // The limit of a key is far above.
    (0..count).for_each(|_| assert_eq!(client.get("/items/7", &key).status, 200));
}

#[test]
fn spans_are_counted_and_sent_over_one_connection() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let gateway = gateway(&upstream, &collector, "headers: { X-Scope: tenant-7 }");
    for batch in 1..=2 {
        send(&gateway, 3);
        eventually("the spans are exported", || exported(&gateway) == f64::from(batch * 6));
    }
    let received = collector.received();
    assert!(received.iter().all(|export| export.path == "/v1/traces"));
    for (name, value) in [
        ("content-type", "application/x-protobuf"),
        ("x-scope", "tenant-7"),
        ("host", &collector.address().to_string()),
    ] {
        assert!(received.iter().all(|export| export.headers[name] == value), "{name}");
    }
    assert_eq!(collector.connections(), 1);
    assert_eq!(["queue", "export", "rejected"].map(|reason| dropped(&gateway, reason)), [0.0; 3]);
}

#[test]
fn collector_with_tls_gets_the_token_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(), Authority::new());
    let issued = ours.certify(&["localhost", "127.0.0.1"]);
    let settings = crate::tls::authority::settings(vec![issued.write(dir.path(), "collector")]);
    let options = HyperOptions::http1().over_tls(ServerTls::open(&settings).unwrap().acceptor().config());
    let collector = Collector::answering(options, |_| status(200));
    std::fs::write(dir.path().join("token"), "Bearer of-the-collector\n").unwrap();
    let telemetry = |authority: &Authority, name: &str| {
        let ca = authority.write(&dir.path().join(name));
        let (address, token) = (collector.address(), dir.path().join("token"));
        format!(
            "telemetry: {{ traces: {{ endpoint: 'https://{address}', tls: {{ ca: {} }}, timeout: 1s, \
             headers: {{ authorization: {{ file: {} }} }} }} }}\n{ROUTES}",
            ca.display(),
            token.display()
        )
    };
    let upstream = Upstream::start();
    // The collector's certificate is not issued by the configured authority: neither spans nor the token are sent.
    let wrong = Gateway::with(&[upstream.address], &telemetry(&other, "other.pem"));
    send(&wrong, 1);
    eventually("the spans are dropped", || dropped(&wrong, "export") == 2.0);
    assert!(collector.received().is_empty());
    let gateway = Gateway::with(&[upstream.address], &telemetry(&ours, "ours.pem"));
    send(&gateway, 1);
    let spans = collector.wait_for(2);
    assert_eq!(servers(&spans).len(), 1);
    assert_eq!(collector.received()[0].headers["authorization"], "Bearer of-the-collector");
}

#[test]
fn changed_authority_of_the_collector_is_used_without_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new(), Authority::new());
    let issued = ours.certify(&["localhost", "127.0.0.1"]);
    let settings = crate::tls::authority::settings(vec![issued.write(dir.path(), "collector")]);
    let options = HyperOptions::http1().over_tls(ServerTls::open(&settings).unwrap().acceptor().config());
    let collector = Collector::answering(options, |_| status(200));
    let ca = other.write(&dir.path().join("ca.pem"));
    let telemetry = format!(
        "telemetry: {{ traces: {{ endpoint: 'https://{}', tls: {{ ca: {} }}, timeout: 1s }} }}\n{ROUTES}",
        collector.address(),
        ca.display()
    );
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], &telemetry);
    send(&gateway, 1);
    eventually("the spans are dropped", || dropped(&gateway, "export") == 2.0);
    ours.write(&ca);
    let mut sent = 2;
    eventually("the collector is verified by the new authority", || {
        send(&gateway, 1);
        sent += 2;
        eventually("the batch is taken or dropped", || {
            exported(&gateway) + dropped(&gateway, "export") == f64::from(sent)
        });
        exported(&gateway) > 0.0
    });
    assert!(!collector.received().is_empty());
}

#[test]
fn batch_is_retried_after_429_and_503() {
    let upstream = Upstream::start();
    let times = Arc::new(Mutex::new(Vec::new()));
    let arrived = Arc::clone(&times);
    let collector = Collector::answering(HyperOptions::http1(), move |number| {
        arrived.lock().unwrap().push(Instant::now());
        match number {
            0 => {
                let mut answer = status(429);
                answer.headers_mut().insert("retry-after", 1.into());
                answer
            }
            1 => status(503),
            _ => status(200),
        }
    });
    let gateway = gateway(&upstream, &collector, "");
    send(&gateway, 1);
    assert_eq!(collector.wait_for(2).len(), 2);
    let waited = times.lock().unwrap().windows(2).map(|two| two[1] - two[0]).next().unwrap();
    assert!(waited.as_secs() >= 1, "the collector has asked for a second: {waited:?}");
    let received = collector.received();
    assert_eq!(received.len(), 3);
    assert!(received.windows(2).all(|two| two[0].bytes == two[1].bytes), "it is the same batch");
    eventually("the spans are counted", || exported(&gateway) == 2.0);
    assert_eq!(dropped(&gateway, "export"), 0.0);
}

#[test]
fn spans_that_the_collector_does_not_take_are_counted() {
    let upstream = Upstream::start();
    let collector = Collector::answering(HyperOptions::http1(), |number| match number {
        0 => status(400),
        1 => rejecting(1),
        // More than there were: the count stays true.
        2 => rejecting(100),
        _ => status(200),
    });
    let gateway = gateway(&upstream, &collector, "");
    send(&gateway, 1);
    eventually("the batch is refused", || dropped(&gateway, "export") == 2.0);
    assert_eq!(collector.received().len(), 1, "it would be refused again");
    send(&gateway, 1);
    eventually("one span is rejected", || dropped(&gateway, "rejected") == 1.0);
    assert_eq!(exported(&gateway), 1.0);
    send(&gateway, 1);
    eventually("both spans are rejected", || dropped(&gateway, "rejected") == 3.0);
    send(&gateway, 1);
    eventually("spans are taken again", || exported(&gateway) == 3.0);
}

#[test]
fn collector_that_is_away_costs_spans_and_no_request() {
    let upstream = Upstream::start();
    let telemetry =
        format!("telemetry: {{ traces: {{ endpoint: 'http://{}', timeout: 100ms, queue: 16 }} }}\n", free_address());
    let gateway = Gateway::with(&[upstream.address], &format!("workers: 1\n{telemetry}{ROUTES}"));
    send(&gateway, 100);
    let lost = || dropped(&gateway, "export") + dropped(&gateway, "queue");
    eventually("all spans are dropped", || lost() == 200.0);
    assert_eq!(exported(&gateway), 0.0);
    assert_eq!(gateway.records().len(), 100);
}

#[test]
fn collector_that_never_answers_holds_up_neither_requests_nor_the_stop() {
    // The kernel accepts connections; nothing is ever read.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Upstream::start();
    let telemetry = format!(
        "telemetry: {{ traces: {{ endpoint: 'http://{}', timeout: 60s, queue: 16 }} }}\n",
        silent.local_addr().unwrap()
    );
    let gateway = Gateway::with(&[upstream.address], &format!("workers: 1\n{telemetry}{ROUTES}"));
    send(&gateway, 100);
    eventually("the queue drops", || dropped(&gateway, "queue") > 0.0);
    // Longer than this, it would wait for the time-out of the batch.
    let begun = Instant::now();
    drop(gateway);
    assert!(begun.elapsed().as_secs() < 45, "{:?}", begun.elapsed());
}

#[test]
fn last_spans_are_sent_before_the_gateway_has_stopped() {
    let upstream = Upstream::start();
    let is_away = Arc::new(AtomicBool::new(true));
    let answers = Arc::new(Mutex::new(0));
    let (away, count) = (Arc::clone(&is_away), Arc::clone(&answers));
    let collector = Collector::answering(HyperOptions::http1(), move |_| {
        *count.lock().unwrap() += 1;
        status(if away.load(Ordering::SeqCst) { 503 } else { 200 })
    });
    let gateway = gateway(&upstream, &collector, "");
    send(&gateway, 5);
    eventually("a batch is refused", || *answers.lock().unwrap() > 0);
    is_away.store(false, Ordering::SeqCst);
    send(&gateway, 5);
    drop(gateway);
    assert_eq!(collector.spans().len(), 20);
}
