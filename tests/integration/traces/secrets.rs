//! Secrets: what a client sends never reaches the collector, wherever it has put it.

use super::{TRUSTED, gateway_with, traceparent};
use crate::support::{Client, Collector, Upstream, fetch_http2};

#[test]
fn keys_cookies_and_query_strings_are_in_no_exported_byte() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let gateway = gateway_with(&upstream, &collector, "clients: link", TRUSTED);
    let key = gateway.key().text;
    let secret = key.rsplit('_').next().unwrap();
    let encoded: String = key.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let state = format!("a={key}");
    let parent = traceparent("01");
    let mut sent = 0;
    for path in ["/items/7?token=from-the-query".to_owned(), format!("/items/{key}"), format!("/items/{encoded}?{key}")]
    {
        let fields = [
            ("Cookie", "session=from-the-cookie"),
            ("User-Agent", key.as_str()),
            ("X-Custom", "from-a-field"),
            ("traceparent", &parent),
            ("tracestate", &state),
        ];
        Client::connect(gateway.address).request("GET", &path, &key, &fields, b"from-the-body");
        // As the method, and as the host, in requests that are refused.
        Client::connect(gateway.address).request(&key, &path, &key, &fields, b"");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {key}\r\nAuthorization: Bearer {key}x\r\n\r\n");
        Client::connect(gateway.address).send(head).response();
        sent += 3;
    }
    fetch_http2(gateway.address, "GET", "/items/8?token=from-the-query", &key).unwrap();
    drop(gateway);
    let spans = collector.spans();
    assert!(super::servers(&spans).len() > sent / 3, "most of them are traced");
    assert!(spans.iter().any(|span| span.get("url.path").contains("sk_live_")), "what is no secret of a key stays");
    for export in collector.received() {
        let has =
            |text: &str| export.bytes.windows(text.len()).any(|bytes| bytes.eq_ignore_ascii_case(text.as_bytes()));
        for text in [secret, &encoded[encoded.len() - 60..], "from-", "token="] {
            assert!(!has(text), "{text}");
        }
    }
}
