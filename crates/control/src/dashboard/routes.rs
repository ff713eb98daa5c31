//! The dashboard's routing table: assets, signing in and out, pages and the JSON API in one list.
//!
//! - [`find`] alone maps a method and a path to an endpoint. 404, and 405 with `Allow`, come from the table.
//! - The API's rows and `docs/openapi.json` list the same operations and query parameters; a test compares them.

use std::borrow::Cow;

use http::Method;

use super::endpoints::{ApiEndpoint, PageEndpoint, SignInEndpoint};
use crate::request::RouteError;
use Endpoint::{Api, ApiDocument, Asset, Page, SignIn};

/// The code behind a route, by the part of the dashboard that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A file of the binary. Served for any method, to anybody.
    Asset,
    /// The OpenAPI document. Served without a session.
    ApiDocument,
    /// An operation of the JSON API.
    Api(ApiEndpoint),
    /// A step of signing in or out. Reached without a session.
    SignIn(SignInEndpoint),
    /// A page or form for signed-in users.
    Page(PageEndpoint),
}

/// One row of the table.
#[derive(Debug)]
pub(super) struct Route {
    /// A method, where `GET` includes `HEAD`; or [`ANY`].
    method: &'static str,
    /// Path below the dashboard's. A segment in braces stands for any one segment.
    path: &'static str,
    pub(super) endpoint: Endpoint,
    /// Query parameters that are accepted, others being refused. `None` for pages, which ignore what they do not read:
    /// links to them may carry anything.
    pub(super) query: Option<&'static [&'static str]>,
}

/// The route of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteMatch<'a> {
    pub(super) route: &'static Route,
    /// The segment at the place of the braces; empty when the path has none.
    pub(super) value: &'a str,
}

