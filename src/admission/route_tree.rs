//! Route tree: finds the first listed route that matches a method and a path.
//!
//! - The precedence is that of the list: of all routes that match, the first one is found.
//! - Segments are compared decoded (`path.rs`).
//! - The tree has a node for each prefix of segments. A look-up follows the segments of the path, so its cost does not
//!   grow with the number of routes.

use http::Method;
use rustc_hash::FxHashMap;

use super::path::{Segment, pattern_segments};

/// Routes by their patterns. A route is known by its number, its place in the list.
#[derive(Debug)]
pub(super) struct RouteTree {
    /// The root comes first.
    nodes: Vec<Node>,
}

/// The routes whose patterns begin with the same segments.
#[derive(Debug)]
struct Node {
    /// Number of the first route in this node or below it.
    first: usize,
    /// Nodes below, by a literal segment, decoded.
    literals: FxHashMap<Box<str>, usize>,
    /// The node below for a parameter, which stands for any segment that is not empty.
    parameter: Option<usize>,
    /// Routes whose patterns end here.
    ending: Vec<Listed>,
    /// Routes whose patterns go on here with `/**`.
    open_ended: Vec<Listed>,
}

/// A route, with the methods that it is for; none: all.
#[derive(Debug)]
struct Listed {
    number: usize,
    methods: Vec<Method>,
}

impl Default for RouteTree {
    /// The tree of no routes.
    fn default() -> Self {
        Self { nodes: vec![Node::new(usize::MAX)] }
    }
}

impl RouteTree {
    /// Adds a route: its number, its methods, and the pattern of its path.
    pub(super) fn add(&mut self, number: usize, methods: &[Method], path: &str) {
        let route = Listed { number, methods: methods.to_vec() };
        let (segments, is_open_ended) = pattern_segments(path);
        let mut node = 0;
        for segment in segments {
            self.nodes[node].first = self.nodes[node].first.min(number);
            node = self.child(node, segment, number);
        }
        let end = &mut self.nodes[node];
        end.first = end.first.min(number);
        if is_open_ended { end.open_ended.push(route) } else { end.ending.push(route) }
    }

    /// The node below for a segment of a pattern, which is added when it is missing.
    fn child(&mut self, node: usize, segment: Segment<'_>, number: usize) -> usize {
        let next = self.nodes.len();
        let child = match segment {
            Segment::Parameter => *self.nodes[node].parameter.get_or_insert(next),
            Segment::Literal(text) => *self.nodes[node].literals.entry(text.into()).or_insert(next),
        };
        if child == next {
            self.nodes.push(Node::new(number));
        }
        child
    }

    /// The number of the first listed route that matches a path, as it is compared.
    pub(super) fn find(&self, method: &Method, path: &str) -> Option<usize> {
        let segments = path.split_once('/').map(|(_, segments)| segments);
        let found = self.find_below(&self.nodes[0], method, segments, usize::MAX);
        (found < usize::MAX).then_some(found)
    }

    /// The number of the first route in a node or below it that matches the segments which are left, if it comes before
    /// `found`; else `found`.
    fn find_below(&self, node: &Node, method: &Method, segments: Option<&str>, found: usize) -> usize {
        let found = found.min(first_for(&node.open_ended, method));
        let Some(segments) = segments else { return found.min(first_for(&node.ending, method)) };
        let (segment, rest) = segments.split_once('/').map_or((segments, None), |(one, rest)| (one, Some(rest)));
        let literal = node.literals.get(segment).copied();
        let parameter = node.parameter.filter(|_| !segment.is_empty());
        literal.into_iter().chain(parameter).fold(found, |found, child| {
            let child = &self.nodes[child];
            // A branch with later routes alone has nothing to find.
            if child.first < found { self.find_below(child, method, rest, found) } else { found }
        })
    }
}

impl Node {
    fn new(first: usize) -> Self {
        Self { first, literals: FxHashMap::default(), parameter: None, ending: Vec::new(), open_ended: Vec::new() }
    }
}

