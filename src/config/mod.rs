//! Configuration of the gateway: parses the configuration file into one typed [`Config`].
//!
//! Each block of the file has a reader here; the settings types belong to the modules that use them. All errors of a
//! file are reported at once. `config/keygate.yaml` documents every key with its default; `CONTRIBUTING.md` has the
//! steps to add a setting.

use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;

use crate::admission::{CorsSettings, RouteSettings};
use crate::gateway::PublicSettings;
use control::dashboard;
use control::federation as token_exchange;
use control::management::SessionSettings;
use domain::problem::ProblemTypes;
use domain::quota::Quota;
use edge::transport;
use platform::settings::{Document, Reported, SecretSource, Section, SettingsErrors};
use platform::tls::ClientSettings;

mod listeners;
mod networks;
mod decisions;
mod credentials;
mod timeouts;
mod http;
mod upstreams;
mod upstream;
mod connections;
mod balance;
mod outlier;
mod retries;
mod health;
mod limits;
mod plans;
mod state;
mod audit;
mod shipping;
mod routes;
mod route_warnings;
mod cors;
mod session;
mod federation;
mod leaks;
mod problems;
mod process;
mod traces;
mod telemetry;
mod tls;
mod source;
mod restart_only;
mod across_blocks;

pub(crate) use listeners::is_too_wide;
pub use listeners::{AdminSettings, Listener, ListenerRole, admin_address, admin_socket};
pub use session::DASHBOARD_PATH;
pub use source::{ConfigSource, ContentHash};
pub use upstream::Upstream;

use across_blocks::check_across_blocks;
use routes::Surroundings;
use telemetry::Telemetry;

