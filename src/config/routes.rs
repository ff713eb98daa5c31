//! The block `routes`: name, permission and features of requests, by host, method and path.

use http::HeaderValue;

use super::cors;
use crate::admission::{
    CorsSettings, CostSource, HostPattern, RouteSettings, ServedResource, literal_error, narrower_route,
    pattern_segments,
};
use domain::budget::Cost;
use domain::quota::MAX_TOKENS;
use platform::settings::{Reported, Section, Value};

/// Blocks of the file that routes refer to.
pub(super) struct Surroundings<'a> {
    /// Names of the upstreams.
    pub(super) upstreams: &'a [String],
    /// False when `credentials.headers` lists no field.
    pub(super) has_key_fields: bool,
    /// The block `cors`, which holds for routes without their own.
    pub(super) cors: Option<&'a CorsSettings>,
}

/// Reads the block `routes`; no routes when there is none, or it has an error.
pub(super) fn of_file(file: &mut Section<'_>, around: &Surroundings<'_>) -> Vec<RouteSettings> {
    let read = file.optional("routes", |value| routes(value, around));
    if around.upstreams.len() > 1 && read.as_ref().is_ok_and(|read| read.as_ref().is_none_or(Vec::is_empty)) {
        file.report("routes", "is missing, and there are several upstreams; list the routes, each with its `upstream`");
    }
    read.unwrap_or_default().unwrap_or_default()
}

fn routes(value: &Value<'_>, around: &Surroundings<'_>) -> Result<Vec<RouteSettings>, Reported> {
    let mut seen: Vec<RouteSettings> = Vec::new();
    value.list(|item| {
        let route = item.section(|section| route(section, around))?;
        if let Some(conflict) = seen.iter().find_map(|other| find_conflict(&route, other)) {
            return item.reject(conflict);
        }
        seen.push(route.clone());
        Ok(route)
    })?;
    for route in seen.iter().filter(|route| route.encoded_slash || route.empty_segments) {
        if let Some(narrower) = narrower_route(&seen, route) {
            return value.reject(format_args!(
                "`{}` passes paths that servers read in different ways, and `{}` of the same upstream, within its \
                 paths, asks something else of callers; remove `encoded_slash` and `empty_segments` there, or give \
                 both the same permission",
                route.name, narrower.name
            ));
        }
    }
    Ok(seen)
}

fn route(section: &mut Section<'_>, around: &Surroundings<'_>) -> Result<RouteSettings, Reported> {
    let name = section.required("name", name);
    let host = section.optional("host", host);
    let methods = section.value_or("methods", Vec::new(), |value| value.list(method));
    let passes = |value: &Value<'_>| Ok(value.name_of("a way with such paths", &["refuse", "pass"])? == 1);
    let encoded_slash = section.value_or("encoded_slash", false, passes);
    let empty_segments = section.value_or("empty_segments", false, passes);
    if empty_segments && section.contains("strip_prefix") {
        section.report("strip_prefix", "cannot be found in a path with empty segments; remove it, or `empty_segments`");
    }
    let path = section.required("path", |value| path(value, encoded_slash));
    let serve = section.optional("serve", |value| value.name_of("a resource", &["usage"]));
    let cors = section.optional("cors", |value| value.section(cors::cors));
    let is_served = serve != Ok(None);
    let upstream = if is_served { Ok(0) } else { upstream(section, around.upstreams) };
    let strip_prefix = section.optional("strip_prefix", |value| strip_prefix(value, path.as_deref().ok()));
    let is_public = section.value_or("access", false, |value| Ok(value.name_of("an access", &["key", "public"])? == 1));
    let permission = section.optional("permission", |value| {
        value.parsed("a permission: 1 to 64 characters of a-z, 0-9 and : . _ -, such as queries:read")
    });
    let pass_authorization = section.value_or("pass_authorization", false, |value| value.boolean());
    if pass_authorization && !around.has_key_fields {
        let what = "leaves no field for the API key; list one in `credentials.headers`, such as X-API-Key";
        section.report("pass_authorization", what);
    }
    let (cost, cost_from) = section.value_or("cost", (Cost::ONE, None), cost);
    let query_in_audit = section.value_or("query_in_audit", false, |value| value.boolean());
    let log_query = section.value_or("log_query", false, |value| value.boolean());
    let upgrade = section.value_or("upgrade", Vec::new(), |value| value.list(protocol));
    let trailers = section.value_or("trailers", false, |value| value.boolean());
    let idempotent = section.value_or("idempotent", false, |value| value.boolean());
    if is_public {
        check_public(section);
    }
    let methods = if is_served { check_served(section, methods) } else { methods };
    Ok(RouteSettings {
        name: name?,
        host: host?,
        cors: cors?.or_else(|| around.cors.cloned()).filter(|cors| !cors.origins.is_empty()),
        methods,
        path: path?,
        upstream: upstream?,
        serve: serve?.map(|_| ServedResource::Usage),
        strip_prefix: strip_prefix?,
        is_public,
        permission: permission?,
        cost,
        cost_from,
        pass_authorization,
        query_in_audit,
        log_query,
        upgrade,
        trailers,
        idempotent,
        encoded_slash,
        empty_segments,
    })
}

