//! Active configuration of a worker: the services that serve the current configuration snapshot.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;
use uuid::ContextV7;

use super::config_snapshot::ConfigSnapshot;
use super::dispatch::ListenerRouter;
use super::shared_handles::SharedHandles;
use crate::admission::{Admission, RouteSettings, Routes};
use crate::config::{self, Listener, ListenerRole};
use crate::gateway::{DecisionSettings, Decisions, EarlyRejection, Gateway, OpenExchanges, PolicyCache, Upstream};
use control::dashboard::{self, Dashboard, RequestExample, RequestExamples};
use control::federation::TokenEndpoint;
use control::leaks::{LeakEndpoint, SELF_REVOKE_PATH};
use control::management_api::ManagementApi;
use domain::head_fields::CredentialFields;
use domain::head_memory::HeadMemory;
use domain::problem::ProblemTypes;
use edge::forward::{ResponseOrigin, TrustedProxies};
use edge::transport::{ServeOptions, Settings};
use journal::shipping::{Destination, ShippedRecords, SinkSettings};
use platform::request_body::BodyLimits;
use platform::telemetry::Observer;
use upstream::{Endpoints, Pool};

/// Active configuration of a worker. Clones share it.
///
/// - A request or connection keeps the services that it was given, also after another snapshot was applied.
#[derive(Clone)]
pub(super) struct ActiveConfig(Rc<Inner>);

struct Inner {
    handles: SharedHandles,
    /// Open exchanges of the worker, of all its configurations.
    open: OpenExchanges,
    services: RefCell<WorkerServices>,
}

/// Services of one worker, built from one configuration snapshot.
struct WorkerServices {
    gateway: Rc<Gateway>,
    dashboard: Option<Rc<Dashboard>>,
    management_api: Option<Rc<ManagementApi>>,
    tokens: Option<Rc<TokenEndpoint>>,
    leaks: Option<Rc<LeakEndpoint>>,
    /// Transport settings of each listener, in the order of the configuration.
    serving: Vec<Rc<ServeOptions>>,
    /// Role of each listener, in the same order.
    roles: Vec<ListenerRole>,
    /// Origins on which browsers see responses of the upstream, in the same order.
    origins: Vec<ResponseOrigin>,
    /// Decisions of each listener that serves them, in the same order.
    decisions: Vec<Option<Rc<Decisions>>>,
}

impl ActiveConfig {
    /// The active configuration of a worker that starts.
    pub(super) fn new(handles: SharedHandles, snapshot: &ConfigSnapshot) -> Self {
        let open = OpenExchanges::new(Arc::clone(handles.state.revocations()), handles.metrics.terminated.clone());
        let services = RefCell::new(handles.build_services(snapshot, open_pools(&[], snapshot), &open));
        Self(Rc::new(Inner { handles, open, services }))
    }

    /// The open exchanges of the worker.
    pub(super) fn open_exchanges(&self) -> OpenExchanges {
        self.0.open.clone()
    }

    /// Types of the problems that requests are answered with.
    pub(super) fn problem_types(&self) -> ProblemTypes {
        self.0.handles.problem_types.clone()
    }

    /// The router for the next request on a listener.
    pub(super) fn router(&self, listener: usize) -> ListenerRouter {
        let services = self.0.services.borrow();
        ListenerRouter {
            gateway: Rc::clone(&services.gateway),
            dashboard: services.dashboard.clone(),
            management_api: services.management_api.clone(),
            tokens: services.tokens.clone(),
            leaks: services.leaks.clone(),
            role: services.roles[listener],
            origin: services.origins[listener],
            decisions: services.decisions[listener].clone(),
        }
    }

    /// The transport settings for the next connection on a listener.
    pub(super) fn serving(&self, listener: usize) -> Rc<ServeOptions> {
        Rc::clone(&self.0.services.borrow().serving[listener])
    }

    /// Serves another snapshot from the next request on. Upstream connections to endpoints in both are kept.
    pub(super) fn apply(&self, snapshot: &ConfigSnapshot) {
        let gateway = Rc::clone(&self.0.services.borrow().gateway);
        let upstreams = open_pools(&gateway.upstreams, snapshot);
        let services = self.0.handles.build_services(snapshot, upstreams, &self.0.open);
        let replaced = self.0.services.replace(services);
        // Dropping the old services may close upstream connections, which must not happen while the cell is borrowed.
        drop(replaced);
    }
}

