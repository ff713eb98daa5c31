//! Hosts: the one that a request is for, and those that a route is for.
//!
//! - The host of a request is that of its target (`:authority` on HTTP/2, the absolute form on HTTP/1), else that of
//!   `Host` (RFC 9112, section 3.2.2). Heads with two different ones were refused, or the target counts.
//! - Hosts are compared in lower case, without a port and without one dot at the end.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use http::Method;
use http::header::HOST;
use http::request::Parts;
use rustc_hash::FxHashMap;

use super::route_tree::RouteTree;

/// Hosts that a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This host alone.
    Exact(Box<str>),
    /// The hosts with one label before these: of `*.a.example`, that is `a.example`.
    OneLabel(Box<str>),
}

/// Reason why a text is no host pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    /// It has a port.
    #[error("has a port; hosts are compared without one: leave it out")]
    Port,
    /// It is `*`.
    #[error("matches every host, as a route without `host` does; leave `host` out")]
    Every,
    /// It is anything else.
    #[error("is not a host such as api.example.com, or *.example.com for one label in place of the `*`")]
    Malformed,
}

impl FromStr for HostPattern {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if text == "*" {
            return Err(InvalidHost::Every);
        }
        let host = normalize(without_port(text));
        let pattern = match host.strip_prefix("*.") {
            Some(rest) if is_name(rest) => Self::OneLabel(rest.into()),
            None if is_name(&host) || is_ipv6(&host) => Self::Exact(host.into()),
            _ => return Err(InvalidHost::Malformed),
        };
        if without_port(text) == text { Ok(pattern) } else { Err(InvalidHost::Port) }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::OneLabel(rest) => write!(f, "*.{rest}"),
        }
    }
}

impl HostPattern {
    /// Returns whether the pattern matches the host of a URL or of `Host`.
    pub fn matches(&self, authority: &str) -> bool {
        let host = normalize(without_port(authority));
        match self {
            Self::Exact(exact) => **exact == *host,
            Self::OneLabel(rest) => after_first_label(&host) == Some(rest),
        }
    }

    /// Returns whether every host that `other` matches is matched by this one, too.
    pub fn covers(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::OneLabel(_), Self::Exact(host)) if self.matches(host))
    }
}

/// The routes that are for some hosts only, by their patterns.
#[derive(Debug)]
pub(super) struct HostTrees {
    exact: FxHashMap<Box<str>, RouteTree>,
    one_label: FxHashMap<Box<str>, RouteTree>,
}

impl HostTrees {
    /// The trees of a list of routes: pattern of the host, number, methods, and pattern of the path. None when the list
    /// is empty.
    pub(super) fn new<'a>(
        routes: impl IntoIterator<Item = (&'a HostPattern, usize, &'a [Method], &'a str)>,
    ) -> Option<Self> {
        let mut trees = Self { exact: FxHashMap::default(), one_label: FxHashMap::default() };
        for (host, number, methods, path) in routes {
            let tree = match host {
                HostPattern::Exact(host) => trees.exact.entry(host.clone()),
                HostPattern::OneLabel(rest) => trees.one_label.entry(rest.clone()),
            };
            tree.or_default().add(number, methods, path);
        }
        let is_empty = trees.exact.is_empty() && trees.one_label.is_empty();
        (!is_empty).then_some(trees)
    }

    /// The number of the first listed route for the head's host that matches.
    pub(super) fn find(&self, head: &Parts, method: &Method, path: &str) -> Option<usize> {
        let host = of_request(head)?;
        let exact = self.exact.get(&*host);
        let one_label = after_first_label(&host).and_then(|rest| self.one_label.get(rest));
        exact.into_iter().chain(one_label).filter_map(|tree| tree.find(method, path)).min()
    }
}

/// The host of a request; none when it has none, or one that is no text.
fn of_request(head: &Parts) -> Option<Cow<'_, str>> {
    let authority = match head.uri.authority() {
        Some(authority) => authority.as_str().rsplit('@').next()?,
        None => head.headers.get(HOST)?.to_str().ok()?,
    };
    Some(normalize(without_port(authority)))
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        // The last colon of an IPv6 address has the rest of it behind it, and a bracket.
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn normalize(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) { host.to_ascii_lowercase().into() } else { host.into() }
}

/// The labels after the first one, which is not empty.
fn after_first_label(host: &str) -> Option<&str> {
    host.split_once('.').filter(|(first, _)| !first.is_empty()).map(|(_, rest)| rest)
}

/// Returns whether a text in lower case is a host name or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    host.len() <= 253 && host.split('.').all(|label| (1..=63).contains(&label.len()) && label.bytes().all(is_plain))
}

fn is_ipv6(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use http::{Request, Version};

    use super::*;

    fn pattern(text: &str) -> Result<HostPattern, InvalidHost> {
        text.parse()
    }

    #[test]
    fn host_pattern_is_exact_or_for_one_label() {
        assert_eq!(pattern("API.a.example."), Ok(HostPattern::Exact("api.a.example".into())));
        assert_eq!(pattern("*.a.example"), Ok(HostPattern::OneLabel("a.example".into())));
        assert_eq!(pattern("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        assert_eq!(pattern("*"), Err(InvalidHost::Every));
        for text in ["a.example:80", "[::1]:80"] {
            assert_eq!(pattern(text), Err(InvalidHost::Port), "{text}");
        }
        for text in
            ["", ".", "a..example", "*.*.example", "a.*.example", "*a.example", "a/b", "u@a.example", "[x]", "http://a"]
        {
            assert_eq!(pattern(text), Err(InvalidHost::Malformed), "{text}");
        }
        for text in ["api.a.example", "*.a.example", "[::1]"] {
            assert_eq!(pattern(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn pattern_matches_its_hosts_and_covers_narrower_patterns() {
        let one_label = pattern("*.a.example").unwrap();
        for (host, expected) in [
            ("api.a.example", true),
            ("API.A.Example:8443", true),
            ("api.a.example.", true),
            ("a.example", false),
            (".a.example", false),
            ("x.api.a.example", false),
            ("apia.example", false),
        ] {
            assert_eq!(one_label.matches(host), expected, "{host}");
        }
        let exact = pattern("api.a.example").unwrap();
        assert!(exact.matches("API.a.example:80") && !exact.matches("a.example"));
        assert!(one_label.covers(&exact) && one_label.covers(&one_label) && !exact.covers(&one_label));
    }

    #[test]
    fn host_of_a_request_is_that_of_its_target_before_that_of_the_field() {
        let host = |uri: &str, field: Option<&str>, version: Version| {
            let mut request = Request::get(uri).version(version);
            if let Some(field) = field {
                request = request.header(HOST, field);
            }
            of_request(&request.body(()).unwrap().into_parts().0).map(Cow::into_owned)
        };
        let found = |text: &str| Some(text.to_owned());
        assert_eq!(host("/", Some("A.Example.:80"), Version::HTTP_11), found("a.example"));
        assert_eq!(host("/", Some("[2001:DB8::1]:80"), Version::HTTP_11), found("[2001:db8::1]"));
        assert_eq!(host("/", Some("[2001:db8::1]"), Version::HTTP_11), found("[2001:db8::1]"));
        assert_eq!(host("http://u@b.example:1/", Some("a.example"), Version::HTTP_11), found("b.example"));
        assert_eq!(host("https://b.example/", None, Version::HTTP_2), found("b.example"));
        assert_eq!(host("/", None, Version::HTTP_10), None);
    }
}
