//! `strip_prefix`: the upstream sees the tail of the path that the route was found by, byte for byte.

use domain::head_fields::CredentialFields;
use domain::head_memory::HeadMemory;
use domain::identity::{AuthMethod, OrgId, Peer, Principal, PrincipalHeaders, UserId};
use edge::forward::{
    AllowedFeatures, Client as ForwardedClient, ForwardContext, HostPolicy, PassedFields, TrustedProxies,
    ValidatedHead, rewrite_request,
};
use http::{HeaderValue, Request};
use keygate::admission::{RouteSettings, Routes};
use platform::metrics::Metrics;
use proptest::prelude::*;

use super::endpoints;
use crate::support::{Client, Gateway, Upstream, fetch_http2};

fn gateway(upstream: &Upstream, route: &str) -> Gateway {
    let upstreams = format!("upstreams: {{ reports: {{ {} }} }}\n", endpoints(&[upstream.address]));
    Gateway::with(&[], &format!("{upstreams}routes: [{{ name: reports, {route} }}]\n"))
}

#[test]
fn upstream_sees_the_rest_of_the_path_byte_for_byte() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "path: '/reports/**', strip_prefix: /reports, query_in_audit: true");
    let key = gateway.key().text;
    let mut client = Client::connect(gateway.address);
    let cases = [
        ("/reports/2026/q1", "/2026/q1"),
        ("/reports/a%20b%25%C3%A4?c=%2F&d=/reports/..//x", "/a%20b%25%C3%A4?c=%2F&d=/reports/..//x"),
        ("/reports", "/"),
        ("/reports/", "/"),
        ("/reports?all", "/?all"),
        ("/reports/?", "/?"),
        ("/reports/reports", "/reports"),
    ];
    for (received, sent) in cases {
        assert_eq!(client.get(received, &key).status, 200, "{received}");
        assert_eq!(upstream.last().line, format!("GET {sent} HTTP/1.1"), "{received}");
    }
    assert_eq!(fetch_http2(gateway.address, "GET", "/reports/b?c", &key).unwrap().status, 200);
    assert_eq!(upstream.last().path(), "/b?c");
    let recorded: Vec<String> = gateway.records().into_iter().rev().map(|record| record.path).collect();
    let received = cases.into_iter().map(|(received, _)| received).chain(["/reports/b?c"]);
    assert_eq!(recorded, received.collect::<Vec<_>>(), "the audit has the path that the client sent");
}

#[test]
fn path_that_routes_refuse_is_refused_as_before() {
    let upstream = Upstream::start();
    let (gateway, key) = gateway(&upstream, "path: '/reports/**', strip_prefix: /reports").and_secret();
    let mut client = Client::connect(gateway.address);
    for path in [
        "/reports//admin",
        "/reports/../admin",
        "/reports/./a",
        "/reports/..",
        "/reports/%2e%2e/admin",
        "/reports/a%2fb",
        "/reports/%5Ca",
        "/reports/;x/a",
        "/reportsadmin",
        "/report%73/a",
        "/x/../reports/a",
        "//reports/a",
        "/Reports/a",
    ] {
        let code = if ["/reportsadmin", "/Reports/a"].contains(&path) { "not_found" } else { "ambiguous_path" };
        assert_eq!(client.get(path, &key).code(), code, "{path}");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn prefix_ends_before_parameters_and_redirects_stay_as_they_are() {
    let upstream = Upstream::answering(|_, stream| {
        use std::io::Write as _;
        stream.write_all(b"HTTP/1.1 302 x\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n").ok();
    });
    let (gateway, key) = gateway(&upstream, "path: '/v1/reports/{id}', strip_prefix: /v1").and_secret();
    let response = Client::connect(gateway.address).get("/v1/reports/7?x", &key);
    assert_eq!((response.status, response.header("location")), (302, Some("/login")));
    assert_eq!(upstream.last().path(), "/reports/7?x");
}

fn route(path: &str, strip_prefix: Option<&str>) -> RouteSettings {
    RouteSettings { strip_prefix: strip_prefix.map(str::to_owned), ..RouteSettings::new("r", path) }
}

/// The target that the upstream gets of a request by this route; none when the route does not match.
fn sent(routes: &Routes, target: &str) -> Option<String> {
    let parts = Request::get(target).header("host", "h").body(()).ok()?.into_parts().0;
    let route = Some(routes.find(&parts)).filter(|route| route.exists)?;
    let peer = Peer { address: "192.0.2.7:4711".parse().unwrap(), tls: None, certificate: None };
    let client = ForwardedClient::find(&peer, &parts.headers, &TrustedProxies::default());
    let (user_id, org_id) = (UserId::generate(), OrgId::generate());
    let headers = PrincipalHeaders::new(user_id, org_id, &[]);
    let principal = Principal { key_id: None, user_id, org_id, method: AuthMethod::ApiKey, headers };
    let context = ForwardContext {
        peer: &peer,
        client: &client,
        principal: Some(&principal),
        request_id: &HeaderValue::from_static("id"),
        strip_prefix: route.strip_prefix.as_deref(),
        credentials: &CredentialFields::NONE,
        pass_authorization: route.pass_authorization,
        allowed: AllowedFeatures::default(),
        passed: &PassedFields::default(),
        host: &HostPolicy::Endpoint,
        trace: None,
        memory: &HeadMemory::default(),
    };
    let head = ValidatedHead::validate(parts, &CredentialFields::NONE).ok()?;
    Some(rewrite_request(head, Some(0), context).request.uri().to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The path that is sent is the tail of the one that was received, begins with exactly one slash, and is one that
    /// routes accept: it has no dot segment, no encoded slash, and whatever else servers read in different ways.
    #[test]
    fn stripped_path_is_a_plain_tail(
        prefix in "(/[a-z]{1,2}){1,2}",
        rest in r"(/|[.]{1,2}|[a;\\]|%2[ef]|%20|%[0-9a-f]{2}){0,6}",
        query in "([?]([a/?.]|%2[ef]){0,4})?",
    ) {
        let target = format!("{prefix}{rest}{query}");
        let settings = [route(&format!("{prefix}/**"), Some(&prefix))];
        let Some(sent) = sent(&Routes::new(&settings, &Metrics::new()), &target) else { return Ok(()) };
        let tail = target.strip_prefix(&prefix).unwrap();
        let has_no_path = tail.is_empty() || tail.starts_with('?');
        let expected = if has_no_path { format!("/{tail}") } else { tail.to_owned() };
        prop_assert_eq!(&sent, &expected, "{}", target);
        prop_assert!(sent.starts_with('/') && !sent.starts_with("//"), "{} is sent as {}", target, sent);
        let listed = [route("/**", None)];
        let parts = Request::get(&sent).body(()).unwrap().into_parts().0;
        prop_assert!(Routes::new(&listed, &Metrics::new()).find(&parts).exists, "{} is sent as {}", target, sent);
    }
}
