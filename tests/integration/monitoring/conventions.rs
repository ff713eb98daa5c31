//! Metrics by the semantic conventions of OpenTelemetry, where they are configured.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Client, Gateway, Upstream, eventually, free_address, head};

const ON: &str = "telemetry: { otel_metrics: true }\n";

fn scrape(gateway: &Gateway) -> String {
    String::from_utf8(Client::connect(gateway.admin).get("/metrics", "").body).unwrap()
}

/// The value of a series, whose labels are in any order; none when it does not exist.
fn value(gateway: &Gateway, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: BTreeSet<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    scrape(gateway).lines().find_map(|line| {
        let (found, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        let found: BTreeSet<String> = found.split(',').map(str::to_owned).collect();
        (found == labels).then(|| value.parse().unwrap())
    })
}

#[test]
fn they_are_off_by_default() {
    let (_upstream, gateway, key) = Gateway::with_secret("");
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 200);
    assert!(!scrape(&gateway).contains("http_server_") && !scrape(&gateway).contains("http_client_"));
}

#[test]
fn requests_tries_and_refusals_are_measured() {
    let routes = "routes: [{ name: one, path: '/things/{id}' }]\n";
    let (upstream, gateway, key) = Gateway::with_secret(&format!("{ON}{routes}"));
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/things/1", &key).status, 200);
    assert_eq!(client.request("BREW", "/things/2", &key, &[], b"").status, 200);
    assert_eq!(client.get("/none", &key).status, 404);
    let server = |method, route, status, error| {
        let labels = [
            ("http_request_method", method),
            ("http_route", route),
            ("http_response_status_code", status),
            ("error_type", error),
        ];
        value(&gateway, "http_server_request_duration_seconds_count", &labels)
    };
    eventually("all requests are measured", || server("GET", "", "404", "") == Some(1.0));
    assert_eq!(server("GET", "/things/{id}", "200", ""), Some(1.0));
    assert_eq!(server("_OTHER", "/things/{id}", "200", ""), Some(1.0));
    let (address, port) = (upstream.address.ip().to_string(), upstream.address.port().to_string());
    let tries = |method| {
        let labels = [
            ("http_request_method", method),
            ("server_address", address.as_str()),
            ("server_port", port.as_str()),
            ("http_response_status_code", "200"),
            ("error_type", ""),
        ];
        value(&gateway, "http_client_request_duration_seconds_count", &labels)
    };
    eventually("all tries are measured", || tries("_OTHER") == Some(1.0));
    assert_eq!(tries("GET"), Some(1.0), "the refused request has none");
    let text = scrape(&gateway);
    assert!(text.contains("# TYPE http_server_request_duration_seconds histogram"), "{text}");
    for bound in ["0.005", "0.075", "0.75", "7.5", "10", "+Inf"] {
        assert!(text.contains(&format!("le=\"{bound}\"")), "{bound}");
    }
}

#[test]
fn failed_tries_and_broken_responses_have_their_error() {
    let gone = free_address();
    let (gateway, key) = Gateway::with(&[gone], ON).and_secret();
    assert_eq!(Client::connect(gateway.address).get("/", &key).status, 503);
    let text = || scrape(&gateway);
    eventually("the refusal is measured", || {
        text().lines().any(|line| {
            line.starts_with("http_server_request_duration_seconds_count")
                && line.contains("error_type=\"upstream_unavailable\"")
                && line.contains("http_response_status_code=\"503\"")
        })
    });
    assert!(text().lines().any(|line| {
        line.starts_with("http_client_request_duration_seconds_count") && line.contains("error_type=\"connect_failed\"")
    }));
}

#[test]
fn active_requests_are_those_in_flight() {
    let (arrived, arrivals) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let upstream = Upstream::answering(move |_, stream| {
        use std::io::Write as _;
        arrived.send(()).unwrap();
        released.lock().unwrap().recv_timeout(Duration::from_secs(60)).ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    });
    let (gateway, key) = Gateway::with(&[upstream.address], ON).and_secret();
    let active = || {
        let labels = [("http_request_method", "GET"), ("url_scheme", "http")];
        value(&gateway, "http_server_active_requests", &labels)
    };
    let mut client = Client::connect(gateway.address);
    client.send(head("GET", "/slow", &key, &[], 0));
    arrivals.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(active(), Some(1.0));
    release.send(()).unwrap();
    assert_eq!(client.response().status, 200);
    eventually("the request has ended", || active() == Some(0.0));
}
