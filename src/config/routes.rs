//! The block `routes`: names, permissions and audit of requests, by method and path.

use http::HeaderValue;

use crate::admission::RouteSettings;
use crate::settings::{Section, Value};

pub(super) fn routes(value: &Value<'_>) -> Option<Vec<RouteSettings>> {
    let mut seen: Vec<RouteSettings> = Vec::new();
    value.list(|item| {
        let route = item.section(route)?;
        if let Some(clash) = seen.iter().find_map(|other| clash(&route, other)) {
            return item.reject(clash);
        }
        seen.push(route.clone());
        Some(route)
    })
}

fn route(section: &mut Section<'_>) -> Option<RouteSettings> {
    let name = section.required("name", name);
    let methods = section.optional("methods", Vec::new(), |value| value.list(method));
    let path = section.required("path", path);
    let permission = section.maybe("permission", |value| {
        value.parsed("a permission: 1 to 64 characters of a-z, 0-9 and : . _ -, such as queries:read")
    });
    let query_in_audit = section.optional("query_in_audit", false, |value| value.boolean());
    let upgrade = section.optional("upgrade", Vec::new(), |value| value.list(protocol));
    let trailers = section.optional("trailers", false, |value| value.boolean());
    Some(RouteSettings { name: name?, methods, path: path?, permission, query_in_audit, upgrade, trailers })
}

/// A protocol to switch to (RFC 9110, section 7.8). None of the versions of HTTP: requests in it would reach the upstream
/// unseen, with whatever identity they claim; nor TLS, behind which they could.
fn protocol(value: &Value<'_>) -> Option<HeaderValue> {
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
    HeaderValue::try_from(lower).ok()
}

/// A route's name is a label in metrics and the action in audit records.
fn name(value: &Value<'_>) -> Option<String> {
    let name = value.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if name.len() > 100 || !name.chars().all(plain) {
        return value.reject(format_args!("`{name}` is not a route's name: up to 100 of letters, digits and . _ : -"));
    }
    Some(name)
}

fn method(value: &Value<'_>) -> Option<http::Method> {
    let method: http::Method = value.parsed("a method such as GET")?;
    let upper = method.as_str().to_ascii_uppercase();
    if upper != method.as_str() {
        return value.reject(format_args!("methods are case-sensitive (RFC 9110 section 9.1); did you mean {upper}?"));
    }
    Some(method)
}

fn path(value: &Value<'_>) -> Option<String> {
    let path = value.text()?;
    match fault(&path) {
        Some(fault) => value.reject(format_args!("`{path}` {fault}")),
        None => Some(path),
    }
}

/// What is wrong with a path pattern.
fn fault(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("does not begin with `/`") };
    let rest = match rest.strip_suffix("**") {
        Some("") => return None,
        Some(before) => before.strip_suffix('/').unwrap_or("*"),
        None if rest.is_empty() => return None,
        None => rest.strip_suffix('/').unwrap_or(rest),
    };
    rest.split('/').find_map(segment_fault)
}

fn segment_fault(segment: &str) -> Option<&'static str> {
    let literal = |c: u8| c.is_ascii_alphanumeric() || b"-._~!$&'()+,;=:@%".contains(&c);
    let parameter = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match parameter {
        Some(name) if !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') => None,
        Some(_) => Some("has a parameter without a plain name; write it as `{id}`"),
        None if segment.is_empty() => Some("has an empty segment; remove the second `/`"),
        None if matches!(segment, "." | "..") => Some("has a dot segment, which no request arrives with; resolve it"),
        None if segment.contains('*') => Some("has a `*` elsewhere than in a last segment `/**`"),
        None if segment.contains(['{', '}']) => Some("has a brace within a segment; a parameter is a whole segment"),
        None if segment.bytes().all(literal) => None,
        None => Some("has a character that no path has; percent-encode it"),
    }
}

/// Why two routes cannot stand together.
fn clash(route: &RouteSettings, other: &RouteSettings) -> Option<String> {
    if route.name == other.name {
        return Some(format!("the name `{}` is another route's already; choose another", route.name));
    }
    let all = route.methods.is_empty() && other.methods.is_empty();
    let shared = all || route.methods.iter().any(|method| other.methods.contains(method));
    (shared && shape(&route.path) == shape(&other.path))
        .then(|| format!("route `{}` is for the same method and path; remove one", other.name))
}

/// A path without the names of its parameters.
fn shape(path: &str) -> Vec<&str> {
    path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment }).collect()
}