/// The path of the API below the dashboard's.
pub(super) const API: &str = "api/v1";
/// Query parameters of a list.
const PAGE: &[&str] = &["cursor", "limit"];
/// Beginning of the paths of sign-in links below the dashboard's: their token follows.
const TOKEN_PREFIX: &str = "/link/";
/// Every method.
const ANY: &str = "*";

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    page(ANY,    "assets/{name}",         Asset),

    page("GET",  "sign-in",               SignIn(SignInEndpoint::ShowProviders)),
    page("POST", "sign-in",               SignIn(SignInEndpoint::FindProvider)),
    page("POST", "sign-in/{provider}",    SignIn(SignInEndpoint::BeginSignIn)),
    page("GET",  "callback/{provider}",   SignIn(SignInEndpoint::FinishSignIn)),
    page("GET",  "link/{link_token}",     SignIn(SignInEndpoint::ShowLink)),
    page("POST", "link/{link_token}",     SignIn(SignInEndpoint::RedeemLink)),
    page("POST", "sign-out",              SignIn(SignInEndpoint::SignOut)),
    page("GET",  "signed-out",            SignIn(SignInEndpoint::ShowSignedOut)),
    page("POST", "org",                   SignIn(SignInEndpoint::ChooseOrg)),

    page("GET",  "",                      Page(PageEndpoint::Home)),
    page("GET",  "keys",                  Page(PageEndpoint::ListKeys)),
    page("POST", "keys",                  Page(PageEndpoint::SearchKeys)),
    page("GET",  "keys/new",              Page(PageEndpoint::ShowCreateKey)),
    page("POST", "keys/new",              Page(PageEndpoint::CreateKey)),
    page("GET",  "keys/selected",         Page(PageEndpoint::ShowSelectedKeys)),
    page("POST", "keys/selected",         Page(PageEndpoint::ChangeSelectedKeys)),
    page("GET",  "keys/{key}",            Page(PageEndpoint::ShowKey)),
    page("GET",  "keys/{key}/new",        Page(PageEndpoint::ShowNewKey)),
    page("GET",  "keys/{key}/policy",     Page(PageEndpoint::ShowKeyPolicy)),
    page("POST", "keys/{key}/policy",     Page(PageEndpoint::SetKeyPolicy)),
    page("POST", "keys/{key}/disable",    Page(PageEndpoint::DisableKey)),
    page("POST", "keys/{key}/enable",     Page(PageEndpoint::EnableKey)),
    page("GET",  "keys/{key}/revoke",     Page(PageEndpoint::ShowRevokeKey)),
    page("POST", "keys/{key}/revoke",     Page(PageEndpoint::RevokeKey)),
    page("GET",  "keys/{key}/rotate",     Page(PageEndpoint::ShowRotateKey)),
    page("POST", "keys/{key}/rotate",     Page(PageEndpoint::RotateKey)),
    page("GET",  "audit",                 Page(PageEndpoint::ListChanges)),
    page("GET",  "users",                 Page(PageEndpoint::ListUsers)),
    page("POST", "users/{user}/suspend",  Page(PageEndpoint::SuspendUser)),
    page("POST", "users/{user}/resume",   Page(PageEndpoint::ResumeUser)),
    page("GET",  "sessions",              Page(PageEndpoint::ListSessions)),
    page("POST", "sessions/end-others",   Page(PageEndpoint::EndOtherSessions)),
    page("POST", "sessions/{session}/end", Page(PageEndpoint::EndSession)),
    page("GET",  "tokens",                Page(PageEndpoint::ListTokens)),
    page("GET",  "tokens/new",            Page(PageEndpoint::ShowCreateToken)),
    page("POST", "tokens/new",            Page(PageEndpoint::CreateToken)),
    page("GET",  "tokens/{token}/new",    Page(PageEndpoint::ShowNewToken)),
    page("GET",  "tokens/{token}/revoke", Page(PageEndpoint::ShowRevokeToken)),
    page("POST", "tokens/{token}/revoke", Page(PageEndpoint::RevokeToken)),

    page("GET",  "api/openapi.json",      ApiDocument),
    api("GET",    "api/v1/session",                ApiEndpoint::ShowSession,  &[]),
    api("PATCH",  "api/v1/session",                ApiEndpoint::ChooseOrg,    &[]),
    api("DELETE", "api/v1/session",                ApiEndpoint::SignOut,      &[]),
    api("GET",    "api/v1/org",                    ApiEndpoint::ShowOrg,      &[]),
    api("GET",    "api/v1/users",                  ApiEndpoint::ListUsers,    PAGE),
    api("GET",    "api/v1/keys",                   ApiEndpoint::ListKeys,     PAGE),
    api("POST",   "api/v1/keys",                   ApiEndpoint::CreateKey,    &[]),
    api("GET",    "api/v1/keys/{key}",             ApiEndpoint::ShowKey,      &[]),
    api("PATCH",  "api/v1/keys/{key}",             ApiEndpoint::SetKey,       &[]),
    api("POST",   "api/v1/keys/{key}/disable",     ApiEndpoint::DisableKey,   &[]),
    api("POST",   "api/v1/keys/{key}/enable",      ApiEndpoint::EnableKey,    &[]),
    api("POST",   "api/v1/keys/{key}/revoke",      ApiEndpoint::RevokeKey,    &[]),
    api("POST",   "api/v1/keys/{key}/rotate",      ApiEndpoint::RotateKey,    &[]),
    api("GET",    "api/v1/keys/{key}/requests",    ApiEndpoint::ListUses,     &["outcome", "refused", "cursor",
        "limit"]),
    api("GET",    "api/v1/keys/{key}/explanation", ApiEndpoint::Explain,      &[]),
    api("GET",    "api/v1/keys/{key}/activity",    ApiEndpoint::Activity,     &[]),
    api("GET",    "api/v1/changes",                ApiEndpoint::ListChanges,  PAGE),
    api("GET",    "api/v1/sessions",               ApiEndpoint::ListSessions, PAGE),
    api("DELETE", "api/v1/sessions",               ApiEndpoint::EndOtherSessions, &[]),
    api("DELETE", "api/v1/sessions/{session}",     ApiEndpoint::EndSession,   &[]),
    api("GET",    "api/v1/tokens",                 ApiEndpoint::ListTokens,   PAGE),
    api("POST",   "api/v1/tokens",                 ApiEndpoint::CreateToken,  &[]),
    api("DELETE", "api/v1/tokens/{token}",         ApiEndpoint::RevokeToken,  &["with_descendants"]),
];

const fn page(method: &'static str, path: &'static str, endpoint: Endpoint) -> Route {
    Route { method, path, endpoint, query: None }
}

