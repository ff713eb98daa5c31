//! Routes: the action of a request, and the permission that it requires.
//!
//! - The first listed route that matches is the one. Paths are compared decoded, as servers hand them to applications.
//!   A path that some server could read as another one matches none.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method};

use super::cors::{CorsPolicy, CorsSettings, preflight_method};
use super::host::HostTrees;
use super::path::{LenientPath, comparable};
use super::route_tree::RouteTree;
use super::settings::{CostSource, RouteSettings, ServedResource};
use domain::budget::Cost;
use domain::head_fields::CredentialFields;
use domain::identity::Permission;
use platform::metrics::{Metrics, PublicRouteMetrics, RouteMetrics};
use prometheus::IntCounter;
use state::RouteAccess;

/// Label `route` in the metrics of requests that match no listed route.
const NO_ROUTE: &str = "none";
/// Label `route` in the metrics of all requests when no routes are listed.
const UNLISTED: &str = "unlisted";

/// Methods that clients commonly use, which every preflight is tried for.
const REGISTERED: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Routes of the configuration.
#[derive(Debug)]
pub struct Routes {
    /// In the order of the configuration.
    listed: Vec<Route>,
    /// Those for all hosts.
    tree: RouteTree,
    /// Those for some hosts; none when there are none.
    hosts: Option<HostTrees>,
    /// Route of requests that match no listed one.
    fallback: Route,
    /// True if a route passes encoded slashes or empty segments.
    is_lenient: bool,
    /// True if a route has a policy for other origins.
    has_cors: bool,
    /// Methods that a preflight may be told of: the registered ones, and those of the routes.
    methods: Vec<Method>,
}

/// Route of a request.
#[derive(Debug)]
pub struct Route {
    /// Name, which is the action in audit records; none when the route is not listed.
    pub name: Option<String>,
    /// Pattern of the path; none when the route is not listed.
    pub path: Option<Box<str>>,
    /// True if the request matches a route, or no routes are listed.
    pub exists: bool,
    /// Upstream that requests go to: its place in the list of upstreams.
    pub upstream: usize,
    /// Policy for other origins; none: the gateway says nothing of them.
    pub cors: Option<Arc<CorsPolicy>>,
    /// Resource that the gateway answers with itself; none: the upstream answers.
    pub serve: Option<ServedResource>,
    /// Beginning of each path that the route matches, up to the end of a segment, which the upstream does not see.
    pub strip_prefix: Option<Box<str>>,
    /// Metrics of a public route, whose requests need no key; none: the caller must be known.
    pub public: Option<PublicRouteMetrics>,
    /// Permission that the user must have; none: any authenticated caller may use the route.
    pub permission: Option<Permission>,
    /// Cost of a request.
    pub cost: Cost,
    /// Field of the response that says what the request has cost of a budget; none: the cost is known beforehand.
    pub cost_from: Option<MeteredCost>,
    /// True if `Authorization` is the upstream's: the key comes in another field.
    pub pass_authorization: bool,
    /// True if audit records show the query string.
    pub query_in_audit: bool,
    /// True if the access log shows the query string.
    pub log_query: bool,
    /// Protocols to which a connection may be switched.
    pub upgrade: Vec<HeaderValue>,
    /// True if responses may have trailers.
    pub trailers: bool,
    /// True if requests may be executed twice, whatever their method.
    pub idempotent: bool,
    /// True if paths may have encoded slashes, each a character of its segment.
    pub encoded_slash: bool,
    /// True if paths may have empty segments, which are left out where paths are compared.
    pub empty_segments: bool,
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

/// Cost that responses say.
#[derive(Debug)]
pub struct MeteredCost {
    /// Place in which they say it.
    pub source: CostSource,
    /// Counter of requests that cost more than they had reserved.
    pub over: IntCounter,
}

impl Routes {
    /// Routes of the configuration. With none, every authenticated caller may send any request.
    pub fn new(settings: &[RouteSettings], metrics: &Metrics) -> Self {
        let listed = settings.iter().map(|route| Route::listed(route, metrics)).collect();
        let mut tree = RouteTree::default();
        for (number, route) in settings.iter().enumerate().filter(|(_, route)| route.host.is_none()) {
            tree.add(number, &route.methods, &route.path);
        }
        let with_host = settings
            .iter()
            .enumerate()
            .filter_map(|(number, route)| Some((route.host.as_ref()?, number, &route.methods[..], &route.path[..])));
        let hosts = HostTrees::new(with_host);
        let fallback = if settings.is_empty() { Route::unlisted(metrics) } else { Route::missing(metrics) };
        let is_lenient = settings.iter().any(|route| route.encoded_slash || route.empty_segments);
        Self { listed, tree, hosts, fallback, is_lenient, has_cors: false, methods: Vec::new() }
    }

