//! Listeners that serve the API, the dashboard, or both.

use std::io::Write as _;

use super::fixture;
use super::gateway_browser::GatewayBrowser;
use crate::support::{Client, Gateway, Upstream};

#[test]
fn listeners_serve_their_configured_role() {
    let upstream = Upstream::start();
    let listen = "listen:\n  - address: 127.0.0.1:0\n  - { address: '127.0.0.1:0', serves: api }\n  \
                  - { address: '127.0.0.1:0', serves: dashboard }\n";
    let gateway = Gateway::with(&[upstream.address], &format!("{listen}{}", fixture::session(&[], "")));
    let key = gateway.key();
    let seen: Vec<[u16; 3]> = gateway
        .addresses()
        .iter()
        .map(|address| {
            let api = Client::connect(*address).get("/x", &key.text).status;
            let mut visitor = GatewayBrowser::at(*address);
            [api, visitor.open("/settings/sign-in").status, visitor.open("/").status]
        })
        .collect();
    assert_eq!(seen, [[200, 200, 401], [200, 404, 401], [404, 200, 303]]);
    assert_eq!(upstream.count(), 2, "no request to the dashboard's listener is forwarded");
    assert!(upstream.received().iter().all(|received| received.path() == "/x"));
}

#[test]
fn upstream_does_not_act_on_the_dashboards_origin() {
    let upstream = Upstream::answering(|_, stream| {
        let fields = "Clear-Site-Data: \"*\"\r\nService-Worker-Allowed: /\r\nX-Kept: 1\r\nContent-Length: 0";
        write!(stream, "HTTP/1.1 200 OK\r\n{fields}\r\n\r\n").unwrap();
    });
    let listen = "listen:\n  - address: 127.0.0.1:0\n  - { address: '127.0.0.1:0', serves: api }\n";
    let seen = |session: &str| {
        let (gateway, key) = Gateway::with(&[upstream.address], &format!("{listen}{session}")).and_key();
        let fields = |address| {
            let response = Client::connect(address).get("/x", &key.text);
            let is_there = |name| response.header(name).is_some();
            (is_there("clear-site-data"), is_there("service-worker-allowed"), is_there("x-kept"))
        };
        gateway.addresses().iter().map(|address| fields(*address)).collect::<Vec<_>>()
    };
    let (passed, dropped) = ((true, true, true), (false, false, true));
    assert_eq!(seen(""), [passed, passed], "without a dashboard, there is nothing to protect");
    assert_eq!(seen(&fixture::session(&[], "")), [dropped, dropped], "one origin for both");
    let own_host = fixture::session(&[], "  api: https://api.gateway.test\n");
    assert_eq!(seen(&own_host), [dropped, passed], "the API has an origin of its own");
}

#[test]
fn https_origin_is_told_to_browsers_for_a_year_unless_it_is_switched_off() {
    let upstream = Upstream::start();
    let told = |session: &str, path: &str| {
        let gateway = Gateway::with(&[upstream.address], session);
        let answer = Client::connect(gateway.address).get(path, "");
        answer.header("strict-transport-security").map(str::to_owned)
    };
    let session = fixture::session(&[], "");
    for path in ["/settings/sign-in", "/settings/api/v1/session", "/settings/assets/keygate.css", "/settings/none"] {
        assert_eq!(told(&session, path).as_deref(), Some("max-age=31536000"), "{path}");
    }
    assert_eq!(told(&session, "/api/queries"), None, "the upstream's own");
    assert_eq!(told(&fixture::session(&[], "  hsts: 30d\n"), "/settings/sign-in").as_deref(), Some("max-age=2592000"));
    assert_eq!(told(&fixture::session(&[], "  hsts: 0s\n"), "/settings/sign-in"), None);
    let local = session.replace(super::ORIGIN, "http://localhost:8080");
    assert_eq!(told(&local, "/settings/sign-in"), None, "browsers ignore it over http");
}