/// The number of the first of these routes that is for a method.
fn first_for(routes: &[Listed], method: &Method) -> usize {
    routes.iter().find(|route| route.is_for(method)).map_or(usize::MAX, |route| route.number)
}

impl Listed {
    /// Returns whether the route is for a method. One for GET is for HEAD, too (RFC 9110, section 9.3.2).
    fn is_for(&self, method: &Method) -> bool {
        let get = if method == Method::HEAD { &Method::GET } else { method };
        self.methods.is_empty() || self.methods.iter().any(|listed| listed == method || listed == get)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    use super::*;

    fn tree<'a>(routes: impl IntoIterator<Item = (&'a [Method], &'a str)>) -> RouteTree {
        let mut tree = RouteTree::default();
        for (number, (methods, path)) in routes.into_iter().enumerate() {
            tree.add(number, methods, path);
        }
        tree
    }

    /// The list as a matcher: the model of the tree.
    fn first_in_list(routes: &[(Vec<Method>, String)], method: &Method, path: &str) -> Option<usize> {
        routes.iter().position(|(methods, pattern)| matches(methods, pattern, method, path))
    }

    fn matches(methods: &[Method], pattern: &str, method: &Method, path: &str) -> bool {
        let is_head = |listed: &Method| listed == Method::GET && method == Method::HEAD;
        let (pattern, has_rest) = pattern.strip_suffix("/**").map_or((pattern, false), |pattern| (pattern, true));
        let mut given = path.split('/').skip(1);
        let mut each = pattern.split('/').skip(1).map(|segment| match (segment, given.next()) {
            (_, None) => false,
            (parameter, Some(given)) if parameter.starts_with('{') && parameter.ends_with('}') => !given.is_empty(),
            (literal, Some(given)) => literal == given,
        });
        let is_prefix = each.all(|matches| matches);
        (methods.is_empty() || methods.iter().any(|listed| listed == method || is_head(listed)))
            && is_prefix
            && (has_rest || given.next().is_none())
    }

    fn all_methods() -> Vec<Method> {
        vec![Method::GET, Method::HEAD, Method::POST, "X".parse().unwrap()]
    }

    fn patterns() -> impl Strategy<Value = String> {
        let segments = vec(select(&["a", "b", "c", "", "{x}", "{y}", "{x", "x}"][..]), 0..5);
        (segments, any::<bool>()).prop_map(|(segments, has_rest)| {
            let path: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
            path + if has_rest { "/**" } else { "" }
        })
    }

    fn paths() -> impl Strategy<Value = String> {
        let segments = vec(select(&["a", "b", "c", "d", "", "{x}", "**", "{x"][..]), 0..6);
        (select(&["", "", "", "*", "a"][..]), segments).prop_map(|(start, segments)| {
            start.to_owned() + &segments.iter().flat_map(|s| ["/", s]).collect::<String>()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn tree_finds_what_the_list_finds(
            routes in vec((subsequence(all_methods(), 0..3), patterns()), 0..30),
            requests in vec((select(all_methods()), paths()), 1..30),
        ) {
            let tree = tree(routes.iter().map(|(methods, path)| (&methods[..], &path[..])));
            for (method, path) in requests {
                prop_assert_eq!(tree.find(&method, &path), first_in_list(&routes, &method, &path),
                    "{} {}", method, path);
            }
        }
    }

    #[test]
    fn first_listed_route_is_found_before_a_closer_one() {
        let routes = [("/**", 0), ("/a", 0), ("/{x}", 1)];
        let all = tree(routes.iter().map(|(path, _)| (&[][..], *path)));
        assert_eq!(all.find(&Method::GET, "/a"), Some(0));
        let reversed = tree(routes[1..].iter().rev().map(|(path, _)| (&[][..], *path)));
        assert_eq!(reversed.find(&Method::GET, "/a"), Some(0));
        assert_eq!(reversed.find(&Method::GET, "/b"), Some(0));
        assert_eq!(reversed.find(&Method::GET, "/b/c"), None);
    }
}
