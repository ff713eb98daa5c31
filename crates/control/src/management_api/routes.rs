//! Routing table of the management API. It and `docs/openapi-management.json` list the same operations and query
//! parameters; a test compares them.

use Endpoint::{
    CreateKey, CreateOrg, CreateRule, CreateToken, CreateUser, DisableKey, Document, EnableKey, Explain, ExportState,
    ImportKey, ListFoundKeys, ListKeys, ListOrgs, ListRecords, ListRules, ListTokens, ListUsers, ListUses, PatchKey,
    PatchOrg, PatchUser, PutKey, RemoveRule, RemoveUser, RevokeKey, RevokeToken, RotateKey, ShowActivity, ShowKey,
    ShowOrg, ShowRule, ShowUsage, ShowUser,
};

use crate::request::RouteError;

/// The operations of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Document,
    ExportState,
    ListOrgs,
    CreateOrg,
    ShowOrg,
    PatchOrg,
    ListUsers,
    CreateUser,
    ShowUser,
    PatchUser,
    RemoveUser,
    ListKeys,
    CreateKey,
    PutKey,
    ImportKey,
    ShowActivity,
    ListRules,
    CreateRule,
    ShowRule,
    RemoveRule,
    ListFoundKeys,
    ShowKey,
    PatchKey,
    RotateKey,
    RevokeKey,
    DisableKey,
    EnableKey,
    ListUses,
    Explain,
    ShowUsage,
    ListRecords,
    ListTokens,
    CreateToken,
    RevokeToken,
}

/// One row of the table.
#[derive(Debug)]
pub(super) struct Route {
    /// A method, where `GET` includes `HEAD`.
    method: &'static str,
    /// Path below `/v1/`. A segment in braces stands for any one segment.
    path: &'static str,
    pub(super) endpoint: Endpoint,
    /// Query parameters that are accepted; others are refused.
    pub(super) query: &'static [&'static str],
}

/// Query parameters of a list.
const PAGE: &[&str] = &["cursor", "limit"];
/// Query parameters of a list of keys.
const KEYS: &[&str] =
    &["cursor", "limit", "search", "name", "user", "status", "unused_for", "expires_within", "newest_first"];

/// Query parameters of usage.
const USAGE: &[&str] = &["by", "per", "since", "until", "org", "by_gateway", "scope"];
/// Query parameters of a list of audit records.
const RECORDS: &[&str] = &[
    "cursor", "limit", "org", "key", "user", "subject", "token", "since", "until", "id", "outcome", "refused", "kind",
];

const ROUTES: &[Route] = &[
    route("GET", "openapi.json", Document, &[]),
    route("GET", "state", ExportState, &[]),
    route("GET", "orgs", ListOrgs, PAGE),
    route("POST", "orgs", CreateOrg, &[]),
    route("GET", "orgs/{org}", ShowOrg, &[]),
    route("PATCH", "orgs/{org}", PatchOrg, &[]),
    route("GET", "orgs/{org}/users", ListUsers, PAGE),
    route("POST", "orgs/{org}/users", CreateUser, &[]),
    route("GET", "orgs/{org}/users/{user}", ShowUser, &[]),
    route("PATCH", "orgs/{org}/users/{user}", PatchUser, &[]),
    route("DELETE", "orgs/{org}/users/{user}", RemoveUser, &[]),
    route("GET", "orgs/{org}/keys", ListKeys, KEYS),
    route("POST", "orgs/{org}/keys", CreateKey, &[]),
    route("PUT", "orgs/{org}/keys/by-digest/{sha256}", PutKey, &[]),
    route("POST", "orgs/{org}/keys/import", ImportKey, &[]),
    route("GET", "orgs/{org}/activity", ShowActivity, &["keys"]),
    route("GET", "orgs/{org}/federation-rules", ListRules, PAGE),
    route("POST", "orgs/{org}/federation-rules", CreateRule, &[]),
    route("GET", "orgs/{org}/federation-rules/{rule}", ShowRule, &[]),
    route("DELETE", "orgs/{org}/federation-rules/{rule}", RemoveRule, &[]),
    route("GET", "keys", ListFoundKeys, &["sha256"]),
    route("GET", "keys/{key}", ShowKey, &[]),
    route("PATCH", "keys/{key}", PatchKey, &[]),
    route("POST", "keys/{key}/rotate", RotateKey, &[]),
    route("POST", "keys/{key}/revoke", RevokeKey, &[]),
    route("POST", "keys/{key}/disable", DisableKey, &[]),
    route("POST", "keys/{key}/enable", EnableKey, &[]),
    route("GET", "keys/{key}/requests", ListUses, &["cursor", "limit", "outcome", "refused"]),
    route("GET", "keys/{key}/explain", Explain, &[]),
    route("GET", "usage", ShowUsage, USAGE),
    route("GET", "audit", ListRecords, RECORDS),
    route("GET", "tokens", ListTokens, &["cursor", "limit", "org"]),
    route("POST", "tokens", CreateToken, &[]),
    route("DELETE", "tokens/{token}", RevokeToken, &["with_descendants"]),
];

