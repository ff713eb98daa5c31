//! Which requests reach which upstream, and by which right: hosts of routes, public routes, and pages of other origins.

mod cors;
mod hosts;
mod public;

use crate::config::{MINIMAL, parse};
use crate::support::{Client, Gateway, Upstream, fetch_http2};

/// More requests of keys than any test makes.
const PLENTY: &str = "limits: { key: { requests: 1000000, per: 1s } }\n";

fn start(upstream: &Upstream, blocks: &str) -> Gateway {
    Gateway::with(&[upstream.address], blocks)
}

/// Errors of a configuration with these blocks, one a line.
fn problems(blocks: &str) -> String {
    let problems = parse(&format!("{MINIMAL}{blocks}\n")).unwrap_err();
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A server hands the decoded path to its application, so that each spelling of it reaches what the route guards.
#[test]
fn every_spelling_of_a_listed_path_has_its_permission_and_is_forwarded_as_it_came() {
    let upstream = Upstream::start();
    let routes = "routes:
  - { name: purge, path: '/v1/things:purge', permission: 'things:purge' }
  - { name: resume, path: '/v1/r%C3%A9sum%c3%a9/**', permission: 'things:purge', strip_prefix: /v1 }
  - { name: open, path: '/open/%40all', access: public }
  - { name: rest, path: '/v1/**' }
";
    let gateway = start(&upstream, &format!("{PLENTY}{routes}"));
    let (may, may_not) = (gateway.key_with(&["things:purge"]).text, gateway.key().text);
    let mut client = Client::connect(gateway.address);
    for (path, sent) in [
        ("/v1/things:purge", "/v1/things:purge"),
        ("/v1/things%3Apurge", "/v1/things%3Apurge"),
        ("/v1/things%3apurge?a=%3A", "/v1/things%3apurge?a=%3A"),
        ("/v1/r%C3%a9sum%c3%A9/%C3%a9", "/r%C3%a9sum%c3%A9/%C3%a9"),
    ] {
        assert_eq!(client.get(path, &may_not).status, 403, "{path}");
        assert_eq!(fetch_http2(gateway.address, "GET", path, &may_not).unwrap().status, 403, "{path}");
        assert_eq!(client.get(path, &may).status, 200, "{path}");
        assert_eq!(upstream.last().path(), sent);
    }
    for path in ["/open/@all", "/open/%40all"] {
        assert_eq!(client.get(path, "").status, 200, "{path}");
    }
    for path in ["/v1/things%3Apurg%65", "/v1/things:purge%0a", "/v1/things:purge%00", "/v1/things:purge;a", "/v1//a"] {
        assert_eq!(client.get(path, &may).status, 404, "{path}");
    }
    assert_eq!(client.get("/v1/thingspurge", &may_not).status, 200);
    let counted = |route: &str| gateway.metric(&format!("keygate_requests_total{{code=\"403\",route=\"{route}\"}}"));
    assert_eq!((counted("purge"), counted("resume")), (6.0, 2.0));
}
