//! The block `routes`: name, permission and features of requests, by method and path.

use http::HeaderValue;

use crate::admission::RouteSettings;
use crate::settings::{Reported, Section, Value};

/// Reads the block `routes`.
pub(super) fn routes(value: &Value<'_>) -> Result<Vec<RouteSettings>, Reported> {
    let mut seen: Vec<RouteSettings> = Vec::new();
    value.list(|item| {
        let route = item.section(route)?;
        if let Some(conflict) = seen.iter().find_map(|other| find_conflict(&route, other)) {
            return item.reject(conflict);
        }
        seen.push(route.clone());
        Ok(route)
    })
}

fn route(section: &mut Section<'_>) -> Result<RouteSettings, Reported> {
    let name = section.required("name", name);
    let methods = section.value_or("methods", Vec::new(), |value| value.list(method));
    let path = section.required("path", path);
    let permission = section.optional("permission", |value| {
        value.parsed("a permission: 1 to 64 characters of a-z, 0-9 and : . _ -, such as queries:read")
    });
    let query_in_audit = section.value_or("query_in_audit", false, |value| value.boolean());
    let upgrade = section.value_or("upgrade", Vec::new(), |value| value.list(protocol));
    let trailers = section.value_or("trailers", false, |value| value.boolean());
    Ok(RouteSettings {
        name: name?,
        methods,
        path: path?,
        upstream: 0,
        permission: permission?,
        query_in_audit,
        upgrade,
        trailers,
    })
}

/// Reads a protocol to switch to (RFC 9110, section 7.8).
///
/// Versions of HTTP are refused, because requests inside the tunnel would reach the upstream with any identity that they
/// claim; so is TLS, which could hide them.
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

/// Reads a route's name, which is a label in metrics and the action in audit records.
fn name(value: &Value<'_>) -> Result<String, Reported> {
    let name = value.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    if name.len() > 100 || !name.chars().all(plain) {
        return value.reject(format_args!("`{name}` is not a route's name: up to 100 of letters, digits and . _ : -"));
    }
    Ok(name)
}

fn method(value: &Value<'_>) -> Result<http::Method, Reported> {
    let method: http::Method = value.parsed("a method such as GET")?;
    let upper = method.as_str().to_ascii_uppercase();
    if upper != method.as_str() {
        return value.reject(format_args!("methods are case-sensitive (RFC 9110 section 9.1); did you mean {upper}?"));
    }
    Ok(method)
}

fn path(value: &Value<'_>) -> Result<String, Reported> {
    let path = value.text()?;
    match pattern_error(&path) {
        Some(error) => value.reject(format_args!("`{path}` {error}")),
        None => Ok(path),
    }
}

/// The error of a path pattern; none when it is valid.
fn pattern_error(path: &str) -> Option<&'static str> {
    let Some(rest) = path.strip_prefix('/') else { return Some("does not begin with `/`") };
    let rest = match rest.strip_suffix("**") {
        Some("") => return None,
        Some(before) => before.strip_suffix('/').unwrap_or("*"),
        None if rest.is_empty() => return None,
        None => rest.strip_suffix('/').unwrap_or(rest),
    };
    rest.split('/').find_map(segment_error)
}

fn segment_error(segment: &str) -> Option<&'static str> {
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

/// The conflict of two routes; none when both can be listed.
fn find_conflict(route: &RouteSettings, other: &RouteSettings) -> Option<String> {
    if route.name == other.name {
        return Some(format!("the name `{}` is another route's already; choose another", route.name));
    }
    let all = route.methods.is_empty() && other.methods.is_empty();
    let shared = all || route.methods.iter().any(|method| other.methods.contains(method));
    (shared && shape(&route.path) == shape(&other.path))
        .then(|| format!("route `{}` is for the same method and path; remove one", other.name))
}

/// A path without the names of its parameters: paths of the same shape match the same requests.
fn shape(path: &str) -> Vec<&str> {
    path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment }).collect()
}