    /// The same, with the policies for other origins: of each of the settings, in the order of the routes, and of
    /// requests that match none. Keys may also come in these fields.
    #[must_use]
    pub fn with_cors(
        mut self,
        settings: &[RouteSettings],
        fallback: Option<&CorsSettings>,
        credentials: &CredentialFields,
    ) -> Self {
        let policy = |cors: &CorsSettings| Arc::new(CorsPolicy::new(cors, credentials));
        for (route, settings) in self.listed.iter_mut().zip(settings) {
            route.cors = settings.cors.as_ref().map(policy);
        }
        self.fallback.cors = fallback.map(policy);
        self.has_cors = self.listed.iter().chain([&self.fallback]).any(|route| route.cors.is_some());
        self.methods = REGISTERED.to_vec();
        for method in settings.iter().flat_map(|route| &route.methods) {
            if !self.methods.contains(method) {
                self.methods.push(method.clone());
            }
        }
        self
    }

    /// Finds the route of a request.
    pub fn find(&self, head: &Parts) -> &Route {
        self.find_for(head, &head.method)
    }

    /// The policy of the route of a request; of a preflight, of the route that it asks for.
    pub(super) fn cors_policy(&self, head: &Parts) -> Option<&Arc<CorsPolicy>> {
        if !self.has_cors {
            return None;
        }
        match preflight_method(head) {
            Some(method) => self.find_for(head, &method).cors.as_ref(),
            None => self.find(head).cors.as_ref(),
        }
    }

    /// The methods of the routes to a path that an origin may use.
    pub(super) fn methods_for(&self, head: &Parts, asked: Method) -> Vec<Method> {
        let is_allowed = |method: &Method| {
            let route = self.find_for(head, method);
            route.exists && route.cors.as_ref().is_some_and(|cors| cors.allow_origin(head).is_some())
        };
        let asked = Some(asked).filter(|asked| !self.methods.contains(asked));
        self.methods.iter().cloned().chain(asked).filter(is_allowed).collect()
    }

    /// Finds the route of a request as if it had this method.
    pub(super) fn find_for(&self, head: &Parts, method: &Method) -> &Route {
        // Without a list there is nothing to compare with.
        if self.listed.is_empty() {
            return &self.fallback;
        }
        let number = match comparable(head.uri.path()) {
            Ok(path) => self.number(head, method, &path),
            Err(_) if self.is_lenient => self.lenient_number(head, method),
            Err(_) => None,
        };
        number.map_or(&self.fallback, |number| &self.listed[number])
    }

    /// The number of the route of a path with encoded slashes or empty segments, if the route passes them; none where
    /// a server could read the path as one for which the same upstream asks something else.
    #[cold]
    fn lenient_number(&self, head: &Parts, method: &Method) -> Option<usize> {
        let path = LenientPath::of(head.uri.path()).ok()?;
        let number = self.number(head, method, &path.text)?;
        let route = &self.listed[number];
        let passes =
            (route.encoded_slash || !path.has_encoded_slash) && (route.empty_segments || !path.has_empty_segment);
        let readings = path.readings.iter().filter_map(|reading| self.number(head, method, reading));
        let is_evaded = |other: &Route| {
            let asks = |route: &Route| (route.public.is_some(), route.permission.clone());
            other.upstream == route.upstream && asks(other) != asks(route)
        };
        (passes && !readings.into_iter().any(|other| is_evaded(&self.listed[other]))).then_some(number)
    }

