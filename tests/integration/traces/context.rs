//! The trace of a request, from hop to hop.

use super::{SPAN, TRACE, TRUSTED, clients, gateway, gateway_with, parent_at, servers, traceparent};
use crate::support::{Client, Collector, Gateway, Upstream};

#[test]
fn request_is_one_trace_from_the_gateway_to_the_upstream() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let (gateway, key) = gateway(&upstream, &collector, "service: edge").and_key();
    let response = Client::connect(gateway.address).get("/items/7?page=2", &key.text);
    assert_eq!(response.status, 200);
    let spans = collector.wait_for(2);
    let (servers, clients) = (servers(&spans), clients(&spans));
    let ([server], [client]) = (&servers[..], &clients[..]) else { panic!("{spans:?}") };
    assert_eq!((client.trace_id(), client.parent()), (server.trace_id(), server.id()));
    assert_eq!(server.parent(), "", "the trace begins here");
    assert_eq!(parent_at(&upstream.last()), (server.trace_id(), client.id(), "01".to_owned()));
    assert_eq!((server.span.name.as_str(), client.span.name.as_str()), ("GET /items/{id}", "GET"));
    let request_id = response.header("x-request-id").unwrap();
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/items/{id}"),
        ("url.path", "/items/7"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("server.address", "gateway.test"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("keygate.key.id", key.id.as_str()),
        ("keygate.org.id", &key.org.to_string()),
        ("keygate.request.id", request_id),
        ("error.type", ""),
    ] {
        assert_eq!(server.get(name), value, "{name}");
    }
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("server.address", "127.0.0.1"),
        ("server.port", &upstream.address.port().to_string()),
        ("network.protocol.version", "1.1"),
        ("http.request.resend_count", ""),
        ("error.type", ""),
    ] {
        assert_eq!(client.get(name), value, "{name}");
    }
    let (begun, ended) = (server.span.start_time_unix_nano, server.span.end_time_unix_nano);
    assert!(begun <= client.span.start_time_unix_nano && client.span.end_time_unix_nano <= ended && begun < ended);
    assert_eq!(server.resource["service.name"], "edge");
    assert_eq!(server.resource["service.version"], env!("CARGO_PKG_VERSION"));
    let records = gateway.records();
    assert_eq!(server.resource["service.instance.id"], records[0].gateway);
    assert_eq!(records[0].trace_id.unwrap().to_string(), server.trace_id());
}

#[test]
fn refused_request_has_its_trace_in_the_problem_and_in_the_audit() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let (gateway, key) = gateway(&upstream, &collector, "ratio: 0").and_key();
    let response = Client::connect(gateway.address).get("/secret", &key.text);
    assert_eq!(response.code(), "insufficient_scope");
    let spans = collector.wait_for(1);
    let [server] = &servers(&spans)[..] else { panic!("{spans:?}") };
    assert_eq!(response.json()["trace_id"], server.trace_id());
    assert_eq!(gateway.records()[0].trace_id.unwrap().to_string(), server.trace_id());
    let shown =
        ["http.response.status_code", "error.type", "http.route", "keygate.key.id"].map(|name| server.get(name));
    assert_eq!(shown, ["403", "insufficient_scope", "/secret", key.id.as_str()]);
    assert_eq!((spans.len(), upstream.count()), (1, 0));
}

#[test]
fn trace_of_a_trusted_proxy_goes_on() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    // Of all traces that begin here, none is sampled.
    let gateway = gateway_with(&upstream, &collector, "ratio: 0", TRUSTED);
    let key = gateway.key().text;
    let sampled = traceparent("01");
    let fields = [("Traceparent", sampled.as_str()), ("Tracestate", "a=1"), ("Tracestate", "b=2")];
    Client::connect(gateway.address).request("GET", "/items/7", &key, &fields, b"");
    let spans = collector.wait_for(2);
    let server = servers(&spans)[0];
    assert_eq!((server.trace_id(), server.parent()), (TRACE.to_owned(), SPAN.to_owned()));
    assert_eq!(server.span.trace_state, "a=1,b=2");
    assert_eq!(parent_at(&upstream.last()), (TRACE.to_owned(), clients(&spans)[0].id(), "01".to_owned()));
    let passed: Vec<_> = upstream.last().headers.iter().filter(|(name, _)| name == "tracestate").cloned().collect();
    assert_eq!(passed, [("tracestate".to_owned(), "a=1,b=2".to_owned())]);
    assert_eq!(gateway.records()[0].trace_id.unwrap().to_string(), TRACE);
}