/// A valid configuration.
///
/// - Paths can be opened from the working directory: relative ones are prefixed by the file's directory.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that the configuration was read from.
    pub source: ConfigSource,
    /// Name of this gateway in audit records.
    pub gateway: String,
    /// Number of worker threads, each with its own listeners and upstream connections.
    pub workers: usize,
    /// Listeners for clients; at least one.
    pub listen: Vec<Listener>,
    /// Listeners for operators.
    pub admin: AdminSettings,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Maximum number of downstream connections.
    pub max_connections: usize,
    /// Maximum number of downstream connections from one address, other than a proxy's.
    pub max_connections_per_address: usize,
    /// Limits and time-outs of downstream connections.
    pub transport: transport::Settings,
    /// The upstreams, at least one. A route names its upstream by the place in this list.
    pub upstreams: Vec<Upstream>,
    /// The state, with the default limits of keys and organizations.
    pub state: ::state::Settings,
    /// Limit of requests with unknown keys from one address.
    pub bad_keys: Quota,
    /// Limit of sign-ins from one address.
    pub sign_ins: Quota,
    /// Limits of requests to public routes, and of preflights.
    pub public: PublicSettings,
    /// Limit of the calls of one management token.
    pub management: Quota,
    /// Bounds of the keys and sessions that people create.
    pub bounds: ::state::Bounds,
    /// The audit journal.
    pub audit: journal::audit::Settings,
    /// The sinks to which the journal is shipped.
    pub shipping: journal::shipping::Settings,
    /// The routes; with none, every path is forwarded.
    pub routes: Vec<RouteSettings>,
    /// Origins whose pages may read answers to requests that match no route; those of a route are in it.
    pub cors: Option<CorsSettings>,
    /// The dashboard and its web sessions; none without a `session` block.
    pub session: Option<dashboard::Settings>,
    /// The exchange of tokens of CIs for keys; none without a `federation` block.
    pub federation: Option<token_exchange::Settings>,
    /// Reports of leaked keys; none without a `leaks` block.
    pub leaks: Option<control::leaks::Settings>,
    /// Types of the problems that requests and calls are answered with.
    pub problem_types: ProblemTypes,
    /// Time without traffic after which a tunnel is closed.
    pub tunnel_idle: Duration,
    /// Time between the signal to stop and the drain, in which clients are asked to reconnect elsewhere.
    pub lame_duck: Duration,
    /// Maximum time of the drain.
    pub drain: Duration,
    /// The log.
    pub telemetry: platform::telemetry::Settings,
    /// Sources of all secrets, for diagnosis.
    pub secrets: Vec<SecretSource>,
    /// Traces of requests; none without a block `telemetry.traces`.
    pub traces: Option<platform::telemetry::trace::Settings>,
    /// The access log; none unless one is configured.
    pub access_log: Option<platform::telemetry::access_log::Settings>,
    /// True with metrics by the semantic conventions of OpenTelemetry.
    pub otel_metrics: bool,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all errors of the file.
    pub fn load(path: &Path) -> Result<Self, SettingsErrors> {
        Self::parse(path, &Document::read_text(path)?)
    }

    /// Networks from which one connection carries requests of many clients: trusted proxies, PROXY protocol peers, and
    /// proxies that ask for decisions.
    pub fn proxies(&self) -> Vec<IpNet> {
        let proxies = self.listen.iter().flat_map(|listener| &listener.proxy_protocol);
        let peers = self.listen.iter().filter_map(|listener| listener.decisions.as_ref());
        let peers = peers.flat_map(|decisions| &decisions.peers);
        self.trusted_proxies.iter().chain(proxies).chain(peers).copied().collect()
    }

    /// Warnings about a valid configuration, each a sentence for the log.
    pub fn warnings(&self) -> Vec<String> {
        let no_routes = "no `routes` are configured: every valid key may send any method to any path of the upstream; \
                         list the routes and their permissions";
        let plain = self.shipping.sinks.iter().filter_map(|sink| Some((&sink.name, sink.destination.plain_place()?)));
        let mut warnings: Vec<String> = plain
            .map(|(name, (place, advice))| {
                format!("the sink `{name}` sends audit records to {place} unencrypted; {advice}")
            })
            .collect();
        if self.routes.is_empty() {
            warnings.push(no_routes.to_owned());
        }
        let proxied = self.listen.iter().flat_map(|listener| &listener.proxy_protocol);
        let trusted = self.trusted_proxies.iter().map(|network| ("trusted_proxies", network));
        let trusted = trusted.chain(proxied.map(|network| ("listen.proxy_protocol", network)));
        warnings.extend(trusted.filter(|(_, network)| listeners::is_too_wide(network)).map(|(setting, network)| {
            format!(
                "{setting} has {network}: any client in it can claim any address, so limits by address and the \
                 addresses of the audit mean nothing; list the addresses of your proxies"
            )
        }));
        warnings.extend(self.upstreams.iter().filter_map(|upstream| self.warn_of_scarce_connections(upstream)));
        warnings.extend(self.unused_upstreams().map(|name| {
            format!("the upstream `{name}` is used by no route; name it as `upstream` of a route, or remove it")
        }));
        warnings.extend(route_warnings::of_routes(&self.routes));
        let metered = self.routes.iter().find(|route| route.cost_from.is_some());
        let mut listeners = self.listen.iter();
        let unseeing = listeners.find(|listener| listener.decisions.is_some() && !listener.holds_streams());
        if let Some((route, listener)) = metered.zip(unseeing) {
            warnings.push(format!(
                "`{}` has a `cost` with `at_most`: the listener {} sees no responses, so that the cost is `at_most` \
                 there; with Envoy, ask by ext_proc (`slots: stream`)",
                route.name, listener.address
            ));
        }
        warnings
    }

    /// Warning of an upstream that has fewer connections than there are workers.
    fn warn_of_scarce_connections(&self, upstream: &Upstream) -> Option<String> {
        let bounds = &upstream.settings.connections;
        let bounds = [("max", bounds.max), ("max_total", bounds.max_total)];
        let (key, bound) = bounds.into_iter().find(|(_, bound)| bound.is_some_and(|bound| bound < self.workers))?;
        Some(format!(
            "`connections.{key}` of the upstream `{}` is {}, with {} workers: some of them may wait in vain while \
             others are busy; raise it, or lower `workers`",
            upstream.settings.name,
            bound.unwrap_or_default(),
            self.workers
        ))
    }

    /// The most tokens that a request takes.
    pub fn largest_cost(&self) -> u32 {
        self.routes.iter().map(|route| route.cost.tokens()).fold(1, u32::max)
    }

    /// The names of upstreams that no route uses; none without routes.
    pub fn unused_upstreams(&self) -> impl Iterator<Item = &str> {
        let is_unused = |place: usize| self.routes.iter().all(|route| route.serve.is_some() || route.upstream != place);
        let unused = self.upstreams.iter().enumerate().filter(move |(place, _)| is_unused(*place));
        unused.filter(|_| !self.routes.is_empty()).map(|(_, upstream)| &*upstream.settings.name)
    }

    /// Settings of web sessions; none without a `session` block.
    pub fn sessions(&self) -> Option<SessionSettings> {
        self.session.as_ref().map(dashboard::Settings::sessions)
    }

    /// Parses a text as the content of the file at `path`.
    ///
    /// # Errors
    /// [`SettingsErrors`]: all errors of the text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, SettingsErrors> {
        Document::parse(path, text)?.read(|file| read(ConfigSource::new(path, text), file))
    }

    /// TLS of connections to upstreams, Redis, identity providers, issuers, GitHub, collectors, sinks and witnesses.
    pub fn outbound_tls(&self) -> Vec<&ClientSettings> {
        let upstreams = self.upstreams.iter().map(|upstream| &upstream.settings.tls);
        let redis = match &self.state {
            ::state::Settings::Redis(redis) => redis.tls.as_ref(),
            ::state::Settings::Embedded(_) => None,
        };
        let providers = self.session.iter().flat_map(|session| &session.providers).map(|provider| &provider.oidc.tls);
        let traces = self.traces.iter().map(|traces| &traces.tls);
        let sinks = self.shipping.sinks.iter().filter_map(|sink| sink.destination.tls());
        let witnesses = self.audit.checkpoints.iter().flat_map(|checkpoints| &checkpoints.witnesses);
        let witnesses = witnesses.map(|witness| &witness.tls);
        let issuers = self.federation.iter().map(|federation| &federation.tls);
        let github = self.leaks.iter().map(|leaks| &leaks.tls);
        let of_signers = providers.chain(issuers).chain(github);
        upstreams.chain(redis).chain(of_signers).chain(traces).chain(sinks).chain(witnesses).collect()
    }
}

