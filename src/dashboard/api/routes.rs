//! The API's endpoints: one table, which requests are routed by, and which the OpenAPI document is held against.

/// One thing that the API does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    ShowSession,
    ChooseOrg,
    SignOut,
    ShowOrg,
    ListUsers,
    ListKeys,
    CreateKey,
    ShowKey,
    RevokeKey,
    RotateKey,
    ListUses,
    Explain,
    Activity,
    ListSessions,
    EndSession,
}

/// Where one thing is done.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// Below `api/v1`; a segment in braces stands for any.
    path: &'static str,
    pub(super) endpoint: Endpoint,
    /// The parameters that its query may have.
    pub(super) query: &'static [&'static str],
}

/// Where a request leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteMatch<'a> {
    pub(super) route: &'static Route,
    /// What stands at the place of the segment in braces.
    pub(super) id: Option<&'a str>,
}

/// Why a request leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RouteError {
    /// There is no such path.
    Path,
    /// There is, for these methods.
    Method(String),
}

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    route("GET",    "session",                Endpoint::ShowSession,  &[]),
    route("PATCH",  "session",                Endpoint::ChooseOrg,    &[]),
    route("DELETE", "session",                Endpoint::SignOut,      &[]),
    route("GET",    "org",                    Endpoint::ShowOrg,      &[]),
    route("GET",    "users",                  Endpoint::ListUsers,    &[]),
    route("GET",    "keys",                   Endpoint::ListKeys,     &[]),
    route("POST",   "keys",                   Endpoint::CreateKey,    &[]),
    route("GET",    "keys/{key}",             Endpoint::ShowKey,      &[]),
    route("POST",   "keys/{key}/revoke",      Endpoint::RevokeKey,    &[]),
    route("POST",   "keys/{key}/rotate",      Endpoint::RotateKey,    &[]),
    route("GET",    "keys/{key}/uses",        Endpoint::ListUses,     &["outcome", "refused", "before", "limit"]),
    route("GET",    "keys/{key}/explanation", Endpoint::Explain,      &[]),
    route("GET",    "keys/{key}/activity",    Endpoint::Activity,     &[]),
    route("GET",    "sessions",               Endpoint::ListSessions, &[]),
    route("DELETE", "sessions/{session}",     Endpoint::EndSession,   &[]),
];

const fn route(method: &'static str, path: &'static str, endpoint: Endpoint, query: &'static [&'static str]) -> Route {
    Route { method, path, endpoint, query }
}

/// Where a request with this method (`GET` for `HEAD`) and these segments leads to.
pub(super) fn find<'a>(method: &str, segments: &[&'a str]) -> Result<RouteMatch<'a>, RouteError> {
    let here = || ROUTES.iter().filter_map(|route| Some((route, route.matches(segments)?)));
    match here().find(|(route, _)| route.method == method) {
        Some((route, id)) => Ok(RouteMatch { route, id }),
        None if here().next().is_none() => Err(RouteError::Path),
        None => Err(RouteError::Method(allowed(here().map(|(route, _)| route.method)))),
    }
}

/// The value of `Allow`: who answers `GET` answers `HEAD`.
fn allowed(methods: impl Iterator<Item = &'static str>) -> String {
    let methods: Vec<&str> = methods.map(|method| if method == "GET" { "GET, HEAD" } else { method }).collect();
    methods.join(", ")
}

impl Route {
    /// What stands at the place of the segment in braces, if anything does; none when the path is another.
    fn matches<'a>(&self, segments: &[&'a str]) -> Option<Option<&'a str>> {
        let mut id = None;
        let own = self.path.split('/');
        if own.clone().count() != segments.len() {
            return None;
        }
        for (own, found) in own.zip(segments) {
            match own.starts_with('{') {
                true if !found.is_empty() => id = Some(*found),
                false if own == *found => {}
                _ => return None,
            }
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::super::DOCUMENT;
    use super::*;

    /// Methods and paths, each with the parameters of its query.
    type Map = BTreeMap<(String, String), BTreeSet<String>>;

    fn documented() -> Map {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut map = Map::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let query = parameters.filter(|parameter| parameter["in"] == "query");
                let names = query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect();
                map.insert((method.to_uppercase(), path.clone()), names);
            }
        }
        map
    }

    #[test]
    fn every_route_is_documented_and_nothing_else_is() {
        let entry = |route: &Route| {
            let query = route.query.iter().map(|name| (*name).to_owned()).collect();
            ((route.method.to_owned(), format!("/{}", route.path)), query)
        };
        assert_eq!(documented(), ROUTES.iter().map(entry).collect::<Map>());
    }

    #[test]
    fn what_changes_something_is_no_safe_method() {
        for route in ROUTES {
            let reads = matches!(
                route.endpoint,
                Endpoint::ShowSession
                    | Endpoint::ShowOrg
                    | Endpoint::ListUsers
                    | Endpoint::ListKeys
                    | Endpoint::ShowKey
                    | Endpoint::ListUses
                    | Endpoint::Explain
                    | Endpoint::Activity
                    | Endpoint::ListSessions
            );
            assert_eq!(reads, route.method == "GET", "{}", route.path);
        }
    }

    #[test]
    fn requests_find_their_way() {
        let id = |method, segments: &[&'static str]| find(method, segments).map(|found| found.id);
        assert_eq!(id("GET", &["keys"]), Ok(None));
        assert_eq!(id("GET", &["keys", "abc", "uses"]), Ok(Some("abc")));
        for nowhere in [&["keys", ""][..], &["key"], &[""], &[], &["keys", "abc", "x"], &["keys", "abc", "uses", ""]] {
            assert_eq!(id("GET", nowhere), Err(RouteError::Path), "{nowhere:?}");
        }
        assert_eq!(id("PUT", &["session"]), Err(RouteError::Method("GET, HEAD, PATCH, DELETE".into())));
        assert_eq!(id("get", &["org"]), Err(RouteError::Method("GET, HEAD".into())));
    }
}
