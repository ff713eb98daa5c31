//! The dashboard's routing table: assets, signing in and out, and pages. The API has its own.
//!
//! - [`find`] alone maps a method and a path to an endpoint. 404, and 405 with `Allow`, come from the table.

use std::borrow::Cow;

use http::Method;

use super::api;
use super::endpoints::{PageEndpoint, SignInEndpoint};
use crate::management::RouteError;
use Endpoint::{Asset, Page, SignIn};

/// The code behind a route, by the part of the dashboard that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A file of the binary. Served for any method, to anybody.
    Asset,
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
}

/// The route of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteMatch<'a> {
    pub(super) route: &'static Route,
    /// The segment at the place of the braces; empty when the path has none.
    pub(super) value: &'a str,
}

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
    page("GET",  "overview",              Page(PageEndpoint::ShowOverview)),
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
    page("GET",  "users/new",             Page(PageEndpoint::ShowAddUser)),
    page("POST", "users/new",             Page(PageEndpoint::AddUser)),
    page("GET",  "users/{user}",          Page(PageEndpoint::ShowUser)),
    page("POST", "users/{user}/permissions", Page(PageEndpoint::PermitUser)),
    page("POST", "users/{user}/link",     Page(PageEndpoint::CreateLink)),
    page("POST", "users/{user}/remove",   Page(PageEndpoint::RemoveUser)),
    page("GET",  "users/{user}/suspend",  Page(PageEndpoint::ShowSuspendUser)),
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
];

const fn page(method: &'static str, path: &'static str, endpoint: Endpoint) -> Route {
    Route { method, path, endpoint }
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
    let is_page = || matches!(find("GET", &segments).map(|found| found.route.endpoint), Ok(Page(_)));
    [Method::GET, Method::HEAD].contains(method) && (api::is_api(&segments) || is_page())
}

/// A path of the server without the token of a sign-in link, which is as good as a credential.
pub(super) fn hide_token<'a>(base: &str, path: &'a str) -> Cow<'a, str> {
    let token = path.strip_prefix(base).and_then(|below| below.strip_prefix(TOKEN_PREFIX));
    match token {
        Some(token) if !token.is_empty() => format!("{base}{TOKEN_PREFIX}…").into(),
        _ => path.into(),
    }
}

/// Returns `true` if a path is among the pages for signed-in users, also when no page has it: a visitor is sent to sign
/// in before the dashboard says which of these addresses exist.
pub(super) fn requires_session(segments: &[&str]) -> bool {
    matches!(segments, [""] | ["overview" | "keys" | "audit" | "users" | "sessions" | "tokens", ..])
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
            // Of an empty id, the handler says what is wrong.
            if !is_parameter && own != *given {
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
            ("DELETE", "assets/keygate.css", Asset, "keygate.css"),
        ] {
            assert_eq!(find(method, path), Ok((endpoint, value)), "{method} {path}");
        }
        for path in ["key", "keys/abc/x", "api", "assets"] {
            assert_eq!(find("GET", path), Err(RouteError::NotFound), "{path}");
        }
        for (method, path, allow) in [
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
