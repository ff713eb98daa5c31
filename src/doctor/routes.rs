//! Check of the routes: none at all, hidden ones, open ones, and requests that match none; and of the fields for keys.

use super::environment::Environment;
use super::finding::Findings;
use crate::admission::{RouteSettings, bypasses, hidden_routes};
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
    for (route, first) in hidden_routes(routes) {
        let found = format!("never used: route `{}` before it matches all its requests", first.name);
        findings.warning(format!("route `{}`", route.name), found, "list it before that one, or remove it");
    }
    for bypass in bypasses(routes) {
        findings.warning(format!("route `{}`", bypass.route.name), bypass.to_string(), bypass.advice());
    }
    let public: Vec<String> = routes.iter().filter(|route| route.is_public).map(RouteSettings::describe).collect();
    if !public.is_empty() {
        let found = format!("{} without an API key: {}", public.len(), public.join("; "));
        findings.note("routes", found, "remove `access: public` where callers should be known");
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
    route.permission.is_none() && route.serve.is_none() && !route.is_public
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity::{Note, Warning};
    use super::*;

    fn route(name: &str, methods: &[&str], path: &str) -> RouteSettings {
        RouteSettings {
            methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
            permission: "queries:read".parse().ok(),
            ..RouteSettings::new(name, path)
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
        assert_eq!(judged(&[all.clone(), one.clone()]), [(Warning, "route `one`".to_owned())]);
        let open = RouteSettings { permission: None, ..all };
        let passed_by = [(Warning, "route `one`".to_owned()), (Note, "routes".to_owned())];
        assert_eq!(judged(&[one.clone(), open]), passed_by);
        assert_eq!(judged(&[RouteSettings { permission: None, ..one }]), [(Note, "routes".to_owned())]);
        let public = RouteSettings { is_public: true, ..RouteSettings::new("health", "/health") };
        assert_eq!(judged(&[public]), [(Note, "routes".to_owned())], "it is found as public, and not as open");
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
}