const fn api(method: &'static str, path: &'static str, endpoint: ApiEndpoint, query: &'static [&'static str]) -> Route {
    Route { method, path, endpoint: Api(endpoint), query: Some(query) }
}

/// Finds the route for a method (`GET` for `HEAD`) and the segments of a path below the dashboard's.
pub(super) fn find<'a>(method: &str, segments: &[&'a str]) -> Result<RouteMatch<'a>, RouteError> {
    let same_path = || ROUTES.iter().filter_map(|route| Some(RouteMatch { route, value: route.matches(segments)? }));
    let mut same_method = same_path().filter(|found| [method, ANY].contains(&found.route.method));
    same_method.next().ok_or_else(|| RouteError::new(same_path().map(|found| found.route.method)))
}

/// Returns `true` if a request to a path of the server only reads: it can be abandoned when its client is gone. The
/// steps of signing in are none of these: a callback, for one, redeems its sign-in.
pub(super) fn is_read(method: &Method, base: &str, path: &str) -> bool {
    let Some(below) = path.strip_prefix(base) else { return false };
    let segments: Vec<&str> = below.strip_prefix('/').unwrap_or(below).split('/').collect();
    let endpoint = || find("GET", &segments).map(|found| found.route.endpoint);
    [Method::GET, Method::HEAD].contains(method) && matches!(endpoint(), Ok(Api(_) | Page(_)))
}

/// A path of the server without the token of a sign-in link, which is as good as a credential.
pub(super) fn hide_token<'a>(base: &str, path: &'a str) -> Cow<'a, str> {
    let token = path.strip_prefix(base).and_then(|below| below.strip_prefix(TOKEN_PREFIX));
    match token {
        Some(token) if !token.is_empty() => format!("{base}{TOKEN_PREFIX}…").into(),
        _ => path.into(),
    }
}

/// Returns `true` if a path belongs to the API: errors there are problems, and pages elsewhere.
pub(super) fn is_api(segments: &[&str]) -> bool {
    segments.first() == Some(&"api")
}

/// Returns `true` if a path is among the pages for signed-in users, also when no page has it: a visitor is sent to sign
/// in before the dashboard says which of these addresses exist.
pub(super) fn requires_session(segments: &[&str]) -> bool {
    matches!(segments, [""] | ["keys" | "audit" | "users" | "sessions" | "tokens", ..])
}