    /// The number of the first listed route that matches a head with this path, as it is compared.
    fn number(&self, head: &Parts, method: &Method, path: &str) -> Option<usize> {
        let for_all = self.tree.find(method, path);
        let Some(hosts) = &self.hosts else { return for_all };
        for_all.into_iter().chain(hosts.find(head, method, path)).min()
    }
}

impl Route {
    fn listed(route: &RouteSettings, metrics: &Metrics) -> Self {
        Self {
            name: Some(route.name.clone()),
            path: Some(route.path.as_str().into()),
            exists: true,
            upstream: route.upstream,
            cors: None,
            serve: route.serve,
            strip_prefix: route.strip_prefix.as_deref().map(Box::from),
            public: route.is_public.then(|| metrics.public_route(&route.name)),
            permission: route.permission.clone(),
            cost: route.cost,
            cost_from: route
                .cost_from
                .clone()
                .map(|source| MeteredCost { source, over: metrics.cost_over(&route.name) }),
            pass_authorization: route.pass_authorization,
            query_in_audit: route.query_in_audit,
            log_query: route.log_query,
            upgrade: route.upgrade.clone(),
            trailers: route.trailers,
            idempotent: route.idempotent,
            encoded_slash: route.encoded_slash,
            empty_segments: route.empty_segments,
            metrics: metrics.route(&route.name),
        }
    }

    /// Route of all requests when no routes are listed. Then there is one upstream.
    fn unlisted(metrics: &Metrics) -> Self {
        Self::unnamed(true, metrics.route(UNLISTED))
    }

    /// Stands for requests that no listed route matches.
    fn missing(metrics: &Metrics) -> Self {
        Self::unnamed(false, metrics.route(NO_ROUTE))
    }

    fn unnamed(exists: bool, metrics: RouteMetrics) -> Self {
        Self {
            name: None,
            path: None,
            exists,
            upstream: 0,
            cors: None,
            serve: None,
            strip_prefix: None,
            public: None,
            permission: None,
            cost: Cost::ONE,
            cost_from: None,
            pass_authorization: false,
            query_in_audit: false,
            log_query: false,
            upgrade: Vec::new(),
            trailers: false,
            idempotent: false,
            encoded_slash: false,
            empty_segments: false,
            metrics,
        }
    }