/// Reports what a route of the gateway itself cannot have, and gives its methods: GET, which includes HEAD.
fn check_served(section: &Section<'_>, methods: Vec<http::Method>) -> Vec<http::Method> {
    for name in ["upstream", "strip_prefix", "pass_authorization", "upgrade", "trailers", "idempotent", "encoded_slash"]
    {
        if section.contains(name) {
            section.report(name, "has no effect beside `serve`: such requests go to no upstream; remove it");
        }
    }
    if !methods.is_empty() && methods != [http::Method::GET] {
        section.report("methods", "must be [GET] beside `serve: usage`");
    }
    vec![http::Method::GET]
}

/// Reports what a public route cannot have.
fn check_public(section: &Section<'_>) {
    for (name, reason) in [
        ("permission", "contradicts `access: public`: nobody is asked for a key; remove one of the two"),
        ("serve", "contradicts `access: public`: the usage is that of a key; remove one of the two"),
        ("cost", "contradicts `access: public`: there is no key that pays; remove one of the two"),
        ("query_in_audit", "has no effect beside `access: public`: such requests have no audit records; remove it"),
    ] {
        if section.contains(name) {
            section.report(name, reason);
        }
    }
}

/// Reads the upstream of a route, as its place among the names.
fn upstream(section: &mut Section<'_>, names: &[String]) -> Result<usize, Reported> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let place = section.optional("upstream", |value| match &names[..] {
        // The error of the upstreams was reported.
        [] => Ok(0),
        names => value.name_of("an upstream", names),
    });
    match place? {
        Some(place) => Ok(place),
        None if names.len() <= 1 => Ok(0),
        None => Err(section.report("upstream", format_args!("is missing; give {}", names.join(" or ")))),
    }
}

/// Reads the prefix that is removed from paths: literal segments with which the pattern of the path begins.
fn strip_prefix(value: &Value<'_>, path: Option<&str>) -> Result<String, Reported> {
    let prefix = value.text()?;
    let segments = prefix.strip_prefix('/').filter(|segments| !segments.ends_with('/'));
    let is_literal = |segment: &str| !segment.starts_with('{') && segment_error(segment, true).is_none();
    if !segments.is_some_and(|segments| segments.split('/').all(is_literal)) {
        return value
            .reject(format_args!("`{prefix}` is not a prefix such as /reports: whole segments without parameters"));
    }
    let begins =
        |path| pattern_segments(path).0.take(pattern_segments(&prefix).0.count()).eq(pattern_segments(&prefix).0);
    match path {
        Some(path) if !begins(path) => {
            value.reject(format_args!("`{path}` does not begin with the segments of `{prefix}`"))
        }
        _ => Ok(prefix),
    }
}

/// Reads a protocol to switch to (RFC 9110, section 7.8).
///
/// Versions of HTTP are refused, because requests inside the tunnel would reach the upstream with any identity that
/// they claim; so is TLS, which could hide them.
fn protocol(value: &Value<'_>) -> Result<HeaderValue, Reported> {
    let text = value.text()?;
    let plain =
        |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._+".contains(&c));
    if !text.split('/').all(plain) || text.matches('/').count() > 1 {
        return value.reject(format_args!("`{text}` is not the name of a protocol, such as websocket"));
    }
    let lower = text.to_ascii_lowercase();
    let name = lower.split('/').next().unwrap_or_default();
    if ["h2", "h2c", "h3", "http", "https", "tls", "connect-ip", "connect-udp"].contains(&name) {
        return value.reject(format_args!("`{text}` would carry requests past the gateway; remove it"));
    }
    Ok(HeaderValue::try_from(lower).expect("a protocol's name has no other characters than a header value may have"))
}

