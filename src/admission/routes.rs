//! Routes: the action of a request, and the permission that it requires.
//!
//! - The first listed route that matches is the one. A path that some server could read as another one matches none.

use http::request::Parts;
use http::{HeaderValue, Method};

use super::settings::RouteSettings;
use crate::identity::Permission;
use crate::metrics::{Metrics, RouteMetrics};
use crate::state::RouteAccess;

/// Label `route` in the metrics of requests that match no listed route.
const NO_ROUTE: &str = "none";
/// Label `route` in the metrics of all requests when no routes are listed.
const UNLISTED: &str = "unlisted";

/// Routes in the order of the configuration.
#[derive(Debug)]
pub struct Routes {
    listed: Vec<(Pattern, Route)>,
    /// Route of requests that match no listed one.
    fallback: Route,
}

/// Route of a request.
#[derive(Debug)]
pub struct Route {
    /// Name, which is the action in audit records; none when the route is not listed.
    pub name: Option<String>,
    /// True if the request matches a route, or no routes are listed.
    pub exists: bool,
    /// Permission that the user must have; none: any authenticated caller may use the route.
    pub permission: Option<Permission>,
    /// True if audit records show the query string.
    pub query_in_audit: bool,
    /// Protocols to which a connection may be switched.
    pub upgrade: Vec<HeaderValue>,
    /// True if responses may have trailers.
    pub trailers: bool,
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

#[derive(Debug)]
struct Pattern {
    methods: Vec<Method>,
    segments: Vec<Segment>,
    /// True if any segments may follow: the pattern ends with `/**`.
    has_rest: bool,
}

#[derive(Debug)]
enum Segment {
    Literal(String),
    Any,
}

impl Routes {
    /// Routes of the configuration. With none, every authenticated caller may send any request.
    pub fn new(settings: &[RouteSettings], metrics: &Metrics) -> Self {
        let listed = settings.iter().map(|route| (Pattern::new(route), Route::listed(route, metrics))).collect();
        let fallback = if settings.is_empty() { Route::unlisted(metrics) } else { Route::missing(metrics) };
        Self { listed, fallback }
    }

    /// Finds the route of a request.
    pub fn find(&self, head: &Parts) -> &Route {
        let path = head.uri.path();
        let found = self.listed.iter().find(|(pattern, _)| pattern.matches(&head.method, path));
        match found {
            Some((_, route)) if is_plain(path) => route,
            _ => &self.fallback,
        }
    }
}

impl Route {
    fn listed(route: &RouteSettings, metrics: &Metrics) -> Self {
        Self {
            name: Some(route.name.clone()),
            exists: true,
            permission: route.permission.clone(),
            query_in_audit: route.query_in_audit,
            upgrade: route.upgrade.clone(),
            trailers: route.trailers,
            metrics: metrics.route(&route.name),
        }
    }

    /// Route of all requests when no routes are listed.
    fn unlisted(metrics: &Metrics) -> Self {
        Self::unnamed(true, metrics.route(UNLISTED))
    }

    /// Stands for requests that no listed route matches.
    fn missing(metrics: &Metrics) -> Self {
        Self::unnamed(false, metrics.route(NO_ROUTE))
    }

    fn unnamed(exists: bool, metrics: RouteMetrics) -> Self {
        let upgrade = Vec::new();
        Self { name: None, exists, permission: None, query_in_audit: false, upgrade, trailers: false, metrics }
    }

    /// Access that the state grants to authenticated callers.
    pub(super) fn access(&self) -> RouteAccess<'_> {
        match &self.permission {
            _ if !self.exists => RouteAccess::NoRoute,
            None => RouteAccess::Everyone,
            Some(permission) => RouteAccess::Permission(permission),
        }
    }
}

impl Pattern {
    fn new(route: &RouteSettings) -> Self {
        let (path, has_rest) = route.path.strip_suffix("/**").map_or((&*route.path, false), |path| (path, true));
        let segment = |text: &str| match text.starts_with('{') && text.ends_with('}') {
            true => Segment::Any,
            false => Segment::Literal(text.to_owned()),
        };
        Self { methods: route.methods.clone(), segments: path.split('/').skip(1).map(segment).collect(), has_rest }
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.matches_method(method) && self.matches_path(path)
    }