impl SharedHandles {
    fn build_services(
        &self,
        snapshot: &ConfigSnapshot,
        upstreams: Box<[Upstream]>,
        open: &OpenExchanges,
    ) -> WorkerServices {
        let gateway = Rc::new(self.build_gateway(snapshot, upstreams, open));
        let listeners = snapshot.config.listen.iter().enumerate();
        let serving = listeners.map(|(index, listener)| Rc::new(self.build_serving(index, listener, &gateway)));
        let roles: Vec<ListenerRole> = snapshot.config.listen.iter().map(|listener| listener.role).collect();
        let session = snapshot.config.session.as_ref();
        let trusted = &gateway.trusted_proxies;
        let decisions = snapshot.config.listen.iter().map(|listener| &listener.decisions);
        let build = |settings: &DecisionSettings| Decisions::new(settings.clone(), trusted, self.process_end.clone());
        let decisions = decisions.map(|settings| settings.as_ref().map(build).map(Rc::new)).collect();
        WorkerServices {
            decisions,
            serving: serving.collect(),
            origins: roles.iter().map(|role| response_origin(*role, session)).collect(),
            roles,
            dashboard: self.build_dashboard(snapshot).map(Rc::new),
            management_api: self.build_management_api(snapshot).map(Rc::new),
            tokens: self.build_token_endpoint(snapshot).map(Rc::new),
            leaks: self.build_leak_endpoint(snapshot).map(Rc::new),
            gateway,
        }
    }

    fn build_dashboard(&self, snapshot: &ConfigSnapshot) -> Option<Dashboard> {
        let shared = self.dashboard.clone()?;
        let trusted = TrustedProxies(snapshot.config.trusted_proxies.clone());
        let credentials = &snapshot.config.transport.credentials;
        let origin = shared.settings.api_origin.as_ref().unwrap_or(&shared.settings.origin).clone();
        let here = |route: &&RouteSettings| route.host.as_ref().is_none_or(|host| host.matches(host_of(&origin)));
        let paths =
            snapshot.config.routes.iter().filter(here).filter_map(|route| example(route, credentials)).collect();
        let self_revoke = self.leaks.as_ref().map(|_| SELF_REVOKE_PATH);
        // A table of PostgreSQL sends no message to a person.
        let is_told = |sink: &SinkSettings| {
            sink.records != ShippedRecords::Refusals && !matches!(sink.destination, Destination::Postgresql(_))
        };
        let has_events = snapshot.config.shipping.sinks.iter().any(is_told);
        let examples = RequestExamples { origin, paths, self_revoke, has_events };
        Some(Dashboard::new(shared, trusted, snapshot.sign_ins.clone(), examples, self.metrics.clone()))
    }

    fn build_management_api(&self, snapshot: &ConfigSnapshot) -> Option<ManagementApi> {
        let shared = self.management_api.clone()?;
        let trusted = TrustedProxies(snapshot.config.trusted_proxies.clone());
        Some(ManagementApi::new(
            shared,
            snapshot.calls.clone(),
            trusted,
            snapshot.sign_ins.clone(),
            self.metrics.clone(),
        ))
    }

    fn build_token_endpoint(&self, snapshot: &ConfigSnapshot) -> Option<TokenEndpoint> {
        let shared = self.federation.clone()?;
        let trusted = TrustedProxies(snapshot.config.trusted_proxies.clone());
        Some(TokenEndpoint::new(shared, trusted, snapshot.sign_ins.clone(), self.metrics.clone()))
    }

    fn build_leak_endpoint(&self, snapshot: &ConfigSnapshot) -> Option<LeakEndpoint> {
        let shared = self.leaks.clone()?;
        let trusted = TrustedProxies(snapshot.config.trusted_proxies.clone());
        Some(LeakEndpoint::new(shared, trusted, snapshot.sign_ins.clone(), self.metrics.clone()))
    }

    fn build_gateway(&self, snapshot: &ConfigSnapshot, upstreams: Box<[Upstream]>, open: &OpenExchanges) -> Gateway {
        let config::Config { routes, cors, transport, .. } = &*snapshot.config;
        let routes = Routes::new(routes, &self.metrics).with_cors(routes, cors.as_ref(), &transport.credentials);
        let limits = self.body_limits(transport);
        let admission = Admission::new(Arc::clone(&self.state), routes, self.metrics.clone())
            .with_fields(snapshot.config.transport.credentials.clone());
        let admission = match &self.dashboard {
            Some(dashboard) => admission.with_sessions(&dashboard.settings.origin),
            None => admission,
        };
        let observe = |tracer| Observer::new(snapshot.access_log.clone(), self.metrics.conventions.clone(), tracer);
        Gateway {
            admission,
            upstreams,
            bad_keys: snapshot.bad_keys.clone(),
            public: snapshot.public.clone(),
            journal: self.journal.clone(),
            trusted_proxies: TrustedProxies(snapshot.config.trusted_proxies.clone()),
            settings: snapshot.config.transport.clone(),
            long_lived_limits: Rc::new(BodyLimits {
                idle_timeout: snapshot.config.tunnel_idle,
                min_rate: 0,
                ..limits.clone()
            }),
            body_limits: Rc::new(limits),
            metrics: self.metrics.clone(),
            // Connections hold it, also after a reload: with a tracer they would keep the exporter of before from
            // ending.
            early_rejection: EarlyRejection::new(&self.metrics, observe(None), self.problem_types.clone()),
            tunnel_idle: snapshot.config.tunnel_idle,
            open: open.clone(),
            ids: ContextV7::new(),
            memory: HeadMemory::default(),
            policies: PolicyCache::default(),
            observer: observe(snapshot.tracer.clone()),
            usage_reads: self.usage_reads.clone(),
            dashboard_path: self.dashboard.is_none().then_some(config::DASHBOARD_PATH),
        }
    }