/// Reads a cost: a number, or the most that a request may cost and where its response says how much it was.
fn cost(value: &Value<'_>) -> Result<(Cost, Option<CostSource>), Reported> {
    if !value.is_block() {
        return Ok((Cost::fixed(value.integer(1..=MAX_TOKENS)?), None));
    }
    value.section(|section| {
        let at_most = section.required("at_most", |value| value.integer(1..=MAX_TOKENS));
        let field = section.optional("from", |value| value.parsed("the name of a field, such as X-Cost"));
        let member =
            section.optional("from_body", |value| value.parsed("the path of a member, such as usage.total_tokens"));
        let places = section.value_or("unit", 0, decimal_places);
        let (at_most, field, member) = (at_most?, field?, member?);
        if field.is_none() && member.is_none() {
            let missing = "is missing, and so is `from_body`; one of them names what the response says its cost in";
            return Err(section.report("from", missing));
        }
        Ok((Cost::at_most(at_most), Some(CostSource { field, member, places })))
    })
}

/// Reads the part of a number that is one unit, as its decimal places: 6 of `0.000001`.
fn decimal_places(value: &Value<'_>) -> Result<u8, Reported> {
    let text = value.text()?;
    let places = (1..=12_u8).find(|places| text == format!("0.{:0>1$}", 1, usize::from(*places)));
    places.map_or_else(|| value.reject(format_args!("`{text}` is not one of 0.1, 0.01 … 0.000000000001")), Ok)
}

/// Reads a route's name, which is a label in metrics and the action in audit records.
fn name(value: &Value<'_>) -> Result<String, Reported> {
    let name = value.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if name.len() > 100 || !name.chars().all(plain) {
        return value.reject(format_args!("`{name}` is not a route's name: up to 100 of letters, digits and . _ : -"));
    }
    Ok(name)
}

fn host(value: &Value<'_>) -> Result<HostPattern, Reported> {
    let host = value.text()?;
    host.parse().or_else(|error| value.reject(format_args!("`{host}` {error}")))
}

fn method(value: &Value<'_>) -> Result<http::Method, Reported> {
    let method: http::Method = value.parsed("a method such as GET")?;
    let upper = method.as_str().to_ascii_uppercase();
    if upper != method.as_str() {
        return value.reject(format_args!("methods are case-sensitive (RFC 9110 section 9.1); did you mean {upper}?"));
    }
    Ok(method)
}

fn path(value: &Value<'_>, passes_slash: bool) -> Result<String, Reported> {
    let path = value.text()?;
    match pattern_error(&path, passes_slash) {
        Some(error) => value.reject(format_args!("`{path}` {error}")),
        None => Ok(path),
    }
}

/// The error of a path pattern; none when it is valid.
fn pattern_error(path: &str, passes_slash: bool) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("does not begin with `/`") };
    let rest = match rest.strip_suffix("**") {
        Some("") => return None,
        Some(before) => before.strip_suffix('/').unwrap_or("*"),
        None if rest.is_empty() => return None,
        None => rest.strip_suffix('/').unwrap_or(rest),
    };
    rest.split('/').find_map(|segment| segment_error(segment, passes_slash))
}

fn segment_error(segment: &str, passes_slash: bool) -> Option<&'static str> {
    let literal = |c: u8| c.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@%".contains(&c);
    let parameter = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match parameter {
        Some(name) if !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-.".contains(&c)) => {
            None
        }
        Some(_) => Some("has a parameter without a plain name; write it as `{id}`"),
        None if segment.is_empty() => Some("has an empty segment; remove the second `/`"),
        None if matches!(segment, "." | "..") => Some("has a dot segment, which no request arrives with; resolve it"),
        None if segment.contains('*') => Some("has a `*` elsewhere than in a last segment `/**`"),
        None if segment.contains(['{', '}']) => Some("has a brace within a segment; a parameter is a whole segment"),
        None if segment.bytes().all(literal) => literal_error(segment, passes_slash),
        None => Some("has a character that no path has; percent-encode it"),
    }
}

/// The conflict of two routes; none when both can be listed.
fn find_conflict(route: &RouteSettings, other: &RouteSettings) -> Option<String> {
    if route.name == other.name {
        return Some(format!("the name `{}` is another route's already; choose another", route.name));
    }
    if other.is_public && !route.is_public && other.covers_a_method_of(route) {
        return Some(format!(
            "the public route `{}` before it takes its requests, which would need no key; list it before that one",
            other.name
        ));
    }
    let all = route.methods.is_empty() && other.methods.is_empty();
    let shared = all || route.methods.iter().any(|method| other.methods.contains(method));
    let is_same_path = || {
        let ((segments, is_open), (others, other_is_open)) =
            (pattern_segments(&route.path), pattern_segments(&other.path));
        is_open == other_is_open && segments.eq(others)
    };
    (shared && route.host == other.host && is_same_path())
        .then(|| format!("route `{}` is for the same method and path; remove one", other.name))
}
