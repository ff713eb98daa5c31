//! Check of the routes: none at all, hidden ones, open ones, and requests that match none; and of the fields for keys.

use super::environment::Environment;
use super::finding::Findings;
use crate::admission::RouteSettings;
use domain::head_fields::{CredentialField, CredentialFields};

/// Series of requests that match no route.
const UNMATCHED: &str = "keygate_requests_total{code=\"404\",route=\"none\"}";

/// Checks the routes, and what the gateway has counted for them.
pub(super) fn check(environment: &Environment, findings: &mut Findings) {
    let config = &environment.config;
    judge_listed(&config.routes, findings);
    judge_key_fields(&config.transport.credentials, &config.routes, findings);
    if !config.routes.is_empty() {
        for name in config.unused_upstreams() {
            let advice = "name it as `upstream` of a route, or remove it";
            findings.warning(format!("upstream `{name}`"), "used by no route", advice);
        }
        let unmatched = environment.gateway.as_ref().ok().and_then(|gateway| gateway.metric(UNMATCHED));
        judge_unmatched(unmatched.unwrap_or_default(), findings);
    }
}

fn judge_listed(routes: &[RouteSettings], findings: &mut Findings) {
    if routes.is_empty() {
        let advice = "list the routes with their permissions, as config/keygate.yaml shows";
        findings.warning("routes", "none: every key may send any method to any path of the upstream", advice);
        return;
    }
    findings.ok("routes", format!("{} listed", routes.len()));
    for (place, route) in routes.iter().enumerate() {
        if let Some(first) = routes[..place].iter().find(|first| covers(first, route)) {
            let found = format!("never used: route `{}` before it matches all its requests", first.name);
            findings.warning(format!("route `{}`", route.name), found, "list it before that one, or remove it");
        }
    }
    let open: Vec<&str> = routes.iter().filter(|route| is_open(route)).map(|route| &*route.name).collect();
    if !open.is_empty() {
        let found = format!("{} without a permission: {}", open.len(), open.join(", "));
        findings.note("routes", found, "give them one, if not every key may use them");
    }
}

/// Says how keys are sent, where that is configured.
fn judge_key_fields(credentials: &CredentialFields, routes: &[RouteSettings], findings: &mut Findings) {
    if credentials.is_empty() {
        return;
    }
    let fields: Vec<&str> = credentials.iter().map(CredentialField::text).collect();
    let fields = fields.join(", ");
    findings.ok("API keys", format!("sent as `Authorization: Bearer`, or in {fields}"));
    let passing: Vec<&str> = routes.iter().filter(|route| route.pass_authorization).map(|route| &*route.name).collect();
    if !passing.is_empty() {
        let found = format!("`Authorization` goes to the upstream: {}", passing.join(", "));
        findings.note("routes", found, format!("clients of these routes must send their key in {fields} alone"));
    }
}

fn judge_unmatched(count: f64, findings: &mut Findings) {
    if count > 0.0 {
        let advice = "`keygate audit list` shows their paths: list a route for those that clients should reach";
        findings.note("requests without a route", format!("{count} since the gateway was started"), advice);
    }
}

/// Returns whether every key may use the route at the upstream. Every key may ask for its own usage.
fn is_open(route: &RouteSettings) -> bool {
    route.permission.is_none() && route.serve.is_none()
}

/// Returns whether every request that matches `later` also matches `first`.
fn covers(first: &RouteSettings, later: &RouteSettings) -> bool {
    let has_methods = first.methods.is_empty()
        || !later.methods.is_empty()
            && later.methods.iter().all(|method| {
                // A route for GET is one for HEAD, too.
                first.methods.contains(method)
                    || method == http::Method::HEAD && first.methods.contains(&http::Method::GET)
            });
    has_methods && covers_path(&first.path, &later.path)
}

