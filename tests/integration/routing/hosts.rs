//! `host` of routes: from the target or `Host`, in any case, without port and dot, over HTTP/1.1 and HTTP/2.

use super::{PLENTY, problems, start};
use crate::config::{MINIMAL, parse};
use crate::edge::frames::{self, Raw};
use crate::support::{Client, Gateway, Response, Upstream, eventually};

const ROUTES: &str = "routes:\n  - { name: a, host: API.a.example, path: '/**' }\n  \
                      - { name: tenant, host: '*.a.example', path: '/**', strip_prefix: /v1 }\n  \
                      - { name: rest, path: /rest }\n";

/// The routes: that of the tenants has another path, so that the upstream sees which one it was.
fn blocks() -> String {
    let routes = ROUTES.replace("path: '/**', strip_prefix", "path: '/v1/**', strip_prefix");
    format!("{PLENTY}{routes}")
}

/// Sends a head with this target and host over HTTP/1.1.
fn get(gateway: &Gateway, target: &str, host: &str, key: &str) -> Response {
    let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n");
    Client::connect(gateway.address).send(head).response()
}

/// Status of a request over HTTP/2.
fn status_over_http2(gateway: &Gateway, path: &str, fields: &[(&str, &str)], key: &str) -> u16 {
    let bearer = format!("Bearer {key}");
    let pseudo = [(":method", "GET"), (":scheme", "http"), (":path", path)];
    let all = pseudo.iter().chain(fields).chain(&[("authorization", &*bearer)]).copied().collect::<Vec<_>>();
    let block: Vec<u8> = all.iter().flat_map(|(name, value)| frames::field(name, value)).collect();
    let mut raw = Raw::connect(gateway.address);
    raw.send(frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, 1, &block));
    raw.until(|frame| frame.is(frames::HEADERS, 1)).status()
}

#[test]
fn host_of_a_request_decides_which_route_it_is_for() {
    let upstream = Upstream::start();
    let (gateway, key) = start(&upstream, &blocks()).and_secret();
    // Target, `Host`, and what the upstream gets; none: 404.
    for (target, host, sent) in [
        ("/v1/x", "api.a.example", Some("/v1/x")),
        ("/v1/x", "API.A.Example.:8443", Some("/v1/x")),
        ("/v1/x", "one.a.example", Some("/x")),
        ("/other", "one.a.example", None),
        ("/v1/x", "a.example", None),
        ("/v1/x", "one.two.a.example", None),
        ("/rest", "one.a.example", Some("/rest")),
        ("/rest", "203.0.113.7:80", Some("/rest")),
        ("http://one.a.example:80/v1/x", "api.a.example", Some("/x")),
        ("http://b.example/v1/x", "api.a.example", None),
    ] {
        let before = upstream.count();
        let response = get(&gateway, target, host, &key);
        match sent {
            Some(sent) => {
                assert_eq!((response.status, upstream.last().path()), (200, sent), "{target} {host}");
            }
            None => assert_eq!((response.status, upstream.count()), (404, before), "{target} {host}"),
        }
    }
    for (path, fields, expected) in [
        ("/v1/x", &[(":authority", "Api.a.example:443")][..], 200),
        ("/v1/x", &[(":authority", "one.a.example.")], 200),
        ("/v1/x", &[(":authority", "b.example")], 404),
        ("/v1/x", &[("host", "api.a.example")], 200),
        ("/v1/x", &[(":authority", "b.example"), ("host", "api.a.example")], 400),
    ] {
        assert_eq!(status_over_http2(&gateway, path, fields, &key), expected, "{path} {fields:?}");
    }
    // A caller with an invalid key learns of no route.
    assert_eq!(get(&gateway, "/v1/x", "b.example", "other").status, 401);
}

#[test]
fn host_takes_effect_by_a_reload() {
    let upstream = Upstream::start();
    let gateway = start(&upstream, &format!("{PLENTY}routes: [{{ name: a, host: a.example, path: '/**' }}]\n"));
    let key = gateway.key().text;
    assert_eq!(get(&gateway, "/", "a.example", &key).status, 200);
    gateway.reconfigure(|text| text.replace("host: a.example", "host: b.example"));
    eventually("the new host holds", || get(&gateway, "/", "b.example", &key).status == 200);
    assert_eq!(get(&gateway, "/", "a.example", &key).status, 404);
}

#[test]
fn text_that_is_no_host_is_a_configuration_error() {
    for (host, expected) in [
        ("a.example:80", "`a.example:80` has a port"),
        ("'*'", "`*` matches every host"),
        ("'*.*.example'", "`*.*.example` is not a host"),
        ("https://a.example", "is not a host"),
        ("''", "is empty"),
    ] {
        let problems = problems(&format!("routes: [{{ name: a, host: {host}, path: /a }}]"));
        assert!(problems.contains(expected), "{host}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{host}: {problems}");
    }
    let same = "routes: [{ name: a, host: A.example, path: /a }, { name: b, host: a.example., path: /a }]";
    assert!(problems(same).contains("route `a` is for the same method and path"), "{}", problems(same));
    let apart = "routes: [{ name: a, host: a.example, path: /a }, { name: b, host: b.example, path: /a }]";
    assert!(parse(&format!("{MINIMAL}{apart}\n")).is_ok());
}
