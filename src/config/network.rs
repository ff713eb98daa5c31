//! The blocks `listen`, `admin` and `trusted_proxies`: who may connect where.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::tls;
use crate::settings::{Section, Value};
use crate::tls::ServerSettings;
use crate::transport::Http2Negotiation;

/// The admin listener unless another is given: reachable from this machine only.
const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9090);
/// Bytes of a Unix socket's path on Linux, its closing zero included.
const SOCKET_PATH: usize = 108;

/// One place where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Whether connections that are not encrypted may be HTTP/2.
    pub http2: Http2Negotiation,
    /// Whose connections begin with a PROXY header.
    pub proxy_protocol: Vec<IpNet>,
    /// How it is encrypted; none for plain HTTP.
    pub tls: Option<ServerSettings>,
    /// What is to be had there.
    pub role: ListenerRole,
}

/// What is to be had at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// The dashboard under its path, and what is behind the gateway under all others.
    All,
    /// What is behind the gateway; under the dashboard's path there is nothing.
    Api,
    /// The dashboard, and nothing else.
    Dashboard,
}

/// Where operators and their tools connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// The Unix socket of management; whoever may open it may do everything.
    pub socket: PathBuf,
    /// `/metrics`, `/live` and `/ready`.
    pub address: SocketAddr,
}

pub(super) fn listen(value: &Value<'_>) -> Option<Vec<Listener>> {
    let mut seen = Vec::new();
    let listeners = value.list(|item| item.section(|section| listener(section, &mut seen)))?;
    if listeners.is_empty() {
        return value.reject("is empty; give at least one address");
    }
    Some(listeners)
}

fn listener(section: &mut Section<'_>, seen: &mut Vec<SocketAddr>) -> Option<Listener> {
    let address = section.required("address", |value| own_address(value, seen));
    let http2 = [("alpn", Http2Negotiation::Alpn), ("prior_knowledge", Http2Negotiation::PriorKnowledge)];
    let http2 = section.optional("http2", Http2Negotiation::Alpn, |value| value.choice(&http2));
    let proxy_protocol = section.optional("proxy_protocol", Vec::new(), networks);
    let tls = section.maybe("tls", |value| Some(value.section(tls::server)));
    let roles = [("all", ListenerRole::All), ("api", ListenerRole::Api), ("dashboard", ListenerRole::Dashboard)];
    let role = section.optional("serves", ListenerRole::All, |value| value.choice(&roles));
    let tls = tls.map_or(Some(None), |tls| tls.map(Some));
    Some(Listener { address: address?, http2, proxy_protocol, tls: tls?, role })
}

fn own_address(value: &Value<'_>, seen: &mut Vec<SocketAddr>) -> Option<SocketAddr> {
    let address = address(value)?;
    if address.port() != 0 && seen.contains(&address) {
        return value.reject(format_args!("{address} is listed already; remove one"));
    }
    seen.push(address);
    Some(address)
}

pub(super) fn admin(section: &mut Section<'_>, listen: Option<&[Listener]>) -> Option<AdminSettings> {
    let socket = section.required("socket", socket);
    let address = section.optional("address", ADMIN_ADDRESS, address);
    let taken = |listener: &Listener| listener.address == address && address.port() != 0;
    if listen.is_some_and(|listen| listen.iter().any(taken)) {
        section.report("address", format_args!("{address} is in `listen` already; choose another"));
    }
    Some(AdminSettings { socket: socket?, address })
}

pub(super) fn socket(value: &Value<'_>) -> Option<PathBuf> {
    let path = value.path()?;
    let length = path.as_os_str().len();
    if length >= SOCKET_PATH {
        return value.reject(format_args!(
            "{} has {length} bytes, and a socket's path may have {}; choose a shorter one",
            path.display(),
            SOCKET_PATH - 1
        ));
    }
    Some(path)
}

pub(super) fn networks(value: &Value<'_>) -> Option<Vec<IpNet>> {
    value.list(|item| item.text().and_then(|text| network(item, &text)))
}

fn network(value: &Value<'_>, text: &str) -> Option<IpNet> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    match network {
        Ok(network) if network.addr() != network.network() => {
            value.reject(format_args!("`{text}` has bits set beyond its prefix; did you mean {}?", network.trunc()))
        }
        Ok(network) => Some(network),
        Err(_) => value.reject(format_args!("`{text}` is not a network such as 10.0.0.0/8, or an IP address")),
    }
}

fn address(value: &Value<'_>) -> Option<SocketAddr> {
    value.parsed("an IP address with a port, such as 127.0.0.1:8080 or [::1]:8080")
}