    fn matches_method(&self, method: &Method) -> bool {
        // A route for GET is one for HEAD, too (RFC 9110, section 9.3.2).
        let is_head = |listed: &Method| listed == Method::GET && method == Method::HEAD;
        self.methods.is_empty() || self.methods.iter().any(|listed| listed == method || is_head(listed))
    }

    fn matches_path(&self, path: &str) -> bool {
        let mut given = path.split('/').skip(1);
        let each = self.segments.iter().all(|segment| match (segment, given.next()) {
            (Segment::Literal(literal), Some(given)) => literal == given,
            (Segment::Any, Some(given)) => !given.is_empty(),
            (_, None) => false,
        });
        each && (self.has_rest || given.next().is_none())
    }
}

/// Returns whether every server reads this path as the same segments. The upstream could take another resource than the
/// one that the permission was checked for, when a path has empty or dot segments, parameters (`;…`), which some servers
/// cut off, or a backslash; and when a slash, a NUL, or a character that needs no encoding is encoded (RFC 3986, section
/// 2.3).
fn is_plain(path: &str) -> bool {
    !path.contains("//")
        && !path.contains(['\\', ';'])
        && !path.split('/').any(|segment| matches!(segment, "." | ".."))
        && !path.match_indices('%').any(|(at, _)| is_bad_escape(&path.as_bytes()[at + 1..]))
}

/// Returns whether the two digits after a `%` encode a character that should not be encoded, or are no digits.
fn is_bad_escape(rest: &[u8]) -> bool {
    let digit = |at: usize| rest.get(at).and_then(|digit| char::from(*digit).to_digit(16));
    let (Some(high), Some(low)) = (digit(0), digit(1)) else { return true };
    let byte = u8::try_from(high * 16 + low).expect("two hexadecimal digits are a byte");
    byte.is_ascii_alphanumeric() || matches!(byte, 0 | b'-' | b'.' | b'_' | b'~' | b'/' | b'\\' | b';')
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn routes() -> Routes {
        let route = |name: &str, methods: &[Method], path: &str| RouteSettings {
            name: name.into(),
            methods: methods.to_vec(),
            path: path.into(),
            permission: None,
            query_in_audit: false,
            upgrade: Vec::new(),
            trailers: false,
        };
        let all = [
            route("list", &[Method::GET], "/api/queries"),
            route("one", &[Method::GET], "/api/queries/{id}"),
            route("files", &[], "/files/**"),
        ];
        Routes::new(&all, &Metrics::new())
    }

    fn found<'a>(routes: &'a Routes, method: &str, path: &str) -> Option<&'a str> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let route = routes.find(&request.into_parts().0);
        assert_eq!(route.exists, route.name.is_some());
        route.name.as_deref()
    }

    #[test]
    fn route_is_found_by_method_and_path() {
        let routes = routes();
        assert_eq!(found(&routes, "GET", "/api/queries?limit=1"), Some("list"));
        assert_eq!(found(&routes, "HEAD", "/api/queries"), Some("list"));
        assert_eq!(found(&routes, "POST", "/api/queries"), None);
        assert_eq!(found(&routes, "GET", "/api/queries/7"), Some("one"));
        assert_eq!(found(&routes, "GET", "/api/queries/"), None);
        assert_eq!(found(&routes, "GET", "/api/queries/7/8"), None);
        assert_eq!(found(&routes, "PATCH", "/files/a/b"), Some("files"));
        assert_eq!(found(&routes, "GET", "/other"), None);
    }

    #[test]
    fn ambiguous_path_matches_no_route() {
        let routes = routes();
        for path in [
            "/files/../api",
            "/files/./a",
            "/files//a",
            "/files/..;/a",
            "/files/.;x/a",
            "/files/;/a",
            "/files/%2e%2E/a",
            "/files/a%2fb",
            "/files/%00",
            "/files/a%5Cb",
            "/files/%61",
            "/files/a%2Db",
            "/files/a;b",
            "/files/a%3bb",
            "/files/a%",
            "/files/a%zz",
        ] {
            assert_eq!(found(&routes, "GET", path), None, "{path}");
        }
        assert_eq!(found(&routes, "GET", "/files/a%20b%25%C3%A4/.hidden"), Some("files"));
    }

    #[test]
    fn every_request_is_allowed_without_routes() {
        let routes = Routes::new(&[], &Metrics::new());
        let request = Request::get("/any/../thing").body(()).unwrap();
        let parts = request.into_parts().0;
        let route = routes.find(&parts);
        assert!(route.exists && route.permission.is_none());
    }
}
