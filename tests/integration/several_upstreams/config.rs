//! Configuration of several upstreams: accepted forms, and errors with their places.

use std::path::Path;
use std::time::Duration;

use keygate::config::Config;
use upstream::Protocol;

/// First line behind the blocks that every configuration needs: where the text of a test begins.
const BASE: &str = "listen: [{ address: '127.0.0.1:8080' }]
admin: { socket: a.sock }
state: { embedded: { path: s.db } }
audit: { path: audit }
";

fn parse(blocks: &str) -> Result<Config, String> {
    Config::parse(Path::new("x.yaml"), &format!("{BASE}{blocks}")).map_err(|errors| errors.to_string())
}

const TWO: &str = "upstreams:
  store: { endpoints: ['http://127.0.0.1:1'], timeouts: { response: 5s } }
  reports: { endpoints: ['http://127.0.0.1:2'], protocol: http2 }
timeouts: { connect: 3s, response: 7s }
";

#[test]
fn routes_name_their_upstreams_and_time_outs_have_defaults() {
    let routes = "routes:
  - { name: a, path: /a, upstream: reports }
  - { name: b, path: '/b/**', upstream: store, strip_prefix: /b }
";
    let config = parse(&format!("{TWO}{routes}")).unwrap();
    let names: Vec<&str> = config.upstreams.iter().map(|upstream| &*upstream.settings.name).collect();
    assert_eq!(names, ["store", "reports"]);
    assert_eq!(config.routes.iter().map(|route| route.upstream).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(config.routes[1].strip_prefix.as_deref(), Some("/b"));
    let [store, reports] = [0, 1].map(|place| config.upstreams[place].settings.timeouts);
    let seconds = Duration::from_secs;
    assert_eq!((store.connect, store.response, store.exchange), (seconds(3), seconds(5), seconds(900)));
    assert_eq!((reports.connect, reports.response), (seconds(3), seconds(7)));
    assert_eq!(config.upstreams[1].settings.protocol, Protocol::Http2);
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
}

#[test]
fn upstream_that_no_route_uses_is_warned_about() {
    let config = parse(&format!("{TWO}routes: [{{ name: a, path: /a, upstream: store }}]\n")).unwrap();
    let warnings = config.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("`reports` is used by no route"), "{warnings:?}");
}

#[test]
fn route_that_no_request_reaches_is_warned_about() {
    let warnings = |routes: &str| parse(&format!("{TWO}routes: [{routes}]\n")).unwrap().warnings();
    let all = "{ name: all, path: '/a/**', upstream: store }";
    let admin = "{ name: admin, path: /a/admin, upstream: reports, permission: 'admin:write' }";
    assert_eq!(warnings(&format!("{admin}, {all}")), [""; 0]);
    let hidden = warnings(&format!("{all}, {admin}"));
    assert!(hidden.len() == 1 && hidden[0].starts_with("the route `admin` is never used: `all` before"), "{hidden:?}");
}