/// The same for patterns of paths.
fn covers_path(first: &str, later: &str) -> bool {
    let (first, first_is_open) = first.strip_suffix("/**").map_or((first, false), |path| (path, true));
    let (later, later_is_open) = later.strip_suffix("/**").map_or((later, false), |path| (path, true));
    let first: Vec<&str> = first.split('/').collect();
    let later: Vec<&str> = later.split('/').collect();
    let fits = if first_is_open { first.len() <= later.len() } else { first.len() == later.len() && !later_is_open };
    // A parameter stands for any segment that is not empty.
    let is_covered = |(first, later): (&&str, &&str)| first == later || first.starts_with('{') && !later.is_empty();
    fits && first.iter().zip(&later).all(is_covered)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::finding::Severity::{Note, Warning};
    use super::*;

    fn route(name: &str, methods: &[&str], path: &str) -> RouteSettings {
        RouteSettings {
            name: name.into(),
            methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
            path: path.into(),
            upstream: 0,
            serve: None,
            strip_prefix: None,
            permission: "queries:read".parse().ok(),
            pass_authorization: false,
            query_in_audit: false,
            log_query: false,
            upgrade: Vec::new(),
            trailers: false,
            idempotent: false,
        }
    }

    #[test]
    fn hidden_routes_are_found() {
        let cases = [
            (("", "/a"), ("GET", "/a"), true),
            (("GET", "/a"), ("", "/a"), false),
            (("GET", "/a"), ("HEAD", "/a"), true),
            (("HEAD", "/a"), ("GET", "/a"), false),
            (("GET", "/a/{id}"), ("GET", "/a/me"), true),
            (("GET", "/a/{id}"), ("GET", "/a/"), false),
            (("GET", "/a/me"), ("GET", "/a/{id}"), false),
            (("GET", "/a/{id}"), ("GET", "/a/{id}/b"), false),
            (("GET", "/a/**"), ("GET", "/a"), true),
            (("GET", "/a/**"), ("GET", "/a/b/{c}/**"), true),
            (("GET", "/a/{id}"), ("GET", "/a/**"), false),
            (("GET", "/**"), ("GET", "/"), true),
        ];
        for ((method, path), (later_method, later_path), expected) in cases {
            let methods = |method: &'static str| if method.is_empty() { vec![] } else { vec![method] };
            let first = route("a", &methods(method), path);
            let later = route("b", &methods(later_method), later_path);
            assert_eq!(covers(&first, &later), expected, "{method} {path}, {later_method} {later_path}");
        }
    }

    #[test]
    fn routes_are_judged() {
        let judged = |routes: &[RouteSettings]| {
            let mut findings = Findings::new("routes");
            judge_listed(routes, &mut findings);
            findings.problems()
        };
        assert_eq!(judged(&[]), [(Warning, "routes".to_owned())]);
        let all = route("all", &[], "/a/**");
        let one = route("one", &["GET"], "/a/b");
        assert_eq!(judged(&[one.clone(), all.clone()]), []);
        assert_eq!(judged(&[all, one.clone()]), [(Warning, "route `one`".to_owned())]);
        assert_eq!(judged(&[RouteSettings { permission: None, ..one }]), [(Note, "routes".to_owned())]);
    }

    #[test]
    fn route_that_passes_authorization_is_noted_with_the_fields_for_keys() {
        let listed = CredentialFields::new(["X-API-Key", "apikey"].map(|name| name.parse().unwrap()).to_vec());
        let passing = RouteSettings { pass_authorization: true, ..route("legacy", &[], "/v1/**") };
        let judged = |credentials: &CredentialFields, routes: &[RouteSettings]| {
            let mut findings = Findings::new("routes");
            judge_key_fields(credentials, routes, &mut findings);
            findings.into_list().iter().map(|finding| finding.found.clone()).collect::<Vec<_>>()
        };
        let sent = "sent as `Authorization: Bearer`, or in X-API-Key, apikey";
        assert_eq!(judged(&listed, &[passing]), [sent, "`Authorization` goes to the upstream: legacy"]);
        assert_eq!(judged(&listed, &[route("a", &[], "/a")]), [sent]);
        assert!(judged(&CredentialFields::NONE, &[]).is_empty());
    }

    fn matches(pattern: &str, path: &str) -> bool {
        let (pattern, is_open) = pattern.strip_suffix("/**").map_or((pattern, false), |pattern| (pattern, true));
        let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
        let fits = if is_open { pattern.len() <= path.len() } else { pattern.len() == path.len() };
        fits && pattern
            .iter()
            .zip(&path)
            .all(|(pattern, path)| pattern == path || pattern.starts_with('{') && !path.is_empty())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A pattern that covers another one matches every path that this one matches.
        #[test]
        fn covering_pattern_matches_all(
            first in "(/(a|[{]x[}])){1,3}(/[*][*])?",
            later in "(/(a|b|[{]x[}])){1,3}(/[*][*])?",
            path in "(/(a|b|)){1,4}",
        ) {
            prop_assert!(!covers_path(&first, &later) || !matches(&later, &path) || matches(&first, &path));
        }
    }
}
