//! Coverage: whether a route takes all requests of another one, also of one whose path is spelled as upstreams fold it.

use std::fmt;
use std::ptr;

use http::Method;

use super::path::{Segment, pattern_segments};
use super::settings::RouteSettings;

impl RouteSettings {
    /// Returns whether every request that matches `later` also matches this route.
    pub fn covers(&self, later: &Self) -> bool {
        let has_methods = self.methods.is_empty()
            || !later.methods.is_empty() && later.methods.iter().all(|method| self.has_method(method));
        has_methods && self.covers_host_and_path(later)
    }

    /// Returns whether, of some method, every request that matches `later` also matches this route.
    pub fn covers_a_method_of(&self, later: &Self) -> bool {
        let has_shared = self.methods.is_empty()
            || later.methods.is_empty()
            || later.methods.iter().any(|method| self.has_method(method))
            || self.methods.iter().any(|method| later.has_method(method));
        has_shared && self.covers_host_and_path(later)
    }

    /// Returns whether a method is listed. A route for GET is one for HEAD, too.
    fn has_method(&self, method: &Method) -> bool {
        self.methods.contains(method) || *method == Method::HEAD && self.methods.contains(&Method::GET)
    }

    /// Returns whether a caller reaches the upstream of `route` here with less than there.
    fn asks_less_than(&self, route: &Self) -> bool {
        let is_less = self.is_public || self.permission.is_none() && route.permission.is_some();
        let is_shared = self.upstream == route.upstream && self.serve.is_none() && route.serve.is_none();
        is_less && !route.is_public && is_shared
    }

    fn covers_host_and_path(&self, later: &Self) -> bool {
        let has_hosts = match (&self.host, &later.host) {
            (None, _) => true,
            (Some(host), Some(later)) => host.covers(later),
            (Some(_), None) => false,
        };
        has_hosts && covers_path(&self.path, &later.path)
    }
}

/// The routes that no request reaches, each with the earlier one that takes all its requests.
pub fn hidden_routes(routes: &[RouteSettings]) -> impl Iterator<Item = (&RouteSettings, &RouteSettings)> {
    let with_earlier = routes.iter().enumerate().map(|(place, route)| (route, &routes[..place]));
    with_earlier.filter_map(|(route, earlier)| Some((route, earlier.iter().find(|first| first.covers(route))?)))
}

/// A route, and a wider one that asks less of callers and takes requests for other spellings of its path. An upstream
/// that folds them into one path serves them as requests for the route.
#[derive(Debug)]
pub struct Bypass<'a> {
    /// The route.
    pub route: &'a RouteSettings,
    /// The wider route.
    pub wider: &'a RouteSettings,
    /// The spellings: in another case of letters, and with or without a slash at the end.
    pub spellings: Vec<String>,
}

impl fmt::Display for Bypass<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spellings = self.spellings.join("` and `");
        let need = if self.wider.is_public { "no API key" } else { "no permission" };
        write!(f, "requests for `{spellings}` match `{}`, which needs {need}", self.wider.name)
    }
}

impl Bypass<'_> {
    /// Sentence that says what to do.
    pub fn advice(&self) -> String {
        let Self { wider, .. } = self;
        format!(
            "if the upstream ignores the case of letters or a slash at the end, restrict `{}` as well, or list these \
             spellings, too",
            wider.name
        )
    }
}

/// The routes that another spelling of their path passes by, as far as the list says.
pub fn bypasses(routes: &[RouteSettings]) -> Vec<Bypass<'_>> {
    let mut found: Vec<Bypass<'_>> = Vec::new();
    for route in routes {
        let wider = |spelling: String| Some((wider_route(routes, route, &spelling)?, spelling));
        let cased = cased_spellings(&route.path).find_map(wider);
        for (wider, spelling) in cased.into_iter().chain(slashed_spelling(&route.path).and_then(wider)) {
            match found.last_mut().filter(|last| ptr::eq(last.route, route) && ptr::eq(last.wider, wider)) {
                Some(last) => last.spellings.push(spelling),
                None => found.push(Bypass { route, wider, spellings: vec![spelling] }),
            }
        }
    }
    found
}

/// The first route that takes requests of `route` with this path, and asks less for the same upstream.
fn wider_route<'a>(routes: &'a [RouteSettings], route: &RouteSettings, spelling: &str) -> Option<&'a RouteSettings> {
    let spelled = RouteSettings { path: spelling.to_owned(), ..route.clone() };
    let guard = routes.iter().position(|other| !other.asks_less_than(route) && other.covers(&spelled));
    let reached = &routes[..guard.unwrap_or(routes.len())];
    reached.iter().find(|other| other.asks_less_than(route) && other.covers_a_method_of(&spelled))
}

/// The path of a route with another case of letters in one of its literal segments, the last ones first.
fn cased_spellings(path: &str) -> impl Iterator<Item = String> {
    let segments: Vec<&str> = path.split('/').collect();
    (0..segments.len()).rev().filter_map(move |place| {
        let segment = Segment::of(segments[place]);
        let cases = [segments[place].to_ascii_uppercase(), segments[place].to_ascii_lowercase()];
        // An escape has letters, whose case changes nothing.
        let cased = cases.iter().find(|cased| segment != Segment::Parameter && Segment::of(cased) != segment)?;
        Some([&segments[..place], &[cased.as_str()], &segments[place + 1..]].concat().join("/"))
    })
}

/// The path of a route with a slash at its end, or without the one that it has; none where both match it.
fn slashed_spelling(path: &str) -> Option<String> {
    match path.strip_suffix('/') {
        Some("") => None,
        Some(bare) => Some(bare.to_owned()),
        None if path.ends_with("/**") => None,
        None => Some(format!("{path}/")),
    }
}