    /// Access that the state grants to authenticated callers.
    pub(crate) fn access(&self) -> RouteAccess<'_> {
        match &self.permission {
            _ if !self.exists => RouteAccess::NoRoute,
            None => RouteAccess::Everyone,
            Some(permission) => RouteAccess::Permission(permission),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use http::Request;
    use percent_encoding::percent_decode_str;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn routes() -> Routes {
        let route = |name: &str, methods: &[Method], path: &str| RouteSettings {
            methods: methods.to_vec(),
            ..RouteSettings::new(name, path)
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
    fn first_listed_route_for_the_host_is_found() {
        let route = |name: &str, host: Option<&str>, path: &str| RouteSettings {
            host: host.map(|host| host.parse().unwrap()),
            ..RouteSettings::new(name, path)
        };
        let all = [
            route("a", Some("api.a.example"), "/**"),
            route("health", None, "/health"),
            route("tenant", Some("*.a.example"), "/**"),
            route("b", Some("b.example"), "/b"),
            route("rest", None, "/b"),
        ];
        let routes = Routes::new(&all, &Metrics::new());
        for (host, path, expected) in [
            ("api.a.example", "/health", Some("a")),
            ("API.A.example.:8443", "/x", Some("a")),
            ("x.a.example", "/health", Some("health")),
            ("x.a.example", "/b", Some("tenant")),
            ("x.y.a.example", "/x", None),
            ("b.example", "/b", Some("b")),
            ("b.example", "/c", None),
            ("other", "/b", Some("rest")),
        ] {
            let request = Request::get(path).header("host", host).body(()).unwrap();
            assert_eq!(routes.find(&request.into_parts().0).name.as_deref(), expected, "{host} {path}");
        }
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
            "/files/a%0a",
            "/files/a%7F",
            "/files/a%",
            "/files/a%zz",
        ] {
            assert_eq!(found(&routes, "GET", path), None, "{path}");
        }
        assert_eq!(found(&routes, "GET", "/files/a%20b%25%C3%A4/.hidden"), Some("files"));
    }

    /// The path as servers hand it to applications: Python's `unquote`, Node's `decodeURIComponent`, which throws at
    /// bytes that are no UTF-8, and nginx, which also merges slashes and resolves dot segments.
    fn decoded(path: &str) -> Vec<(&'static str, Vec<u8>)> {
        let bytes: Vec<u8> = percent_decode_str(path).collect();
        let mut resolved: Vec<&[u8]> = Vec::new();
        for segment in bytes.split(|byte| *byte == b'/').skip(1).filter(|segment| !segment.is_empty()) {
            match segment {
                b"." => {}
                b".." => drop(resolved.pop()),
                _ => resolved.push(segment),
            }
        }
        let end: &[u8] = if bytes.ends_with(b"/") || resolved.is_empty() { b"/" } else { b"" };
        let nginx = [&resolved.iter().flat_map(|segment| [b"/", *segment].concat()).collect::<Vec<_>>(), end].concat();
        let node = std::str::from_utf8(&bytes).is_ok().then(|| ("node", bytes.clone()));
        let python = String::from_utf8_lossy(&bytes).into_owned().into_bytes();
        [("python", python), ("nginx", nginx)].into_iter().chain(node).collect()
    }

    const SPELLED: [&str; 26] = [
        "/",
        "/",
        "/",
        "/",
        "a",
        "a",
        "%61",
        ":",
        ":",
        "%3A",
        "%3a",
        "%C3%A9",
        "%c3%a9",
        "%C3%a9",
        "@",
        "%40",
        "%2F",
        "%2f",
        ".",
        "%2e",
        "%25",
        "3A",
        "%FF",
        "%fe",
        "%EF%BF%BD",
        "%0a",
    ];
    const LISTED: [&str; 11] = ["a", "a:a", "a%3Aa", ":", "%3a", "%C3%A9", "%c3%a9", "a@", "a%40", "%253A", "{id}"];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Of all spellings that a server reads as one path, those that match a route need one permission.
        #[test]
        fn spellings_of_a_path_have_one_permission_or_no_route(
            listed in vec((vec(select(&LISTED[..]), 1..4), any::<bool>()), 1..12),
            requests in vec(vec(select(&SPELLED[..]), 0..6), 200),
        ) {
            let path = |segments: &[&str]| segments.iter().flat_map(|segment| ["/", segment]).collect::<String>();
            let settings: Vec<_> = listed
                .iter()
                .enumerate()
                .map(|(number, (segments, is_open))| RouteSettings {
                    permission: format!("p:{number}").parse().ok(),
                    ..RouteSettings::new(&number.to_string(), &(path(segments) + if *is_open { "/**" } else { "" }))
                })
                .chain([RouteSettings::new("rest", "/**")])
                .collect();
            let routes = Routes::new(&settings, &Metrics::new());
            let mut seen = HashMap::new();
            for request in &requests {
                let target = format!("/{}", request.concat());
                let name = found(&routes, "GET", &target);
                for read in decoded(&target) {
                    let Some(name) = name else { continue };
                    let (first, other) = seen.entry(read).or_insert_with(|| (name, target.clone()));
                    prop_assert_eq!(*first, name, "{} and {}", other, target);
                }
            }
        }

        /// A path that passes with encoded slashes or empty segments is never another path, to a server that reads
        /// them as separators or leaves them out, for which the same upstream asks something else.
        #[test]
        fn passed_path_evades_no_permission(
            listed in vec(
                (vec(select(&["a", "b", "{x}", "a%2Fb"][..]), 1..4), any::<[bool; 3]>(), 0..3_u8, 0..2_usize),
                1..8,
            ),
            requests in vec(vec(select(&["a", "b", "c", "/", "//", "%2F", "%2f", "/.", ".."][..]), 0..7), 200),
        ) {
            let path = |segments: &[&str]| segments.iter().flat_map(|segment| ["/", segment]).collect::<String>();
            let settings: Vec<_> = listed
                .iter()
                .enumerate()
                .map(|(number, (segments, [is_open, slash, empty], asked, upstream))| RouteSettings {
                    permission: format!("p:{asked}").parse().ok().filter(|_| *asked > 0),
                    upstream: *upstream,
                    encoded_slash: *slash,
                    empty_segments: *empty,
                    ..RouteSettings::new(&number.to_string(), &(path(segments) + if *is_open { "/**" } else { "" }))
                })
                .collect();
            let routes = Routes::new(&settings, &Metrics::new());
            let of = |target: &str| {
                let head = Request::get(target).body(()).unwrap().into_parts().0;
                let route = routes.find(&head);
                route.exists.then_some((route.upstream, &route.permission))
            };
            for request in &requests {
                let target = format!("/{}", request.concat());
                let Some((upstream, permission)) = of(&target) else { continue };
                prop_assert!(!target.split('/').any(|segment| matches!(segment, "." | "..")), "{}", target);
                let merge = |path: &str| {
                    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
                    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
                    format!("/{}{end}", segments.join("/"))
                };
                for read in [merge(&target), merge(&target.replace("%2F", "/").replace("%2f", "/"))] {
                    let other = of(&read).filter(|(other, _)| *other == upstream);
                    prop_assert!(other.is_none_or(|(_, other)| other == permission), "{} read as {}", target, read);
                }
            }
        }
    }

    #[test]
    fn route_is_found_in_every_spelling_of_its_literals() {
        let guarded = |path| RouteSettings { permission: "a:b".parse().ok(), ..RouteSettings::new("guarded", path) };
        let open = RouteSettings { host: "h".parse().ok(), ..RouteSettings::new("open", "/**") };
        for (listed, requests) in [
            ("/v1/things:purge", &["/v1/things:purge", "/v1/things%3Apurge", "/v1/things%3apurge"][..]),
            ("/v1/things%3apurge", &["/v1/things:purge", "/v1/things%3Apurge"]),
            ("/%C3%A9/**", &["/%c3%a9/a", "/%C3%a9"]),
            ("/@a/{id}/!$&'()*+,=", &["/%40a/x/%21%24%26%27%28%29%2a%2B%2c%3D"]),
            ("/%7Bid%7D", &["/%7bid%7d"]),
            ("/%2A%2A", &["/**", "/%2a*"]),
        ] {
            let host = RouteSettings { host: "h".parse().ok(), ..guarded(listed) };
            for settings in [[guarded(listed), open.clone()], [host, open.clone()]] {
                let routes = Routes::new(&settings, &Metrics::new());
                for path in requests {
                    let request = Request::get(*path).header("host", "h").body(()).unwrap();
                    assert_eq!(routes.find(&request.into_parts().0).name.as_deref(), Some("guarded"), "{path}");
                }
            }
        }
        let routes = Routes::new(&[guarded("/%7Bid%7D"), guarded("/%2A%2A")], &Metrics::new());
        assert_eq!(found(&routes, "GET", "/x"), None, "an encoded brace or star is no pattern");
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
