//! The blocks `listen`, `admin` and `trusted_proxies`: listeners, and trusted networks.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::networks::networks;
use super::{decisions, tls};
use crate::gateway::{DecisionProtocol, DecisionSettings, DecisionSlots};
use edge::transport::Http2Negotiation;
use platform::settings::{Document, Reported, Section, SettingsErrors, Value};
use platform::tls::ServerSettings;

/// Default address of the admin listener: reachable from this machine only.
const ADMIN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9464);
/// Bytes of a Unix socket's path on Linux (`sun_path`), its terminating zero included.
const SOCKET_PATH: usize = 108;

/// A listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Negotiation of HTTP/2.
    pub http2: Http2Negotiation,
    /// Networks whose connections begin with a PROXY header.
    pub proxy_protocol: Vec<IpNet>,
    /// TLS settings; none for plain HTTP.
    pub tls: Option<ServerSettings>,
    /// Part of the gateway that the listener serves.
    pub role: ListenerRole,
    /// Decisions that it serves; none of another role.
    pub decisions: Option<DecisionSettings>,
}

impl Listener {
    /// Returns whether streams of other proxies are open on it as long as their exchanges.
    pub fn holds_streams(&self) -> bool {
        self.decisions.as_ref().is_some_and(|decisions| decisions.slots == DecisionSlots::Stream)
    }
}

/// Role of a listener: what it serves (`serves` in the file).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerRole {
    /// The dashboard under its path, and the API under all other paths.
    All,
    /// The API; the dashboard's path is not found.
    Api,
    /// The dashboard only.
    Dashboard,
    /// The management API only.
    Management,
    /// Decisions for other proxies only.
    Decisions,
}

impl ListenerRole {
    /// Returns whether the listener takes requests for the upstream.
    pub(super) fn forwards(self) -> bool {
        matches!(self, Self::All | Self::Api)
    }
}

/// Listeners for operators and their tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Unix socket for management. Its file permissions are the only access control: who can open it can do everything.
    pub socket: PathBuf,
    /// Address of `/metrics`, `/live` and `/ready`.
    pub address: SocketAddr,
}

/// Reads only the path of the admin socket from a configuration file. Works on a file with errors elsewhere, to
/// find a gateway that still runs by an earlier content of it.
///
/// # Errors
/// [`SettingsErrors`]: the file cannot be read, is not YAML, or names no socket.
pub fn admin_socket(path: &Path) -> Result<PathBuf, SettingsErrors> {
    Document::load(path)?
        .read_part(|file| file.required("admin", |admin| admin.part(|admin| admin.required("socket", socket))))
}

/// Reads only the address of the admin listener from a configuration file, which may have errors elsewhere.
///
/// # Errors
/// [`SettingsErrors`]: the file cannot be read, is not YAML, or has an invalid address.
pub fn admin_address(path: &Path) -> Result<SocketAddr, SettingsErrors> {
    Document::load(path)?.read_part(|file| {
        let address = file.optional("admin", |admin| admin.part(|admin| Ok(admin_address_of(admin))))?;
        Ok(address.unwrap_or(ADMIN_ADDRESS))
    })
}

/// Returns whether a network of trusted proxies is so wide that it has clients in it: wider than 10.0.0.0/8, the
/// largest private network, or than fc00::/7, all that are private of IPv6.
pub(crate) fn is_too_wide(network: &IpNet) -> bool {
    match network {
        IpNet::V4(network) => network.prefix_len() < 8,
        IpNet::V6(network) => network.prefix_len() < 7,
    }
}

/// Reads the block `listen`.
pub(super) fn listen(value: &Value<'_>) -> Result<Vec<Listener>, Reported> {
    let mut seen = Vec::new();
    let listeners = value.list(|item| item.section(|section| listener(section, &mut seen)))?;
    if listeners.is_empty() {
        return value.reject("is empty; give at least one address");
    }
    Ok(listeners)
}