impl Route {
    /// Compares the path with these segments: on a match, the segment at the place of the braces, or an empty text.
    fn matches<'a>(&self, segments: &[&'a str]) -> Option<&'a str> {
        let own = self.path.split('/');
        if own.clone().count() != segments.len() {
            return None;
        }
        let mut value = "";
        for (own, given) in own.zip(segments) {
            let is_parameter = own.starts_with('{');
            // In the API, `keys/` is no path. On pages, the handler says what is wrong with an empty id.
            let is_missing = is_parameter && given.is_empty() && matches!(self.endpoint, Api(_));
            if is_missing || !is_parameter && own != *given {
                return None;
            }
            if is_parameter {
                value = given;
            }
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_document::{self, Operations};

    /// The API's description.
    const DOCUMENT: &str = include_str!("../../../../docs/openapi.json");

    #[test]
    fn token_of_a_sign_in_link_is_hidden() {
        assert_eq!(hide_token("/settings", "/settings/link/abc/d"), "/settings/link/…");
        assert_eq!(hide_token("/settings", "/settings/keys/abc"), "/settings/keys/abc");
        assert_eq!(hide_token("/settings", "/other/link/abc"), "/other/link/abc");
        let with_token = ROUTES.iter().filter(|route| route.path.contains("{link_token}"));
        for route in with_token {
            let path = format!("/settings/{}", route.path);
            assert_eq!(hide_token("/settings", &path), "/settings/link/…", "{path}");
        }
    }

    #[test]
    fn api_routes_are_those_of_the_document() {
        let operation = |route: &Route| {
            let query = route.query?.iter().map(|name| (*name).to_owned()).collect();
            Some(((route.method.to_owned(), route.path.strip_prefix(API)?.to_owned()), query))
        };
        assert_eq!(api_document::operations(DOCUMENT), ROUTES.iter().filter_map(operation).collect::<Operations>());
        for route in ROUTES {
            assert_eq!(matches!(route.endpoint, Api(_)), route.path.starts_with(API), "{}", route.path);
        }
    }

    #[test]
    fn api_reads_by_get_and_changes_by_other_methods() {
        for route in ROUTES {
            let Api(endpoint) = route.endpoint else { continue };
            let reads = matches!(
                endpoint,
                ApiEndpoint::ShowSession
                    | ApiEndpoint::ShowOrg
                    | ApiEndpoint::ListUsers
                    | ApiEndpoint::ListKeys
                    | ApiEndpoint::ShowKey
                    | ApiEndpoint::ListUses
                    | ApiEndpoint::Explain
                    | ApiEndpoint::Activity
                    | ApiEndpoint::ListChanges
                    | ApiEndpoint::ListSessions
                    | ApiEndpoint::ListTokens
            );
            assert_eq!(reads, route.method == "GET", "{}", route.path);
        }
    }

    #[test]
    fn pages_require_a_session_and_signing_in_does_not() {
        for route in ROUTES {
            let segments: Vec<&str> = route.path.split('/').collect();
            assert_eq!(matches!(route.endpoint, Page(_)), requires_session(&segments), "{}", route.path);
        }
        assert!(requires_session(&["keys", "x", "y", "z"]) && !requires_session(&["", "x"]));
    }

    #[test]
    fn only_reads_are_abandoned_with_their_clients() {
        let reads = |method, path| is_read(&method, "/settings", path);
        for path in
            ["/settings/keys", "/settings/keys/aB3dE6gH9", "/settings/api/v1/keys/aB3dE6gH9/requests", "/settings"]
        {
            assert!(reads(Method::GET, path) && reads(Method::HEAD, path), "{path}");
        }
        for path in ["/settings/callback/corp", "/settings/link/x", "/settings/sign-in", "/settings/none", "/else"] {
            assert!(!reads(Method::GET, path), "{path}");
        }
        assert!(!reads(Method::POST, "/settings/keys/new") && !reads(Method::DELETE, "/settings/api/v1/session"));
    }

    #[test]
    fn requests_find_their_routes() {
        let find = |method, path: &'static str| {
            let segments: Vec<&str> = path.split('/').collect();
            find(method, &segments).map(|found| (found.route.endpoint, found.value))
        };
        for (method, path, endpoint, value) in [
            ("GET", "", Page(PageEndpoint::Home), ""),
            ("GET", "keys/new", Page(PageEndpoint::ShowCreateKey), ""),
            ("GET", "keys/abc", Page(PageEndpoint::ShowKey), "abc"),
            ("GET", "keys/", Page(PageEndpoint::ShowKey), ""),
            ("GET", "api/v1/keys", Api(ApiEndpoint::ListKeys), ""),
            ("GET", "api/v1/keys/abc/requests", Api(ApiEndpoint::ListUses), "abc"),
            ("DELETE", "assets/keygate.css", Asset, "keygate.css"),
        ] {
            assert_eq!(find(method, path), Ok((endpoint, value)), "{method} {path}");
        }
        for path in
            ["key", "keys/abc/x", "api", "api/", "api/v1", "api/v1/keys/", "api/v1/keys/abc/requests/", "assets"]
        {
            assert_eq!(find("GET", path), Err(RouteError::NotFound), "{path}");
        }
        for (method, path, allow) in [
            ("PUT", "api/v1/session", "GET, HEAD, PATCH, DELETE"),
            ("get", "api/v1/org", "GET, HEAD"),
            ("POST", "api/openapi.json", "GET, HEAD"),
            ("POST", "", "GET, HEAD"),
            ("POST", "keys/abc", "GET, HEAD"),
            ("PUT", "keys/new", "GET, HEAD, POST"),
            ("PUT", "keys/abc/rotate", "GET, HEAD, POST"),
            ("GET", "sessions/abc/end", "POST"),
            ("GET", "sign-in/", "POST"),
            ("PUT", "callback/corp", "GET, HEAD"),
        ] {
            assert_eq!(find(method, path), Err(RouteError::MethodNotAllowed(allow.to_owned())), "{method} {path}");
        }
    }
}