const fn route(method: &'static str, path: &'static str, endpoint: Endpoint, query: &'static [&'static str]) -> Route {
    Route { method, path, endpoint, query }
}

/// Finds the route of a method and the segments of a path below `/v1/`, and the segments at the places of the braces.
pub(super) fn find<'a>(method: &str, segments: &[&'a str]) -> Result<(&'static Route, Vec<&'a str>), RouteError> {
    let same_path = || ROUTES.iter().filter_map(|route| Some((route, route.matches(segments)?)));
    let same_method = same_path().find(|(route, _)| route.method == method);
    same_method.ok_or_else(|| RouteError::new(same_path().map(|(route, _)| route.method)))
}

impl Route {
    /// Compares the path with these segments; on a match, the segments at the places of the braces.
    fn matches<'a>(&self, segments: &[&'a str]) -> Option<Vec<&'a str>> {
        let own = self.path.split('/');
        if own.clone().count() != segments.len() {
            return None;
        }
        let mut values = Vec::new();
        for (own, given) in own.zip(segments) {
            if own.starts_with('{') && !given.is_empty() {
                values.push(*given);
            } else if own != *given {
                return None;
            }
        }
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::DOCUMENT;
    use super::*;
    use crate::api_document::{self, Operations};

    fn found(method: &str, path: &'static str) -> Result<(Endpoint, Vec<&'static str>), RouteError> {
        let segments: Vec<&str> = path.split('/').collect();
        find(method, &segments).map(|(route, values)| (route.endpoint, values))
    }

    #[test]
    fn calls_find_their_routes() {
        assert_eq!(found("GET", "orgs"), Ok((ListOrgs, vec![])));
        assert_eq!(found("PATCH", "orgs/acme/users/ada"), Ok((PatchUser, vec!["acme", "ada"])));
        assert_eq!(found("POST", "keys/abc/rotate"), Ok((RotateKey, vec!["abc"])));
        for path in ["", "org", "orgs/", "orgs/acme/", "keys/", "keys//rotate", "keys/a/b/c", "orgs/a/users/b/c"] {
            assert_eq!(found("GET", path), Err(RouteError::NotFound), "{path}");
        }
        let allow = |methods: &str| Err(RouteError::MethodNotAllowed(methods.into()));
        assert_eq!(found("PUT", "orgs"), allow("GET, HEAD, POST"));
        assert_eq!(found("GET", "keys/abc/rotate"), allow("POST"));
    }

    #[test]
    fn routes_are_those_of_the_document() {
        let operation = |route: &Route| {
            let query = route.query.iter().map(|name| (*name).to_owned()).collect();
            ((route.method.to_owned(), format!("/{}", route.path)), query)
        };
        assert_eq!(api_document::operations(DOCUMENT), ROUTES.iter().map(operation).collect::<Operations>());
    }

    #[test]
    fn calls_read_by_get_and_change_by_other_methods() {
        for route in ROUTES {
            let name = format!("{:?}", route.endpoint);
            let reads = ["List", "Show", "Explain", "Export", "Document"].iter().any(|verb| name.starts_with(verb));
            assert_eq!(reads, route.method == "GET", "{name}");
        }
    }
}