#[test]
fn errors_have_their_places() {
    let one = "upstream: { endpoints: ['http://127.0.0.1:1'] }\n";
    let routes = |route: &str| format!("{TWO}routes:\n  - {{ name: a, path: /a/b, {route} }}\n");
    let many: String = (0..65).map(|n| format!("  u{n}: {{ endpoints: ['http://127.0.0.1:1'] }}\n")).collect();
    for (blocks, expected) in [
        (format!("{TWO}{one}"), "x.yaml:6:3: upstreams: set either `upstream` or `upstreams`, not both"),
        ("upstreams: {}\n".to_owned(), "x.yaml:5:12: upstreams: is empty; give at least one upstream"),
        ("upstreams:\n".to_owned(), "upstreams: a block of `name: value` is expected"),
        ("upstreams: [a]\n".to_owned(), "x.yaml:5:12: upstreams: a block of `name: value` is expected"),
        (format!("upstreams:\n{many}"), "upstreams: has more than 64 upstreams"),
        (
            "upstreams: { a b: { endpoints: ['http://127.0.0.1:1'] } }\n".to_owned(),
            "x.yaml:5:14: upstreams.a b: is not the name of an upstream: up to 40 of letters, digits and . _ -",
        ),
        ("upstreams: { a: { endpoint: ['http://127.0.0.1:1'] } }\n".to_owned(), "upstreams.a.endpoints: is required"),
        (
            "upstreams: { a: { endpoints: ['http://h'] }, a: { endpoints: ['http://h'] } }\n".to_owned(),
            "upstreams.a: is given twice, first in line 5",
        ),
        (
            routes("upstream: reprots"),
            "x.yaml:10:38: routes[0].upstream: `reprots` is not an upstream; did you mean `reports`?",
        ),
        (routes("upstream: else"), "routes[0].upstream: `else` is not an upstream; give store or reports"),
        (routes("permission: a"), "x.yaml:10:5: routes[0].upstream: is missing; give store or reports"),
        (TWO.to_owned(), "routes: is missing, and there are several upstreams; list the routes"),
        (format!("{TWO}routes: []\n"), "routes: is missing, and there are several upstreams; list the routes"),
        (
            format!("{one}routes: [{{ name: a, path: /a, upstream: store }}]\n"),
            "`store` is not an upstream; give default",
        ),
        (routes("upstream: reports, upgrade: [websocket]"), "remove it, or `upstreams.reports.protocol: http2`"),
        (format!("{TWO}upstream_x: 1\n"), "upstream_x: is not a known key"),
        (
            "upstreams: { a: { endpoints: ['http://h'], timeouts: { tunnel_idle: 1s } } }\n".to_owned(),
            "upstreams.a.timeouts.tunnel_idle: is not a known key; known here: connect, response, response_idle, \
             exchange",
        ),
        (
            "upstreams: { a: { endpoints: ['http://h'], health: { grpc: server } } }\n".to_owned(),
            "upstreams.a.health.grpc: needs HTTP/2; set `protocol: http2` of the upstream",
        ),
        (routes("upstream: store, strip_prefix: /b"), "`/a/b` does not begin with the segments of `/b`"),
        (routes("upstream: store, strip_prefix: /a/"), "`/a/` is not a prefix such as /reports"),
        (routes("upstream: store, strip_prefix: /"), "`/` is not a prefix such as /reports"),
        (routes("upstream: store, strip_prefix: a"), "`a` is not a prefix such as /reports"),
        (routes("upstream: store, strip_prefix: /a/../a"), "is not a prefix such as /reports"),
        (routes("upstream: store, strip_prefix: '/{x}'"), "is not a prefix such as /reports"),
        (routes("upstream: store, strip_prefix: /a/b/c"), "`/a/b` does not begin with the segments of `/a/b/c`"),
        (routes("upstream: store, strip_prefix: '/a/**'"), "is not a prefix such as /reports"),
    ] {
        let error = parse(&blocks).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{blocks}\n{error}\n{expected}");
    }
}

#[test]
fn upstream_with_an_error_is_still_one_that_routes_may_name() {
    let blocks = "upstreams:
  store: { endpoints: ['ftp://x'] }
  reports: { endpoints: ['http://127.0.0.1:2'] }
routes: [{ name: a, path: /a, upstream: store }, { name: b, path: /b, upstream: reports }]
";
    let error = parse(blocks).map(|_| ()).unwrap_err();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("x.yaml:6:24: upstreams.store.endpoints[0]: `ftp://x/` is not an endpoint"), "{error}");
}

#[test]
fn prefix_may_be_the_whole_path_and_must_end_with_a_segment() {
    let one = "upstream: { endpoints: ['http://127.0.0.1:1'] }\n";
    let route = |path: &str, prefix: &str| {
        parse(&format!("{one}routes: [{{ name: a, path: '{path}', strip_prefix: {prefix} }}]\n")).is_ok()
    };
    assert!(route("/a/b", "/a/b") && route("/a/b/**", "/a/b") && route("/a/{id}", "/a"));
    assert!(!route("/ab", "/a") && !route("/{id}", "/a") && !route("/**", "/a"));
}
