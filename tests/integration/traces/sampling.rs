//! Sampling: which requests are exported.

use std::io::Write as _;

use super::{TRUSTED, gateway_with, parent_at, servers, traceparent};
use crate::support::{Client, Collector, Upstream};

/// An upstream that fails when it is asked to.
fn upstream() -> Upstream {
    Upstream::answering(|received, stream| {
        let status = if received.line.contains("fail") { "500 x" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
        stream.write_all(answer.as_bytes()).unwrap();
    })
}

#[test]
fn without_a_ratio_only_refusals_and_errors_are_exported() {
    let (upstream, collector) = (upstream(), Collector::start());
    let gateway = gateway_with(&upstream, &collector, "ratio: 0", "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/items/ok", &key).status, 200);
    assert_eq!(parent_at(&upstream.last()).2, "00", "the upstream need not record it, either");
    assert_eq!(client.get("/items/fail", &key).status, 500);
    assert_eq!(client.get("/secret", &key).status, 403);
    assert_eq!(client.get("/nothing", &key).status, 404);
    assert_eq!(client.get("/items/ok", "").status, 401);
    assert_eq!(client.get("/items/ok", &key).status, 200);
    // Dropped, the gateway sends what it has: there is no more to come.
    drop(gateway);
    let spans = collector.spans();
    let shown = |name| servers(&spans).iter().map(|span| span.get(name).to_owned()).collect::<Vec<_>>();
    assert_eq!(shown("http.response.status_code"), ["500", "403", "404", "401"]);
    assert_eq!(shown("error.type"), ["500", "insufficient_scope", "not_found", "unauthenticated"]);
    assert_eq!(spans.len(), 5, "the failed request has reached the upstream");
}

#[test]
fn trusted_caller_decides_whatever_the_ratio_is() {
    for (flags, ratio, count) in [("01", "0", 2), ("00", "1", 0)] {
        let (upstream, collector) = (upstream(), Collector::start());
        let gateway = gateway_with(&upstream, &collector, &format!("ratio: {ratio}"), TRUSTED);
        let key = gateway.key().text;
        let parent = traceparent(flags);
        Client::connect(gateway.address).request("GET", "/items/7", &key, &[("traceparent", &parent)], b"");
        assert_eq!(parent_at(&upstream.last()).2, flags);
        drop(gateway);
        assert_eq!(collector.spans().len(), count, "{flags}");
    }
}

#[test]
fn ratio_chooses_among_the_traces_that_begin_here() {
    let (upstream, collector) = (upstream(), Collector::start());
    let gateway = gateway_with(&upstream, &collector, "ratio: 0.5", "");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    (0..200).for_each(|_| assert_eq!(client.get("/items/7", &key).status, 200));
    drop(gateway);
    let sampled = servers(&collector.spans()).len();
    // Seven standard deviations around a hundred.
    assert!((50..150).contains(&sampled), "{sampled}");
    let asked = upstream.received().iter().filter(|received| parent_at(received).2 == "01").count();
    assert_eq!(asked, sampled, "the upstream records the same traces");
}