#[test]
fn context_of_a_client_is_replaced_or_linked_to() {
    for (clients, links) in [("", 0), ("clients: link", 1)] {
        let (upstream, collector) = (Upstream::start(), Collector::start());
        let (gateway, key) = gateway(&upstream, &collector, clients).and_secret();
        // The client cannot have the request left out, either.
        let own = traceparent("00");
        let fields = [("traceparent", own.as_str()), ("tracestate", "a=1")];
        Client::connect(gateway.address).request("GET", "/items/7", &key, &fields, b"");
        let spans = collector.wait_for(2);
        let server = servers(&spans)[0];
        assert_ne!(server.trace_id(), TRACE);
        assert_eq!((server.parent(), server.span.links.len()), (String::new(), links), "{clients}");
        if let [link] = &server.span.links[..] {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let link = (hex(&link.trace_id), hex(&link.span_id), link.trace_state.as_str());
            assert_eq!(link, (TRACE.to_owned(), SPAN.to_owned(), "a=1"));
        }
        let received = upstream.last();
        assert_eq!((parent_at(&received).0, received.header("tracestate")), (server.trace_id(), None));
    }
}

#[test]
fn invalid_context_of_a_trusted_proxy_begins_a_new_trace() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let gateway = gateway_with(&upstream, &collector, "", TRUSTED);
    let key = gateway.key().text;
    let valid = traceparent("01");
    let upper = valid.to_uppercase();
    let cases: [&[(&str, &str)]; 4] = [
        &[("traceparent", &upper), ("tracestate", "a=1")],
        &[("traceparent", &valid[1..]), ("tracestate", "a=1")],
        &[("traceparent", &valid), ("traceparent", &valid), ("tracestate", "a=1")],
        &[("tracestate", "a=1")],
    ];
    for fields in cases {
        Client::connect(gateway.address).request("GET", "/items/7", &key, fields, b"");
        let received = upstream.last();
        assert_ne!(parent_at(&received).0, TRACE, "{fields:?}");
        assert_eq!(received.header("tracestate"), None, "{fields:?}");
        assert_eq!(received.headers.iter().filter(|(name, _)| name == "traceparent").count(), 1, "{fields:?}");
    }
    // Of a valid trace, an invalid state is left out.
    let fields = [("traceparent", valid.as_str()), ("tracestate", "A=1")];
    Client::connect(gateway.address).request("GET", "/items/7", &key, &fields, b"");
    assert_eq!((parent_at(&upstream.last()).0.as_str(), upstream.last().header("tracestate")), (TRACE, None));
}

#[test]
fn context_goes_through_as_it_came_when_traces_are_off() {
    let (upstream, gateway, key) = Gateway::with_secret("");
    let own = traceparent("01");
    let fields = [("traceparent", own.as_str()), ("tracestate", "a=1")];
    Client::connect(gateway.address).request("GET", "/items/7", &key, &fields, b"");
    let received = upstream.last();
    assert_eq!([received.header("traceparent"), received.header("tracestate")], [Some(own.as_str()), Some("a=1")]);
    assert_eq!(gateway.records()[0].trace_id, None);
    let refused = Client::connect(gateway.address).get("/items/7", "");
    assert!(refused.json().get("trace_id").is_none());
}

/// Fields in which tracing systems other than the W3C's hand a trace on, and baggage.
const FOREIGN: [(&str, &str); 10] = [
    ("baggage", "user=forged"),
    ("b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1"),
    ("X-B3-TraceId", "80f198ee56343ba864fe8b2a57d3eff7"),
    ("x-b3-sampled", "1"),
    ("Uber-Trace-Id", "80f198ee56343ba8:e457b5a2e4d86bd1:0:1"),
    ("uberctx-user", "forged"),
    ("X-Cloud-Trace-Context", "80f198ee56343ba864fe8b2a57d3eff7/1;o=1"),
    ("X-Amzn-Trace-Id", "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"),
    ("x-datadog-trace-id", "1"),
    ("grpc-trace-bin", "AAA"),
];

#[test]
fn foreign_trace_fields_do_not_pass_beside_the_gateways_own() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    for (blocks, passed) in [("", &[][..]), (TRUSTED, &["baggage"])] {
        let gateway = gateway_with(&upstream, &collector, "", blocks);
        let key = gateway.key().text;
        let parent = traceparent("01");
        let fields: Vec<(&str, &str)> = FOREIGN.into_iter().chain([("traceparent", parent.as_str())]).collect();
        Client::connect(gateway.address).request("GET", "/items/7", &key, &fields, b"");
        let received = upstream.last();
        let foreign = FOREIGN.iter().map(|(name, _)| *name).filter(|name| received.header(name).is_some());
        assert_eq!(foreign.collect::<Vec<_>>(), passed, "{blocks:?}: {received:?}");
        assert_eq!(parent_at(&received).0 == TRACE, !blocks.is_empty());
        // Without a trace of the proxy's that goes on, its baggage belongs to nothing.
        Client::connect(gateway.address).request("GET", "/items/7", &key, &FOREIGN, b"");
        assert_eq!(upstream.last().header("baggage"), None, "{blocks:?}");
    }
    let gateway = Gateway::start(&upstream);
    Client::connect(gateway.address).request("GET", "/items/7", &gateway.key().text, &FOREIGN, b"");
    let received = upstream.last();
    assert!(FOREIGN.iter().all(|(name, value)| received.header(name) == Some(value)), "{received:?}");
}
