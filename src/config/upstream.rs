//! One upstream: endpoints and their discovery, protocol and encryption.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use rustls::pki_types::ServerName;

use super::listeners::find_reached;
use super::{Listener, balance, connections, health, outlier, retries, timeouts, tls};
use domain::http_syntax::is_host_name;
use edge::forward::{HostPolicy, PassedField, PassedFields};
use platform::settings::{Reported, Section, Value};
use platform::tls::ClientSettings;
use upstream::{DiscoverySettings, Protocol, Settings, Source, SourceError, Sources, Timeouts};

/// Port of name servers (RFC 1035, section 4.2).
const DNS_PORT: u16 = 53;

/// One upstream of the configuration.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Settings of its exchanges. Names among its endpoints have no addresses before they were looked up.
    pub settings: Settings,
    /// Sources of its endpoints, and the name servers to ask.
    pub discovery: DiscoverySettings,
    /// Spoofable fields of clients that reach it.
    pub passed_fields: PassedFields,
    /// `Host` that it gets.
    pub host: HostPolicy,
}

/// Parts of the file that an upstream is read beside.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    /// The block `timeouts`, which stands in for the upstream's own.
    pub(super) timeouts: Timeouts,
    /// The listeners, as far as they could be read: none of them is an endpoint.
    pub(super) listen: &'a [Listener],
}

/// Reads the block of an upstream.
pub(super) fn upstream(section: &mut Section<'_>, name: &str, around: Around<'_>) -> Result<Upstream, Reported> {
    let sources = sources(section, around.listen);
    let servers = servers(section);
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = section.value_or("protocol", Protocol::Http1, |value| value.choice(&protocols));
    let timeouts = section.section("timeouts", |block| Ok(timeouts::of_upstream(block, around.timeouts)));
    let connections = section.section("connections", |block| Ok(connections::connections(block)));
    let host = section.value_or("host", HostPolicy::Endpoint, host_policy);
    let passed_fields = section.value_or("pass_fields", Vec::new(), |value| value.list(passed_field));
    let balance = section.section("balance", balance::balance);
    let outlier = section.section("outlier", |block| Ok(outlier::outlier(block)));
    let health =
        section.optional("health", |value| value.section(|block| health::health(block, protocol, host.name())));
    let retries = section.section("retries", |block| Ok(retries::retries(block)));
    let max_requests = section.section("limits", |block| Ok(max_requests(block)));
    let tls = section
        .section("tls", |block| Ok((ClientSettings::read(block), block.optional("server_name", tls::server_name))));
    let (tls, server_name) = tls?;
    let mut sources = sources?;
    check_encryption(section, &mut sources, &tls);
    if let Ok(Some(server_name)) = server_name {
        replace_server_name(&mut sources, &server_name);
    }
    let discovery = DiscoverySettings { sources, servers: servers? };
    let (lifetimes, connections) = connections?;
    let settings = Settings {
        name: name.into(),
        endpoints: discovery.known_endpoints(),
        protocol,
        tls,
        timeouts: timeouts?,
        lifetimes,
        connections,
        balance: balance?,
        outlier: outlier?,
        health: health?.map(Arc::new),
        retries: retries?,
        max_requests: max_requests?,
    };
    Ok(Upstream { settings, discovery, passed_fields: PassedFields::new(&passed_fields), host })
}

/// Checks that TLS can be used where an endpoint has it, and is not configured where none has.
fn check_encryption(section: &Section<'_>, sources: &mut Sources, tls: &ClientSettings) {
    let is_encrypted = match sources {
        Sources::Listed(sources) => sources.iter_mut().any(|source| source.tls_name().is_some()),
        // The file may name encrypted endpoints later.
        Sources::File { .. } => section.contains("tls"),
    };
    if is_encrypted {
        // Loaded here, where the place in the file is known, and not first when the gateway starts.
        if let Err(error) = tls.config() {
            section.report(if section.contains("tls") { "tls" } else { "endpoints" }, error.in_full());
        }
    } else if section.contains("tls") {
        section.report("tls", "is given, and no endpoint is encrypted; write https:// there, or remove the block");
    }
}

/// Replaces the name that each encrypted endpoint's certificate is checked for, which is its host otherwise.
fn replace_server_name(sources: &mut Sources, name: &ServerName<'static>) {
    match sources {
        Sources::Listed(sources) => {
            sources.iter_mut().filter_map(Source::tls_name).for_each(|current| *current = name.clone());
        }
        Sources::File { server_name, .. } => *server_name = Some(name.clone()),
    }
}

/// `endpoint`, `client`, or the name of a host, with or without a port.
fn host_policy(value: &Value<'_>) -> Result<HostPolicy, Reported> {
    let text = value.text()?;
    match text.as_str() {
        "endpoint" => Ok(HostPolicy::Endpoint),
        "client" => Ok(HostPolicy::Client),
        name => match HeaderValue::from_str(name).ok().filter(|name| is_host_name(name.as_bytes())) {
            Some(name) => Ok(HostPolicy::Name(name)),
            None => value.reject(format_args!("`{name}` is not endpoint, client, or a host such as api.example.com")),
        },
    }
}

fn passed_field(value: &Value<'_>) -> Result<PassedField, Reported> {
    let name = value.text()?;
    name.parse().or_else(|error| value.reject(format_args!("`{name}` {error}")))
}

/// Reads the sources of endpoints: a list, or a file that is watched.
fn sources(section: &mut Section<'_>, listen: &[Listener]) -> Result<Sources, Reported> {
    section.required("endpoints", |value| {
        if !value.is_block() {
            return listed(value, listen).map(Sources::Listed);
        }
        value.section(|block| {
            let path = block.required("file", Value::path)?;
            Ok(Sources::File { path, server_name: None })
        })
    })
}

fn listed(value: &Value<'_>, listen: &[Listener]) -> Result<Vec<Source>, Reported> {
    // By their names: lists have tens of thousands of endpoints.
    let mut seen = HashSet::new();
    let sources = value.list(|item| {
        let source = source(item)?;
        let endpoint = source.endpoint();
        if let Some(number) = find_reached(listen, &endpoint.host, endpoint.port) {
            return item.reject(format_args!(
                "is `listen[{number}]` of this gateway, which would send requests to itself; give the address of \
                 your API"
            ));
        }
        if seen.insert(source.name().to_owned()) { Ok(source) } else { item.reject("is listed already; remove one") }
    })?;
    if sources.is_empty() { value.reject("is empty; give at least one endpoint") } else { Ok(sources) }
}

fn source(value: &Value<'_>) -> Result<Source, Reported> {
    value.text()?.parse().or_else(|error: SourceError| value.reject(error))
}

/// Reads the block `limits`: requests in flight at most; none: any number.
fn max_requests(section: &mut Section<'_>) -> Option<usize> {
    section.value_or("requests", None, |value| value.integer(1..=1_000_000).map(Some))
}

/// Reads the block `resolver`: the name servers to ask; none: those of the system.
fn servers(section: &mut Section<'_>) -> Result<Vec<SocketAddr>, Reported> {
    let servers = section
        .section("resolver", |block| Ok(block.value_or("servers", Vec::new(), |value| value.list(name_server))))?;
    Ok(servers)
}

fn name_server(value: &Value<'_>) -> Result<SocketAddr, Reported> {
    const EXPECTED: &str = "the address of a name server, such as 10.0.0.53 or 10.0.0.53:5353";
    let text = value.text()?;
    let server = text.parse().or_else(|_| text.parse().map(|address| SocketAddr::new(address, DNS_PORT)));
    server.or_else(|_| value.reject(format_args!("`{text}` is not {EXPECTED}")))
}
