//! The gateway's configuration: the file as written becomes one typed [`Config`], the sum of its modules' own settings.
//!
//! Each block of the file has a reader here; the types belong to the modules that use them. Everything wrong with a file
//! is reported at once. `config/keygate.yaml` shows every key with its default.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use crate::admission::RouteSettings;
use crate::management::SessionSettings;
use crate::quota::Quota;
use crate::settings::{Document, Section, SettingsErrors};
use crate::upstream::Protocol;
use crate::{audit, dashboard, state, telemetry, transport, upstream};

mod network;
mod forwarding;
mod limits;
mod redis;
mod journal;
mod routes;
mod session;
mod process;
mod tls;
mod source;
mod restart;

pub use network::{AdminSettings, Listener, ListenerRole};
pub use source::{ConfigSource, ContentHash};

/// Everything that can be configured, checked.
///
/// - Paths are usable from the working directory: relative ones have the file's directory in front.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub source: ConfigSource,
    /// The name of this gateway in audit records.
    pub gateway: String,
    /// Threads that serve, each with its own listeners and upstream connections.
    pub workers: usize,
    /// Where clients connect; at least one.
    pub listen: Vec<Listener>,
    /// Where operators connect.
    pub admin: AdminSettings,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Downstream connections that there may be.
    pub max_connections: usize,
    /// Downstream connections that there may be from one address that is no proxy's.
    pub max_connections_per_address: usize,
    /// The limits of downstream connections.
    pub transport: transport::Settings,
    /// The upstream.
    pub upstream: upstream::Settings,
    /// The state, with the limits of those that have none of their own.
    pub state: state::Settings,
    /// The embedded state beside a Redis one: what `keygate state copy` reads.
    pub copy_from: Option<state::embedded::Settings>,
    /// Attempts with bad keys that there may be from one address.
    pub bad_keys: Quota,
    /// The audit journal.
    pub audit: audit::Settings,
    /// The routes; when there are none, every path is forwarded.
    pub routes: Vec<RouteSettings>,
    /// The dashboard and its web sessions; none: there are none.
    pub session: Option<dashboard::Settings>,
    /// How long nothing may go through a tunnel.
    pub tunnel_idle: Duration,
    /// How long everything goes on after the signal to stop, while clients are told to go elsewhere.
    pub lame_duck: Duration,
    /// How long requests in flight may go on after that.
    pub drain: Duration,
    /// The logs.
    pub telemetry: telemetry::Settings,
}

impl Config {
    /// The file that is read when none is named.
    pub const DEFAULT_PATH: &str = "config/keygate.yaml";

    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all that is wrong with it.
    pub fn load(path: &Path) -> Result<Self, SettingsErrors> {
        Self::parse(path, &Document::read_text(path)?)
    }

    /// Networks whose connections speak for many clients.
    pub fn proxies(&self) -> Vec<IpNet> {
        let proxies = self.listen.iter().flat_map(|listener| &listener.proxy_protocol);
        self.trusted_proxies.iter().chain(proxies).copied().collect()
    }

    /// How web sessions are, where there are any.
    pub fn sessions(&self) -> Option<SessionSettings> {
        self.session.as_ref().map(dashboard::Settings::sessions)
    }

    /// Takes a text as the content of a file at a path.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsErrors> {
        Document::parse(path, text)?.read(|file| read(ConfigSource::new(path, text), file))
    }

    /// The admin socket that a configuration file names, whatever else is wrong with it: to find a gateway that runs on
    /// with an earlier content of the file.
    ///
    /// # Errors
    /// [`SettingsErrors`]: the file cannot be read, is not YAML, or names no socket.
    pub fn admin_socket(path: &Path) -> Result<PathBuf, SettingsErrors> {
        Document::load(path)?.read_part(|file| {
            file.required("admin", |admin| admin.part(|admin| admin.required("socket", network::socket)))
        })
    }
}

/// Reads all blocks first and puts them together afterwards, so that a problem in one hides none in another.
fn read(source: ConfigSource, file: &mut Section<'_>) -> Option<Config> {
    let gateway = file.maybe("gateway", process::gateway).unwrap_or_else(process::host_name);
    let workers = file.maybe("workers", |value| value.integer(1..=1024)).unwrap_or_else(process::cores);
    let listen = file.required("listen", network::listen);
    let admin = file.section("admin", |section| network::admin(section, listen.as_deref())).flatten();
    let trusted_proxies = file.optional("trusted_proxies", Vec::new(), network::networks);
    let upstream = file.section("upstream", forwarding::upstream).flatten();
    let timeouts = file.section("timeouts", forwarding::timeouts);
    let http = file.section("http", forwarding::http);
    let limits = file.section("limits", limits::limits);
    let state = file.section("state", |section| limits::state(section, limits)).flatten();
    let journal = file.section("audit", |section| journal::audit(section, &gateway)).flatten();
    let routes = file.optional("routes", Vec::new(), routes::routes);
    let session = file.maybe("session", |value| Some(value.section(|section| session::session(section, &routes))));
    let telemetry = file.section("telemetry", process::telemetry);
    refuse_upgrades(file, upstream.as_ref().map(|upstream| upstream.protocol), &routes);
    refuse_dashboard_only(file, session.is_some(), listen.as_deref());

    let (timeouts, (state, copy_from), (http, connections)) = (timeouts?, state?, http?);
    Some(Config {
        source,
        gateway,
        workers,
        listen: listen?,
        admin: admin?,
        trusted_proxies,
        max_connections: connections.0,
        max_connections_per_address: connections.1,
        transport: timeouts.transport(http),
        upstream: timeouts.upstream(upstream?),
        state,
        copy_from,
        bad_keys: limits?.bad_keys,
        audit: journal?,
        routes,
        session: session.map_or(Some(None), |session| session.map(Some))?,
        tunnel_idle: timeouts.tunnel_idle,
        lame_duck: timeouts.lame_duck,
        drain: timeouts.drain,
        telemetry: telemetry?,
    })
}

/// Over HTTP/2 no connection can be switched to another protocol (RFC 9113, section 8.6).
fn refuse_upgrades(file: &Section<'_>, protocol: Option<Protocol>, routes: &[RouteSettings]) {
    if protocol == Some(Protocol::Http2) && routes.iter().any(|route| !route.upgrade.is_empty()) {
        file.report("routes", "`upgrade` needs HTTP/1 to the upstream; remove it, or `upstream.protocol: http2`");
    }
}

/// A listener for the dashboard alone has nothing to serve without one; and without any for the API there is no gateway.
fn refuse_dashboard_only(file: &Section<'_>, has_dashboard: bool, listen: Option<&[Listener]>) {
    let Some(listen) = listen else { return };
    if !has_dashboard && listen.iter().any(|listener| listener.role == ListenerRole::Dashboard) {
        file.report("listen", "serves the dashboard, which needs a block `session`; add it, or remove `serves`");
    }
    if listen.iter().all(|listener| listener.role == ListenerRole::Dashboard) {
        file.report("listen", "serves nothing but the dashboard; add a listener for the API");
    }
}