/// The block, where it is there and was read.
fn configured<T>(block: &Result<Option<T>, Reported>) -> Option<&T> {
    block.as_ref().ok().and_then(Option::as_ref)
}

/// Reads all blocks, and only then looks at their results, so that an error in one block hides none in another.
fn read(source: ConfigSource, file: &mut Section<'_>) -> Result<Config, Reported> {
    let gateway = file.value_or_else("gateway", process::host_name, process::gateway);
    let workers = file.value_or_else("workers", process::cores, |value| value.integer(1..=1024));
    let listen = file.required("listen", listeners::listen);
    let admin = file.section("admin", |section| listeners::admin(section, listen.as_deref().ok()));
    let trusted_proxies = file.value_or("trusted_proxies", Vec::new(), networks::networks);
    let timeouts = file.section("timeouts", |section| Ok(timeouts::timeouts(section)));
    let exchange = timeouts.as_ref().map_or_else(|_| Default::default(), |timeouts| timeouts.upstream);
    let around = upstream::Around { timeouts: exchange, listen: listen.as_deref().unwrap_or_default() };
    let upstreams = upstreams::upstreams(file, around, listeners::need_upstream(&listen));
    let http = file.section("http", |section| Ok(http::http(section)));
    let plans = plans::of_file(file);
    let limits = file.section("limits", |section| Ok(limits::limits(section, plans)));
    let state = file.section("state", |section| state::state(section, limits.clone()));
    let audit = file.section("audit", |section| audit::audit(section, &gateway));
    let credentials = file.section("credentials", credentials::credentials);
    // A block with errors counts as one with fields: its own errors were reported.
    let has_key_fields = credentials.as_ref().map_or(true, |fields| !fields.is_empty());
    let cors = file.optional("cors", |block| block.section(cors::cors));
    let around = Surroundings { upstreams: &upstreams.names, has_key_fields, cors: configured(&cors) };
    let routes = routes::of_file(file, &around);
    let session = file.optional("session", |block| block.section(|section| session::session(section, &routes)));
    let federation = federation::of_file(file, &routes, &session);
    let leaks = leaks::of_file(file, &routes, &session, &federation);
    let problem_types = file.section("problems", |section| Ok(problems::problems(section)));
    let telemetry = file.section("telemetry", |section| telemetry::telemetry(section, &gateway));
    let quotas = limits.as_ref().map(limits::Limits::quotas).unwrap_or_default();
    check_across_blocks(file, upstreams.read.as_deref(), &routes, session != Ok(None), listen.as_deref().ok(), &quotas);
    let (audit, shipping) = audit?;
    let limits = limits?;
    let timeouts = timeouts?;
    let http = http?;
    let Telemetry { log, access_log, otel_metrics, traces } = telemetry?;
    Ok(Config {
        source,
        gateway,
        workers,
        listen: listen?,
        admin: admin?,
        trusted_proxies,
        max_connections: http.max_connections,
        max_connections_per_address: http.max_connections_per_address,
        transport: transport::Settings { credentials: credentials?, ..timeouts.with_sizes(http.transport) },
        upstreams: upstreams.read?,
        state: state?,
        bad_keys: limits.bad_keys,
        sign_ins: limits.sign_ins,
        public: limits.public,
        management: limits.management,
        bounds: limits.bounds,
        audit,
        shipping,
        cors: cors?,
        routes,
        session: session?,
        federation: federation?,
        leaks: leaks?,
        problem_types: problem_types?,
        tunnel_idle: timeouts.tunnel_idle,
        lame_duck: timeouts.lame_duck,
        drain: timeouts.drain,
        secrets: file.secret_sources(),
        telemetry: log,
        traces,
        access_log,
        otel_metrics,
    })
}
