//! The block `session`: where the dashboard is, how long web sessions last, and by whom people sign in.

use std::time::Duration;

use http::Uri;

use super::tls;
use crate::admission::RouteSettings;
use crate::dashboard::{Claim, ClaimMapping, ProviderSettings, Settings};
use crate::identity::Permission;
use crate::oidc;
use crate::settings::{Section, Value};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Where the dashboard is unless the configuration says otherwise.
const PATH: &str = "/settings";
/// How long a session may go unused: a lunch break and a bit.
const IDLE: Duration = HOUR.saturating_mul(2);
/// How long a session lasts: a working day.
const LIFETIME: Duration = HOUR.saturating_mul(12);

pub(super) fn session(section: &mut Section<'_>, routes: &[RouteSettings]) -> Option<Settings> {
    let origin = section.required("origin", origin);
    let path = section.optional("path", PATH.to_owned(), path);
    let api_origin = section.maybe("api", any_origin);
    let idle = section.optional("idle", IDLE, |value| value.duration(SECOND * 10..=30 * DAY));
    let lifetime = section.optional("lifetime", LIFETIME, |value| value.duration(SECOND * 10..=90 * DAY));
    let links = section.optional("links", true, |value| value.boolean());
    let providers = section.optional("providers", Vec::new(), providers);
    if idle > lifetime {
        section.report("idle", "is longer than `lifetime`, which ends every session; make it shorter");
    }
    if providers.is_empty() && !links {
        section.report("providers", "is empty and `links` is off, so nobody could sign in; list one");
    }
    refuse_route_below(section, &path, routes);
    Some(Settings { origin: origin?, path, idle, lifetime, links, api_origin, providers })
}

/// A route that the dashboard hides.
fn refuse_route_below(section: &Section<'_>, path: &str, routes: &[RouteSettings]) {
    let is_below = |route: &&RouteSettings| {
        route.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(route) = routes.iter().find(is_below) {
        let (name, below) = (&route.name, &route.path);
        section.report("path", format_args!("is above {below}, which route `{name}` is for; choose another"));
    }
}

/// An origin that browsers keep session cookies for.
fn origin(value: &Value<'_>) -> Option<String> {
    let origin = any_origin(value)?;
    let host = origin.strip_prefix("http://");
    let is_local = |host: &str| host.starts_with("localhost") || host.starts_with("127.") || host.starts_with("[::1]");
    if host.is_some_and(|host| !is_local(host)) {
        return value
            .reject("is not https, and browsers keep session cookies for https only, or for this very machine");
    }
    Some(origin)
}

/// An origin as browsers write it (RFC 6454, section 6.2): they leave out the scheme's own port.
fn any_origin(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.path() == "/" && uri.query().is_none());
    let scheme = uri.as_ref().and_then(|uri| uri.scheme_str()).filter(|scheme| ["http", "https"].contains(scheme));
    let (Some(uri), Some(scheme)) = (uri.as_ref(), scheme) else {
        return value.reject(format_args!("`{text}` is not an origin such as https://gateway.example.com"));
    };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let own = if scheme == "https" { 443 } else { 80 };
    Some(match uri.port_u16().filter(|port| *port != own) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

fn path(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    let plain =
        |segment: &str| !segment.is_empty() && segment.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c));
    let segments = text.strip_prefix('/');
    if !segments.is_some_and(|segments| segments.split('/').all(plain)) {
        let what = "is not a path such as /settings: segments of letters, digits, - and _, and no slash at the end";
        return value.reject(format_args!("`{text}` {what}"));
    }
    Some(text)
}

fn providers(value: &Value<'_>) -> Option<Vec<ProviderSettings>> {
    let mut seen = Vec::new();
    value.list(|item| {
        let provider = item.section(provider)?;
        if seen.contains(&provider.oidc.name) {
            return item.reject(format_args!("there is a provider `{}` already; rename one", provider.oidc.name));
        }
        seen.push(provider.oidc.name.clone());
        Some(provider)
    })
}

fn provider(section: &mut Section<'_>) -> Option<ProviderSettings> {
    let name = section.required("name", name);
    let label = section.maybe("label", label);
    let issuer = section.required("issuer", issuer);
    let client_id = section.required("client_id", |value| value.text());
    let client_secret = section.maybe("client_secret", |value| value.secret());
    let scopes = section.optional("scopes", default_scopes(), scopes);
    let tls = section.maybe("tls", |value| value.section(|section| Some(tls::client(section))));
    let mapping = section.section("people", claim_mapping);
    let claims = mapping.iter().flat_map(ClaimMapping::claims).collect();
    let name = name?;
    let label = label.unwrap_or_else(|| name.clone());
    let oidc = oidc::Settings {
        name,
        label,
        issuer: issuer?,
        client_id: client_id?,
        client_secret,
        scopes,
        claims,
        tls: tls.unwrap_or_default(),
    };
    Some(ProviderSettings { oidc, claim_mapping: mapping? })
}

/// A provider's name is a part of paths, and of records.
fn name(value: &Value<'_>) -> Option<String> {
    let name = value.text()?;
    let plain = name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    if name.len() > 40 || !plain {
        return value.reject(format_args!("`{name}` is not a provider's name: up to 40 of a-z, 0-9 and -"));
    }
    Some(name)
}

fn label(value: &Value<'_>) -> Option<String> {
    let label = value.text()?;
    if label.chars().count() > 60 || label.chars().any(char::is_control) {
        return value.reject("is too long for a button, or has control characters; give up to 60 characters");
    }
    Some(label)
}

fn issuer(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    match oidc::Settings::check_issuer(&text) {
        Ok(()) => Some(text),
        Err(error) => value.reject(error),
    }
}

fn default_scopes() -> Vec<String> {
    ["openid", "email", "profile"].map(str::to_owned).to_vec()
}

/// RFC 6749, section 3.3.
fn scopes(value: &Value<'_>) -> Option<Vec<String>> {
    let scopes = value.list(|item| {
        let scope = item.text()?;
        let plain = scope.bytes().all(|c| c.is_ascii_graphic() && c != b'"' && c != b'\\');
        if plain { Some(scope) } else { item.reject(format_args!("`{scope}` is not a scope such as email")) }
    })?;
    if !scopes.iter().any(|scope| scope == "openid") {
        return value.reject("lacks `openid`, without which there is no sign-in; add it");
    }
    Some(scopes)
}

fn claim_mapping(section: &mut Section<'_>) -> ClaimMapping {
    let email = section.optional("email", "email".to_owned(), |value| value.text());
    let accept_unverified = section.optional("unverified_email", false, |value| value.boolean());
    let orgs = section.maybe("organization", |value| value.section(|section| claim(section, |value| value.text())));
    let only = section.maybe("only", |value| value.list(|item| item.text()));
    let granted = |value: &Value<'_>| value.list(permission);
    let permissions = section.maybe("permissions", |value| value.section(|section| claim(section, granted)));
    ClaimMapping { email, accept_unverified, orgs, only, permissions }
}

fn claim<T>(section: &mut Section<'_>, mut read: impl FnMut(&Value<'_>) -> Option<T>) -> Option<Claim<T>> {
    let name = section.required("claim", |value| value.text());
    let map = section.optional("map", Vec::new(), |value| {
        value.list(|item| {
            item.section(|section| {
                let given = section.required("value", |value| value.text());
                let means = section.required("means", &mut read);
                Some((given?, means?))
            })
        })
    });
    Some(Claim { name: name?, map })
}

fn permission(value: &Value<'_>) -> Option<Permission> {
    value.parsed("a permission: 1 to 64 characters of a-z, 0-9 and : . _ -, such as queries:read")
}
