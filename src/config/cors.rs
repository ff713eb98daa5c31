//! The block `cors`, of the file or of a route: the origins whose pages may read answers.

use std::time::Duration;

use http::HeaderName;

use crate::admission::CorsSettings;
use platform::settings::{Reported, Section, Value};

/// Time for which browsers keep the answer to a preflight: seldom asked for, and soon changed.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Longest time that a browser keeps it.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Reads a block `cors`. Its values are none of the defaults of another block.
pub(super) fn cors(section: &mut Section<'_>) -> Result<CorsSettings, Reported> {
    let origins = section.required("origins", origins);
    let max_age = section.value_or("max_age", MAX_AGE, |value| value.duration(Duration::ZERO..=LONGEST));
    let headers = section.value_or("headers", Vec::new(), |value| value.list(field));
    let expose = section.value_or("expose", Vec::new(), |value| value.list(field));
    Ok(CorsSettings { origins: origins?, max_age, headers, expose })
}

fn origins(value: &Value<'_>) -> Result<Vec<String>, Reported> {
    let origins = value.list(origin)?;
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        return value.reject("has `*`, which is every origin, and others; keep `*` alone, or remove it");
    }
    Ok(origins)
}

/// Reads an origin as browsers send it (RFC 6454, section 6.2).
fn origin(value: &Value<'_>) -> Result<String, Reported> {
    let origin = value.text()?;
    match origin_error(&origin) {
        Some(error) => value.reject(format_args!("`{origin}` {error}")),
        None => Ok(origin),
    }
}

fn origin_error(origin: &str) -> Option<&'static str> {
    if origin == "*" {
        return None;
    }
    let malformed = Some("is not an origin such as https://app.example.com or http://localhost:3000; or `*` for all");
    let Some((scheme, authority)) = origin.split_once("://") else { return malformed };
    let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_authority = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if authority.contains('/') {
        return Some("has a path; browsers send scheme, host and port alone: leave out the rest");
    }
    if scheme.is_empty()
        || authority.is_empty()
        || !scheme.bytes().all(is_scheme)
        || !authority.bytes().all(is_authority)
    {
        return malformed;
    }
    if origin.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some("has upper case, in which no browser sends it; write it in lower case");
    }
    let default_port = matches!((scheme, authority.rsplit(':').next()), ("http", Some("80")) | ("https", Some("443")));
    default_port.then_some("has the default port of its scheme, which browsers leave out; leave it out")
}

fn field(value: &Value<'_>) -> Result<HeaderName, Reported> {
    let name = value.text()?;
    HeaderName::from_bytes(name.as_bytes())
        .or_else(|_| value.reject(format_args!("`{name}` is not the name of a field, such as X-Trace-Id")))
}
