//! The block `session`: the dashboard, its web sessions, and the identity providers.

use std::net::IpAddr;
use std::time::Duration;

use http::Uri;

use super::limits;
use crate::admission::RouteSettings;
use control::dashboard::{Claim, ClaimMapping, ProviderSettings, Settings};
use control::oidc;
use domain::identity::Permission;
use domain::quota::Quota;
use platform::settings::{Reported, Section, Value};
use platform::tls::ClientSettings;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Default path of the dashboard.
pub const DASHBOARD_PATH: &str = "/settings";
/// Default idle time of a session: a lunch break and a bit.
const IDLE: Duration = HOUR.saturating_mul(2);
/// Default lifetime of a session: a working day.
const LIFETIME: Duration = HOUR.saturating_mul(12);
/// Default time for which browsers use https only: a year, as common lists of such hosts ask for.
const HSTS: Duration = DAY.saturating_mul(365);
/// Default limit of a person's requests to the dashboard: far more than a person who reads pages sends, or a program
/// that walks through some thousand keys.
const LIMIT: Quota = Quota { requests: 300, per: Duration::from_secs(60), burst: 300, strict: false };

/// Reads the block `session`. No route may be under the dashboard's path.
pub(super) fn session(section: &mut Section<'_>, routes: &[RouteSettings]) -> Result<Settings, Reported> {
    let origin = section.required("origin", session_origin);
    let path = section.value_or("path", DASHBOARD_PATH.to_owned(), path);
    let api_origin = section.optional("api", any_origin);
    let idle = section.value_or("idle", IDLE, |value| value.duration(SECOND * 10..=30 * DAY));
    let lifetime = section.value_or("lifetime", LIFETIME, |value| value.duration(SECOND * 10..=90 * DAY));
    let hsts = section.value_or("hsts", HSTS, |value| value.duration(Duration::ZERO..=731 * DAY));
    let links = section.value_or("links", true, |value| value.boolean());
    let limit = section.section("limit", |section| Ok(limits::quota(section, LIMIT)));
    let managers = section.section("people", |section| {
        Ok(section.value_or("managed_by", false, |value| value.choice(&[("provider", false), ("admins", true)])))
    });
    let providers = section.value_or("providers", Vec::new(), providers);
    if idle > lifetime {
        section.report("idle", "is longer than `lifetime`, which ends every session; make it shorter");
    }
    if providers.is_empty() && !links {
        section.report("providers", "is empty and `links` is off, so that no user could sign in; list one");
    }
    refuse_route_below(section, &path, routes);
    let admins_manage_people = managers?;
    if admins_manage_people && let Some(provider) = providers.iter().find(|provider| provider.claims_people()) {
        section.report("people", format_args!(
            "`managed_by: admins` leaves people and permissions to admins, and the provider `{}` maps claims to them; \
             remove its `people.organization` and `people.permissions`",
            provider.oidc.name
        ));
    }
    let origin = origin?;
    let limit = limit?;
    let api_origin = api_origin?;
    // Browsers ignore the field over http (RFC 6797, section 8.1).
    let hsts = Some(hsts).filter(|age| !age.is_zero() && origin.starts_with("https://"));
    Ok(Settings { origin, path, idle, lifetime, hsts, links, admins_manage_people, limit, api_origin, providers })
}

