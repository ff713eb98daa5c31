//! The blocks `upstream`, `timeouts` and `http`: what is forwarded where, how large it may be and how long it may take.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::tls;
use crate::settings::{Section, Value};
use crate::tls::ClientSettings;
use crate::transport;
use crate::upstream::{self, Endpoint, Protocol};

/// What a time-out may be: a day is for ever, to a connection.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// The block `timeouts`, whose values belong to several modules.
pub(super) struct Timeouts {
    handshake: Duration,
    first_byte: Duration,
    write_idle: Duration,
    head: Duration,
    keep_alive: Duration,
    body_idle: Duration,
    connect: Duration,
    response: Duration,
    response_idle: Duration,
    exchange: Duration,
    pub(super) tunnel_idle: Duration,
    pub(super) lame_duck: Duration,
    pub(super) drain: Duration,
}

impl Timeouts {
    /// The transport's settings: these time-outs, and the sizes of `http`.
    pub(super) fn transport(&self, http: transport::Settings) -> transport::Settings {
        transport::Settings {
            handshake_timeout: self.handshake,
            first_byte_timeout: self.first_byte,
            write_idle_timeout: self.write_idle,
            head_timeout: self.head,
            keep_alive_timeout: self.keep_alive,
            body_idle_timeout: self.body_idle,
            ..http
        }
    }

    /// The upstream's settings: these time-outs, and where and what it is.
    pub(super) fn upstream(&self, Upstream { endpoints, protocol, tls }: Upstream) -> upstream::Settings {
        upstream::Settings {
            endpoints,
            protocol,
            tls,
            timeouts: upstream::Timeouts {
                connect: self.connect,
                response: self.response,
                response_idle: self.response_idle,
                exchange: self.exchange,
            },
        }
    }
}

pub(super) fn timeouts(section: &mut Section<'_>) -> Timeouts {
    let transport = transport::Settings::default();
    let lame_duck =
        section.optional("lame_duck", Duration::from_secs(5), |value| value.duration(Duration::ZERO..=*TIMEOUT.end()));
    let mut timeout = |name, default| section.optional(name, default, |value| value.duration(TIMEOUT));
    Timeouts {
        handshake: timeout("handshake", transport.handshake_timeout),
        first_byte: timeout("first_byte", transport.first_byte_timeout),
        write_idle: timeout("write_idle", transport.write_idle_timeout),
        head: timeout("head", transport.head_timeout),
        keep_alive: timeout("keep_alive", transport.keep_alive_timeout),
        body_idle: timeout("body_idle", transport.body_idle_timeout),
        connect: timeout("connect", Duration::from_secs(2)),
        response: timeout("response", Duration::from_secs(60)),
        response_idle: timeout("response_idle", Duration::from_secs(60)),
        exchange: timeout("exchange", Duration::from_secs(15 * 60)),
        tunnel_idle: timeout("tunnel_idle", Duration::from_secs(3600)),
        lame_duck,
        drain: timeout("drain", Duration::from_secs(25)),
    }
}

/// Connections that there may be: what two million file descriptors' worth of memory could hold, and no machine needs.
const MOST_CONNECTIONS: usize = 1 << 20;
/// Connections unless another number is given, in total: with what each may hold, memory that every server has.
const CONNECTIONS: usize = 20_000;
/// The same, of one address.
const CONNECTIONS_PER_ADDRESS: usize = 1000;

/// The sizes of `http`, and how many connections there may be, in total and from one address; the time-outs are those of
/// the defaults.
pub(super) fn http(section: &mut Section<'_>) -> (transport::Settings, (usize, usize)) {
    let default = transport::Settings::default();
    let size = |value: &Value<'_>| value.size(1024..=1 << 20).and_then(|size| usize::try_from(size).ok());
    let window = |value: &Value<'_>| value.size(65_535..=1 << 30).and_then(|size| u32::try_from(size).ok());
    let http = transport::Settings {
        // hyper reads no head into less than 8 KiB.
        max_head: section.optional("max_head", default.max_head, |value| {
            value.size(8 << 10..=1 << 20).and_then(|size| usize::try_from(size).ok())
        }),
        max_fields: section.optional("max_fields", default.max_fields, |value| value.integer(1..=10_000)),
        max_target: section.optional("max_target", default.max_target, size),
        max_body: section.optional("max_body", default.max_body, |value| value.size(0..=1 << 50)),
        max_streams: section.optional("max_streams", default.max_streams, |value| value.integer(1..=65_536)),
        stream_window: section.optional("stream_window", default.stream_window, window),
        connection_window: section.optional("connection_window", default.connection_window, window),
        min_body_rate: section.optional("min_body_rate", default.min_body_rate, |value| value.size(0..=1 << 30)),
        ..default
    };
    let mut connections = |name, most| section.optional(name, most, |value| value.integer(1..=MOST_CONNECTIONS));
    let total = connections("max_connections", CONNECTIONS);
    let per_address = connections("max_connections_per_address", CONNECTIONS_PER_ADDRESS.min(total));
    if http.max_target > http.max_head {
        section.report("max_target", "is larger than `max_head`, of which it is a part; make it smaller");
    }
    (http, (total, per_address))
}

/// The block `upstream`, but for its time-outs.
pub(super) struct Upstream {
    endpoints: Vec<Endpoint>,
    pub(super) protocol: Protocol,
    tls: ClientSettings,
}

pub(super) fn upstream(section: &mut Section<'_>) -> Option<Upstream> {
    let endpoints = endpoints(section);
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = section.optional("protocol", Protocol::Http1, |value| value.choice(&protocols));
    let (tls, server_name) =
        section.section("tls", |block| (tls::client(block), block.maybe("server_name", tls::server_name)))?;
    let mut endpoints = endpoints?;
    let mut encrypted = endpoints.iter_mut().filter_map(|endpoint| endpoint.tls.as_mut()).peekable();
    if encrypted.peek().is_some() {
        if let Err(error) = tls.config() {
            section.report(if section.contains("tls") { "tls" } else { "endpoints" }, error.in_full());
        }
    } else if section.contains("tls") {
        section.report("tls", "is given, and no endpoint is encrypted; write https:// there, or remove the block");
    }
    if let Some(server_name) = server_name {
        encrypted.for_each(|name| *name = server_name.clone());
    }
    Some(Upstream { endpoints, protocol, tls })
}

fn endpoints(section: &mut Section<'_>) -> Option<Vec<Endpoint>> {
    section.required("endpoints", |value| {
        let mut seen = Vec::new();
        let endpoints = value.list(|item| {
            let endpoint = endpoint(item)?;
            if seen.iter().any(|seen: &Endpoint| seen.authority == endpoint.authority) {
                return item.reject("is listed already; remove one");
            }
            seen.push(endpoint.clone());
            Some(endpoint)
        })?;
        if endpoints.is_empty() { value.reject("is empty; give at least one endpoint") } else { Some(endpoints) }
    })
}

fn endpoint(value: &Value<'_>) -> Option<Endpoint> {
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
    Some(Endpoint { host: bare.to_owned(), port, authority: format!("{host}:{port}"), tls })
}