fn listener(section: &mut Section<'_>, seen: &mut Vec<SocketAddr>) -> Result<Listener, Reported> {
    let address = section.required("address", |value| own_address(value, seen));
    let http2 = [("alpn", Http2Negotiation::Alpn), ("prior_knowledge", Http2Negotiation::PriorKnowledge)];
    let http2 = section.value_or("http2", Http2Negotiation::Alpn, |value| value.choice(&http2));
    let proxy_protocol = section.value_or("proxy_protocol", Vec::new(), networks);
    let tls = section.optional("tls", |value| value.section(tls::server));
    let roles = [
        ("all", ListenerRole::All),
        ("api", ListenerRole::Api),
        ("dashboard", ListenerRole::Dashboard),
        ("management", ListenerRole::Management),
        ("decisions", ListenerRole::Decisions),
    ];
    let role = section.value_or("serves", ListenerRole::All, |value| value.choice(&roles));
    let decisions = section.optional("decisions", |value| value.section(decisions::decisions));
    let address = address?;
    let tls = tls?;
    let decisions = decisions?;
    check_decisions(section, role, decisions.is_some(), &proxy_protocol);
    // gRPC is HTTP/2, which Envoy speaks at once where there is no TLS.
    let is_grpc = decisions.as_ref().is_some_and(|decisions| decisions.protocol == DecisionProtocol::Envoy);
    let http2 = if is_grpc { Http2Negotiation::PriorKnowledge } else { http2 };
    if role == ListenerRole::Management && tls.is_none() && !address.ip().is_loopback() {
        section.report("serves", "management needs `tls` unless the address is of loopback: tokens would be readable");
    }
    Ok(Listener { address, http2, proxy_protocol, tls, role, decisions })
}

/// The number of the listener for the API that a connection to this host and port reaches, if one does.
pub(super) fn find_reached(listen: &[Listener], host: &str, port: u16) -> Option<usize> {
    let ip: IpAddr = if host == "localhost" { Some(ADMIN_ADDRESS.ip()) } else { host.parse().ok() }?;
    let ip = ip.to_canonical();
    listen.iter().position(|listener| {
        let own = listener.address;
        // A listener on all addresses of IPv6 has those of IPv4 as well, and not the other way round.
        let is_of_family = own.is_ipv6() || ip.is_ipv4();
        let is_this_machine = ip.is_loopback() || ip.is_unspecified();
        let is_own = own.ip() == ip || own.ip().is_unspecified() && is_of_family && is_this_machine;
        listener.role.forwards() && own.port() != 0 && own.port() == port && is_own
    })
}

/// Returns whether some listener forwards, so that an upstream is needed; also where the listeners have errors.
pub(super) fn need_upstream(listen: &Result<Vec<Listener>, Reported>) -> bool {
    listen.as_ref().map_or(true, |listen| listen.iter().any(|listener| listener.role.forwards()))
}

/// Reports a role that does not fit the blocks of the listener.
fn check_decisions(section: &Section<'_>, role: ListenerRole, has_block: bool, proxy_protocol: &[IpNet]) {
    let is_of_decisions = role == ListenerRole::Decisions;
    if is_of_decisions && !has_block {
        section.report("serves", "decisions needs a block `decisions` beside it, with `protocol` and `slots`");
    }
    if !is_of_decisions && has_block {
        section.report("decisions", "needs `serves: decisions` beside it");
    }
    if is_of_decisions && !proxy_protocol.is_empty() {
        section.report("proxy_protocol", "is not for decisions: their `peers` are the proxies that connect");
    }
}

/// Reads the address of a listener, which no other listener may have.
fn own_address(value: &Value<'_>, seen: &mut Vec<SocketAddr>) -> Result<SocketAddr, Reported> {
    let address = address(value, 8080)?;
    if address.port() != 0 && seen.contains(&address) {
        return value.reject(format_args!("{address} is listed already; remove one"));
    }
    seen.push(address);
    Ok(address)
}

/// Reads the block `admin`, and checks its address against those of `listen`.
pub(super) fn admin(section: &mut Section<'_>, listen: Option<&[Listener]>) -> Result<AdminSettings, Reported> {
    let socket = section.required("socket", socket);
    let address = admin_address_of(section);
    let taken = |listener: &Listener| listener.address == address && address.port() != 0;
    if listen.is_some_and(|listen| listen.iter().any(taken)) {
        section.report("address", format_args!("{address} is in `listen` already; choose another"));
    }
    Ok(AdminSettings { socket: socket?, address })
}

fn admin_address_of(section: &mut Section<'_>) -> SocketAddr {
    section.value_or("address", ADMIN_ADDRESS, |value| address(value, ADMIN_ADDRESS.port()))
}

/// Reads the path of a Unix socket.
pub(super) fn socket(value: &Value<'_>) -> Result<PathBuf, Reported> {
    let path = value.path_of_file()?;
    let length = path.as_os_str().len();
    if length >= SOCKET_PATH {
        return value.reject(format_args!(
            "{} has {length} bytes, and a socket's path may have {}; choose a shorter one",
            path.display(),
            SOCKET_PATH - 1
        ));
    }
    Ok(path)
}

/// Reads an address with its port; `port` is the one that advice names.
fn address(value: &Value<'_>, port: u16) -> Result<SocketAddr, Reported> {
    if let Ok(ip) = value.text()?.parse() {
        return value.reject(format_args!("`{ip}` has no port; write {}", SocketAddr::new(ip, port)));
    }
    value.parsed("an IP address with a port, such as 127.0.0.1:8080 or [::1]:8080")
}