/// Refuses a route under the dashboard's path, which requests could never reach.
fn refuse_route_below(section: &Section<'_>, path: &str, routes: &[RouteSettings]) {
    let is_below = |route: &&RouteSettings| {
        route.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(route) = routes.iter().find(is_below) {
        let name = &route.name;
        let below = &route.path;
        section.report("path", format_args!("is above {below}, which route `{name}` is for; choose another"));
    }
}

/// Reads an origin for which browsers keep session cookies: https, or http on this machine.
fn session_origin(value: &Value<'_>) -> Result<String, Reported> {
    let origin = any_origin(value)?;
    if origin.starts_with("http://") && !is_this_machine(&origin) {
        return value
            .reject("is not https, and browsers keep session cookies for https only, or for this very machine");
    }
    Ok(origin)
}

/// Returns whether the host of an origin is `localhost` or a loopback address. Other names may begin so
/// (`127.evil.example`) and belong to anybody.
fn is_this_machine(origin: &str) -> bool {
    let uri: Option<Uri> = origin.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Reads an origin, in the form in which browsers send it (RFC 6454, section 6.2): without the scheme's default port.
fn any_origin(value: &Value<'_>) -> Result<String, Reported> {
    let text = value.text()?;
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.path() == "/" && uri.query().is_none());
    let scheme = uri.as_ref().and_then(|uri| uri.scheme_str()).filter(|scheme| ["http", "https"].contains(scheme));
    let (Some(uri), Some(scheme)) = (uri.as_ref(), scheme) else {
        return value.reject(format_args!("`{text}` is not an origin such as https://gateway.example.com"));
    };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let default_port = if scheme == "https" { 443 } else { 80 };
    Ok(match uri.port_u16().filter(|port| *port != default_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Reads a path of the gateway's own.
pub(super) fn path(value: &Value<'_>) -> Result<String, Reported> {
    let text = value.text()?;
    let plain =
        |segment: &str| !segment.is_empty() && segment.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c));
    let segments = text.strip_prefix('/');
    if !segments.is_some_and(|segments| segments.split('/').all(plain)) {
        let what = "is not a path such as /settings: segments of letters, digits, - and _, and no slash at the end";
        return value.reject(format_args!("`{text}` {what}"));
    }
    Ok(text)
}

fn providers(value: &Value<'_>) -> Result<Vec<ProviderSettings>, Reported> {
    let mut seen = Vec::new();
    let mut unlimited = Vec::new();
    let mut domains: Vec<String> = Vec::new();
    let mut providers = value.list(|item| {
        let (provider, says_reach) = item.section(provider)?;
        if seen.contains(&provider.oidc.name) {
            return item.reject(format_args!("there is a provider `{}` already; rename one", provider.oidc.name));
        }
        if let Some(domain) = provider.domains.iter().find(|domain| domains.contains(domain)) {
            return item.reject(format_args!("there is a provider for `{domain}` already; remove one of the domains"));
        }
        seen.push(provider.oidc.name.clone());
        unlimited.extend((!says_reach).then(|| format!("`{}`", provider.oidc.name)));
        domains.extend(provider.domains.iter().cloned());
        Ok(provider)
    })?;
    // Each of several providers could otherwise sign in as anybody's administrator: it chooses the addresses itself.
    if providers.len() > 1 && !unlimited.is_empty() {
        return value.reject(format_args!(
            "has several providers, and {} lacks `people.only`: give each one the organizations that it may speak for, \
             such as `only: [Acme]`, or `only: all` where it may speak for every one",
            unlimited.join(" and ")
        ));
    }
    // A single provider leaves nothing to choose, and no list to read.
    if let [only] = &mut providers[..] {
        only.listed = true;
    }
    Ok(providers)
}

/// Reads a provider. Returns with it whether it says which organizations it may speak for.
fn provider(section: &mut Section<'_>) -> Result<(ProviderSettings, bool), Reported> {
    let name = section.required("name", name);
    let label = section.optional("label", label);
    let issuer = section.required("issuer", issuer);
    let client_id = section.required("client_id", |value| value.text());
    let audiences = section.value_or("audiences", Vec::new(), |value| value.list(|item| item.text()));
    let client_secret = section.optional("client_secret", |value| value.secret());
    let scopes = section.value_or("scopes", default_scopes(), scopes);
    let tls = section.optional("tls", |value| value.section(|section| Ok(ClientSettings::read(section))));
    let claim_mapping = section.section("people", claim_mapping);
    let listed = section.optional("listed", |value| value.boolean());
    let domains = section.value_or("domains", Vec::new(), |value| value.list(domain));
    let name = name?;
    let (claim_mapping, says_reach) = claim_mapping?;
    // A provider of some organizations only is one of customers, whom the page does not name to strangers.
    let listed = listed?.unwrap_or(claim_mapping.only.is_none());
    let oidc = oidc::Settings {
        label: label?.unwrap_or_else(|| name.clone()),
        name,
        issuer: issuer?,
        client_id: client_id?,
        audiences,
        client_secret: client_secret?,
        scopes,
        claims: claim_mapping.claims(),
        tls: tls?.unwrap_or_default(),
    };
    Ok((ProviderSettings { oidc, claim_mapping, listed, domains }, says_reach))
}

/// Reads a domain of email addresses.
fn domain(value: &Value<'_>) -> Result<String, Reported> {
    let domain = value.text()?.to_lowercase();
    let plain = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_alphanumeric() || c == '-');
    if domain.len() <= 253 && domain.split('.').all(plain) {
        return Ok(domain);
    }
    value.reject(format_args!("`{domain}` is not the domain of email addresses, such as example.com"))
}

/// Reads a provider's name, which becomes a part of paths and of records.
fn name(value: &Value<'_>) -> Result<String, Reported> {
    let name = value.text()?;
    let plain = name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    if name.len() > 40 || !plain {
        return value.reject(format_args!("`{name}` is not a provider's name: up to 40 of a-z, 0-9 and -"));
    }
    Ok(name)
}

fn label(value: &Value<'_>) -> Result<String, Reported> {
    let label = value.text()?;
    if label.chars().count() > 60 || label.chars().any(char::is_control) {
        return value.reject("is too long for a button, or has control characters; give up to 60 characters");
    }
    Ok(label)
}

fn issuer(value: &Value<'_>) -> Result<String, Reported> {
    let text = value.text()?;
    oidc::Settings::check_issuer(&text).map_err(|error| value.report(error))?;
    Ok(text)
}

fn default_scopes() -> Vec<String> {
    ["openid", "email", "profile"].map(str::to_owned).to_vec()
}

/// Reads scopes (RFC 6749, section 3.3).
fn scopes(value: &Value<'_>) -> Result<Vec<String>, Reported> {
    let scopes = value.list(|item| {
        let scope = item.text()?;
        let plain = scope.bytes().all(|c| c.is_ascii_graphic() && c != b'"' && c != b'\\');
        if plain { Ok(scope) } else { item.reject(format_args!("`{scope}` is not a scope such as email")) }
    })?;
    if !scopes.iter().any(|scope| scope == "openid") {
        return value.reject("lacks `openid`, without which there is no sign-in; add it");
    }
    Ok(scopes)
}

fn claim_mapping(section: &mut Section<'_>) -> Result<(ClaimMapping, bool), Reported> {
    let email = section.value_or("email", "email".to_owned(), |value| value.text());
    let accept_unverified = section.value_or("unverified_email", false, |value| value.boolean());
    let orgs = section.optional("organization", |value| value.section(|section| claim(section, |value| value.text())));
    let says_reach = section.contains("only");
    let only = section.optional("only", reach);
    let granted = |value: &Value<'_>| value.list(permission);
    let permissions = section.optional("permissions", |value| value.section(|section| claim(section, granted)));
    let orgs = orgs?;
    let only = only?.flatten();
    let permissions = permissions?;
    Ok((ClaimMapping { email, accept_unverified, orgs, only, permissions }, says_reach))
}

/// Reads the organizations that a provider may speak for; `None` for all.
fn reach(value: &Value<'_>) -> Result<Option<Vec<String>>, Reported> {
    if value.is_list() {
        return value.list(|item| item.text()).map(Some);
    }
    let text = value.text()?;
    if text == "all" {
        return Ok(None);
    }
    value.reject(format_args!("`{text}` is not a list of organizations; give one, such as [{text}], or `all`"))
}

fn claim<T>(
    section: &mut Section<'_>,
    mut read: impl FnMut(&Value<'_>) -> Result<T, Reported>,
) -> Result<Claim<T>, Reported> {
    let name = section.required("claim", |value| value.text());
    let map = section.value_or("map", Vec::new(), |value| {
        value.list(|item| {
            item.section(|section| {
                let given = section.required("value", |value| value.text());
                let means = section.required("means", &mut read);
                Ok((given?, means?))
            })
        })
    });
    Ok(Claim { name: name?, map })
}

fn permission(value: &Value<'_>) -> Result<Permission, Reported> {
    value.parsed("a permission: 1 to 64 characters of a-z, 0-9 and : . _ -, such as queries:read")
}