    fn body_limits(&self, settings: &Settings) -> BodyLimits {
        BodyLimits {
            max_bytes: settings.max_body,
            idle_timeout: settings.body_idle_timeout,
            min_rate: settings.min_body_rate,
            timeouts: self.metrics.timeouts.clone(),
        }
    }

    /// Transport settings of the listener at `index` of the configuration.
    fn build_serving(&self, index: usize, listener: &Listener, gateway: &Gateway) -> ServeOptions {
        let decisions = listener.decisions.as_ref();
        let protocol = decisions.map(|decisions| decisions.protocol);
        let early_rejection = gateway.early_rejection.clone().on_listener(protocol);
        // A network that has clients in it is none of proxies alone: its connections keep the bounds of one client.
        let networks_of_proxies = gateway.trusted_proxies.0.iter().filter(|network| !config::is_too_wide(network));
        ServeOptions {
            settings: Rc::new(gateway.settings.clone()),
            head_error_response: Rc::new(move |why, peer| early_rejection.answer(why, peer)),
            tls: self.certificates.store(index).cloned(),
            http2: listener.http2,
            proxy_networks: listener.proxy_protocol.as_slice().into(),
            peers: decisions.map(|decisions| decisions.peers.as_slice().into()),
            trusted_proxies: networks_of_proxies.copied().collect(),
            connection_limiter: self.connection_limiter.clone(),
            connections: self.metrics.connections.clone(),
            timeouts: self.metrics.timeouts.clone(),
        }
    }
}

/// Pools of a snapshot's upstreams. They share the connections of `existing` ones to endpoints that are in both; the
/// others are closed.
fn open_pools(existing: &[Upstream], snapshot: &ConfigSnapshot) -> Box<[Upstream]> {
    let removed = existing.iter().map(|old| &old.pool);
    let removed = removed.filter(|pool| !snapshot.upstreams.iter().any(|stays| stays.name() == pool.upstream()));
    removed.for_each(Pool::close);
    let upstreams = snapshot.config.upstreams.iter().zip(&*snapshot.upstreams);
    let open = |(upstream, endpoints): (&config::Upstream, &Endpoints)| {
        let old = existing.iter().find(|old| old.pool.upstream() == endpoints.name());
        let pool = match old {
            Some(old) => old.pool.changed(endpoints.clone(), &upstream.settings),
            None => Pool::new(endpoints.clone(), &upstream.settings, snapshot.config.workers),
        };
        Upstream { pool, passed_fields: upstream.passed_fields.clone(), host: upstream.host.clone() }
    };
    upstreams.map(open).collect()
}

/// Origin on which browsers see what the upstream sends through a listener. A listener of the API alone shares the
/// dashboard's origin when a proxy in front joins both, which is so unless the API's own origin is configured.
fn response_origin(role: ListenerRole, session: Option<&dashboard::Settings>) -> ResponseOrigin {
    match session {
        None => ResponseOrigin::Api,
        Some(session) if role == ListenerRole::Api && session.has_api_origin() => ResponseOrigin::Api,
        Some(_) => ResponseOrigin::Dashboard,
    }
}

/// Host and port of an origin.
fn host_of(origin: &str) -> &str {
    origin.split_once("://").map_or(origin, |(_, host)| host)
}

/// The path of a route as an example for the dashboard's `curl` lines; none when a plain `GET` of it cannot succeed, or
/// needs no key.
fn example(route: &RouteSettings, credentials: &CredentialFields) -> Option<RequestExample> {
    let may_get = route.methods.is_empty() || route.methods.contains(&Method::GET);
    let path = route.path.strip_suffix("**").unwrap_or(&route.path);
    let has_parameter = path.contains('{');
    let key_field = credentials.iter().next().filter(|_| route.pass_authorization).map(|field| field.text().to_owned());
    (may_get && !has_parameter && !route.is_public).then(|| RequestExample {
        path: path.to_owned(),
        permission: route.permission.clone(),
        key_field,
    })
}
