//! Coverage: whether a route takes all requests of one that is listed after it.

use http::Method;

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

/// Returns whether every path that matches `later` also matches `first`.
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
