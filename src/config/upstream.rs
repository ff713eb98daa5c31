//! The block `upstream`: endpoints, protocol and encryption.

use std::sync::Arc;

use rustls::pki_types::ServerName;

use super::{balance, health, outlier, tls};
use crate::forward::{PassedField, PassedFields};
use crate::settings::{Reported, Section, Value};
use crate::tls::ClientSettings;
use crate::upstream::{BalanceSettings, Endpoint, HealthSettings, OutlierSettings, Protocol};

/// The block `upstream`, without the time-outs, which are in the block `timeouts`.
pub(super) struct Upstream {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) protocol: Protocol,
    pub(super) tls: ClientSettings,
    pub(super) passed_fields: PassedFields,
    pub(super) balance: BalanceSettings,
    pub(super) outlier: OutlierSettings,
    pub(super) health: Option<Arc<HealthSettings>>,
}

/// Reads the block `upstream`.
pub(super) fn upstream(section: &mut Section<'_>) -> Result<Upstream, Reported> {
    let endpoints = endpoints(section);
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = section.value_or("protocol", Protocol::Http1, |value| value.choice(&protocols));
    let passed_fields = section.value_or("pass_fields", Vec::new(), |value| value.list(passed_field));
    let balance = section.section("balance", balance::balance);
    let outlier = section.section("outlier", |block| Ok(outlier::outlier(block)));
    let health = section.optional("health", |value| value.section(|block| health::health(block, protocol)));
    let tls = section.section("tls", |block| Ok((tls::client(block), block.optional("server_name", tls::server_name))));
    let ((tls, server_name), mut endpoints) = (tls?, endpoints?);
    // The name that each encrypted endpoint's certificate is checked for: its host, unless `server_name` replaces it.
    let mut encrypted = endpoints.iter_mut().filter_map(|endpoint| endpoint.tls.as_mut()).peekable();
    if encrypted.peek().is_some() {
        // Loaded here, where the place in the file is known, and not first when the gateway starts.
        if let Err(error) = tls.config() {
            section.report(if section.contains("tls") { "tls" } else { "endpoints" }, error.in_full());
        }
    } else if section.contains("tls") {
        section.report("tls", "is given, and no endpoint is encrypted; write https:// there, or remove the block");
    }
    if let Ok(Some(server_name)) = server_name {
        encrypted.for_each(|name| *name = server_name.clone());
    }
    Ok(Upstream {
        endpoints,
        protocol,
        tls,
        passed_fields: PassedFields::new(&passed_fields),
        balance: balance?,
        outlier: outlier?,
        health: health?.map(Arc::new),
    })
}

fn passed_field(value: &Value<'_>) -> Result<PassedField, Reported> {
    let name = value.text()?;
    name.parse().or_else(|error| value.reject(format_args!("`{name}` {error}")))
}

fn endpoints(section: &mut Section<'_>) -> Result<Vec<Endpoint>, Reported> {
    section.required("endpoints", |value| {
        let mut seen = Vec::new();
        let endpoints = value.list(|item| {
            let endpoint = endpoint(item)?;
            if seen.iter().any(|seen: &Endpoint| seen.authority == endpoint.authority) {
                return item.reject("is listed already; remove one");
            }
            seen.push(endpoint.clone());
            Ok(endpoint)
        })?;
        if endpoints.is_empty() { value.reject("is empty; give at least one endpoint") } else { Ok(endpoints) }
    })
}

fn endpoint(value: &Value<'_>) -> Result<Endpoint, Reported> {
    const EXPECTED: &str = "an endpoint such as http://127.0.0.1:8081 or https://store.internal";
    let uri: http::Uri = value.parsed(EXPECTED)?;
    let (authority, encrypted) = match (uri.scheme_str(), uri.authority()) {
        (Some("http"), Some(authority)) => (authority, false),
        (Some("https"), Some(authority)) => (authority, true),
        _ => return value.reject(format_args!("`{uri}` is not {EXPECTED}")),
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.as_str().contains('@') {
        return value.reject(format_args!("`{uri}` is more than scheme, host and port; remove the rest"));
    }
    let (host, port) = (authority.host(), authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 }));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = encrypted.then(|| ServerName::try_from(bare.to_owned())).transpose();
    let (Ok(tls), false) = (name, host.is_empty() || port == 0) else {
        return value.reject(format_args!("`{uri}` is not {EXPECTED}"));
    };
    Ok(Endpoint { host: bare.to_owned(), port, authority: format!("{host}:{port}"), tls })
}