/// A route for the same upstream that asks something else of callers, within the paths that a server may read in one
/// of `route`, which passes encoded slashes or empty segments.
pub fn narrower_route<'a>(routes: &'a [RouteSettings], route: &RouteSettings) -> Option<&'a RouteSettings> {
    let (segments, is_open) = pattern_segments(&route.path);
    let segments: Vec<Segment<'_>> = segments.collect();
    let literals = segments.iter().take_while(|segment| **segment != Segment::Parameter).count();
    // A parameter, or the rest, may be read as any segments.
    let prefix: String = route.path.split('/').skip(1).take(literals).flat_map(|segment| ["/", segment]).collect();
    let path = if is_open || literals < segments.len() { prefix + "/**" } else { prefix };
    let reached = RouteSettings { path, ..route.clone() };
    let asks = |route: &RouteSettings| (route.is_public, route.permission.clone());
    routes.iter().find(|other| {
        other.name != route.name
            && other.upstream == route.upstream
            && other.serve.is_none()
            && asks(other) != asks(route)
            && reached.covers_a_method_of(other)
    })
}

/// Returns whether every path that matches `later` also matches `first`.
fn covers_path(first: &str, later: &str) -> bool {
    let (first, first_is_open) = pattern_segments(first);
    let (later, later_is_open) = pattern_segments(later);
    let (first, later): (Vec<Segment<'_>>, Vec<Segment<'_>>) = (first.collect(), later.collect());
    let fits = if first_is_open { first.len() <= later.len() } else { first.len() == later.len() && !later_is_open };
    let is_empty = |segment: &Segment<'_>| matches!(segment, Segment::Literal(text) if text.is_empty());
    // A parameter stands for any segment that is not empty.
    let is_covered = |(first, later): (&Segment<'_>, &Segment<'_>)| {
        first == later || *first == Segment::Parameter && !is_empty(later)
    };
    fits && first.iter().zip(&later).all(is_covered)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn route(methods: &[&str], path: &str) -> RouteSettings {
        let methods = methods.iter().map(|method| method.parse().unwrap()).collect();
        RouteSettings { methods, ..RouteSettings::new("r", path) }
    }

    #[test]
    fn route_covers_those_whose_requests_it_all_takes() {
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
            let first = route(&methods(method), path);
            let later = route(&methods(later_method), later_path);
            assert_eq!(first.covers(&later), expected, "{method} {path}, {later_method} {later_path}");
        }
    }

    #[test]
    fn route_covers_only_the_hosts_that_it_is_for() {
        let with_host = |host: Option<&str>| RouteSettings {
            host: host.map(|host| host.parse().unwrap()),
            ..RouteSettings::new("r", "/**")
        };
        for (first, later, expected) in [
            (None, Some("a.example"), true),
            (Some("a.example"), None, false),
            (Some("*.example"), Some("a.example"), true),
            (Some("a.example"), Some("b.example"), false),
        ] {
            assert_eq!(with_host(first).covers(&with_host(later)), expected, "{first:?} {later:?}");
        }
    }

    #[test]
    fn route_with_one_of_several_methods_covers_that_method() {
        for (methods, later, expected) in [
            (&["GET"][..], &[][..], true),
            (&[], &["GET"], true),
            (&["GET"], &["GET", "POST"], true),
            (&["GET"], &["HEAD", "POST"], true),
            (&["HEAD"], &["GET"], true),
            (&["GET"], &["POST"], false),
        ] {
            assert_eq!(
                route(methods, "/**").covers_a_method_of(&route(later, "/a")),
                expected,
                "{methods:?} {later:?}"
            );
            assert!(!route(methods, "/a").covers_a_method_of(&route(later, "/**")));
        }
    }

    #[test]
    fn guarded_route_is_passed_by_in_spellings_that_upstreams_fold() {
        let guarded = |path| RouteSettings { permission: "a:b".parse().ok(), ..RouteSettings::new("guarded", path) };
        let (open, all) = (RouteSettings::new("open", "/v1/**"), RouteSettings::new("all", "/**"));
        let public = RouteSettings { is_public: true, ..RouteSettings::new("public", "/**") };
        let passed_by = |routes: &[RouteSettings]| {
            let spelled = |found: &Bypass<'_>| format!("{}: {}", found.wider.name, found.spellings.join(" "));
            bypasses(routes).iter().map(spelled).collect::<Vec<_>>()
        };
        for (path, spellings) in [
            ("/v1/a:b", "open: /v1/A:B /v1/a:b/"),
            ("/v1/%C3%A9/{id}", "open: /v1/%C3%A9/{id}/"),
            ("/v1/A/", "open: /v1/a/ /v1/A"),
            ("/v1/a/**", "open: /v1/A/**"),
        ] {
            let found = passed_by(&[guarded(path), open.clone()]);
            assert_eq!(found, [spellings], "{path}");
        }
        let each = ["open: /v1/A /v1/a/", "public: /V1/**"];
        assert_eq!(passed_by(&[guarded("/v1/a"), open.clone(), public]), each);
        assert_eq!(passed_by(&[guarded("/v1/a"), guarded("/v1/**"), all.clone()]), ["all: /V1/a", "all: /V1/**"]);
        let elsewhere = RouteSettings { upstream: 1, ..all.clone() };
        assert!(passed_by(&[guarded("/v1/a"), elsewhere]).is_empty());
        let mut listed = ["/v1/a", "/v1/A", "/v1/a/", "/v1/A/"].map(guarded).to_vec();
        listed.push(open);
        assert!(passed_by(&listed).is_empty());
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
