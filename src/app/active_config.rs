//! What a worker serves by, services of the snapshot that is in force and replaced with it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;
use uuid::ContextV7;

use super::Certificates;
use super::dispatch::ListenerRouter;
use super::worker_pool::ConfigSnapshot;
use crate::admission::{Admission, RouteSettings, Routes};
use crate::audit::Journal;
use crate::config::{Listener, ListenerRole};
use crate::dashboard::{self, CurlExample, CurlExamples, Dashboard};
use crate::forward::TrustedProxies;
use crate::gateway::{EarlyRejection, Gateway};
use crate::metrics::Metrics;
use crate::state::State;
use crate::transport::{BodyLimits, ConnectionLimiter, RequestBody, ServeOptions, Settings};
use crate::upstream::Pool;

/// What stays when the snapshot changes.
pub(super) struct SharedHandles {
    pub(super) state: Arc<State>,
    pub(super) journal: Journal,
    pub(super) metrics: Metrics,
    pub(super) connection_limiter: ConnectionLimiter,
    pub(super) certificates: Arc<Certificates>,
    pub(super) dashboard: Option<dashboard::DashboardServices>,
}

/// What is services of the snapshot that is in force. Clones share it.
///
/// - Whoever has taken a gateway or a listener's settings from it keeps them, whatever is in force then.
#[derive(Clone)]
pub(super) struct ActiveConfig(Rc<Inner>);

struct Inner {
    handles: SharedHandles,
    services: RefCell<WorkerServices>,
}

/// What is services of a snapshot.
struct WorkerServices {
    gateway: Rc<Gateway>,
    dashboard: Option<Rc<Dashboard>>,
    /// Of each listener.
    serving: Vec<Rc<ServeOptions>>,
    /// Of each listener.
    serves: Vec<ListenerRole>,
}

impl ActiveConfig {
    /// What is services of the first snapshot.
    pub(super) fn new(handles: SharedHandles, snapshot: &ConfigSnapshot) -> Self {
        let pool = Pool::new(snapshot.endpoints.clone(), &snapshot.config.upstream);
        let services = RefCell::new(handles.services(snapshot, pool));
        Self(Rc::new(Inner { handles, services }))
    }

    fn gateway(&self) -> Rc<Gateway> {
        Rc::clone(&self.0.services.borrow().gateway)
    }

    /// For the next request to a listener.
    pub(super) fn router(&self, listener: usize) -> ListenerRouter {
        let services = self.0.services.borrow();
        ListenerRouter {
            gateway: Rc::clone(&services.gateway),
            dashboard: services.dashboard.clone(),
            serves: services.serves[listener],
        }
    }

    /// For the next connection of a listener.
    pub(super) fn serving(&self, listener: usize) -> Rc<ServeOptions> {
        Rc::clone(&self.0.services.borrow().serving[listener])
    }

    /// Puts another snapshot in force, over the same connections.
    pub(super) fn apply(&self, snapshot: &ConfigSnapshot) {
        let pool = self.gateway().upstream.changed(snapshot.endpoints.clone(), &snapshot.config.upstream);
        let services = self.0.handles.services(snapshot, pool);
        // What was in force may end here, and close connections: not while it is borrowed.
        let replaced = self.0.services.replace(services);
        drop(replaced);
    }
}

impl SharedHandles {
    fn services(&self, snapshot: &ConfigSnapshot, pool: Pool<RequestBody>) -> WorkerServices {
        let gateway = Rc::new(self.gateway(snapshot, pool));
        let listeners = snapshot.config.listen.iter().enumerate();
        let serving = listeners.map(|(number, listen)| Rc::new(self.serving(number, listen, &gateway)));
        let serves = snapshot.config.listen.iter().map(|listen| listen.serves).collect();
        WorkerServices { serving: serving.collect(), serves, dashboard: self.dashboard(snapshot).map(Rc::new), gateway }
    }

    fn dashboard(&self, snapshot: &ConfigSnapshot) -> Option<Dashboard> {
        let shared = self.dashboard.clone()?;
        let trusted = TrustedProxies(snapshot.config.trusted_proxies.clone());
        let origin = shared.settings.api_origin.as_ref().unwrap_or(&shared.settings.origin).clone();
        let paths = snapshot.config.routes.iter().filter_map(curl_example).collect();
        let examples = CurlExamples { origin, paths };
        Some(Dashboard::new(shared, trusted, snapshot.failed_auth.clone(), examples, self.metrics.clone()))
    }

    fn gateway(&self, snapshot: &ConfigSnapshot, upstream: Pool<RequestBody>) -> Gateway {
        let routes = Routes::new(&snapshot.config.routes, &self.metrics);
        let limits = self.body_limits(&snapshot.config.transport);
        let admission = Admission::new(Arc::clone(&self.state), routes, self.metrics.clone());
        let admission = match &self.dashboard {
            Some(dashboard) => admission.with_sessions(&dashboard.settings.origin),
            None => admission,
        };
        Gateway {
            admission,
            upstream,
            failed_auth: snapshot.failed_auth.clone(),
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
            early_rejection: EarlyRejection::new(&self.metrics),
            tunnel_idle: snapshot.config.tunnel_idle,
            ids: ContextV7::new(),
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

    /// What the listener with this place in the configuration serves.
    fn serving(&self, number: usize, listen: &Listener, gateway: &Gateway) -> ServeOptions {
        let unread = gateway.early_rejection.clone();
        ServeOptions {
            settings: Rc::new(gateway.settings.clone()),
            head_error_response: Rc::new(move |why| unread.answer(why)),
            tls: self.certificates.store(number).cloned(),
            http2: listen.http2,
            proxy_networks: listen.proxy_protocol.as_slice().into(),
            connection_limiter: self.connection_limiter.clone(),
            connections: self.metrics.connections.clone(),
            timeouts: self.metrics.timeouts.clone(),
        }
    }
}

/// What of a route can be asked for by `GET` as it stands.
fn curl_example(route: &RouteSettings) -> Option<CurlExample> {
    let may_get = route.methods.is_empty() || route.methods.contains(&Method::GET);
    let path = route.path.strip_suffix("**").unwrap_or(&route.path);
    let is_whole = !path.contains('{');
    (may_get && is_whole).then(|| CurlExample { path: path.to_owned(), permission: route.permission.clone() })
}
