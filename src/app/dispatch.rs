//! Dispatch of requests on a listener: to the gateway, the dashboard, the management API, decisions for other proxies,
//! the exchange of tokens, or reports of leaks.

use std::borrow::Cow;
use std::rc::Rc;

use http::Request;
use hyper::body::Incoming;

use crate::config::ListenerRole;
use crate::gateway::{Connection, Decisions, Gateway, ResponseFuture, own_observed};
use control::dashboard::Dashboard;
use control::federation::TokenEndpoint;
use control::leaks::LeakEndpoint;
use control::management_api::ManagementApi;
use edge::forward::ResponseOrigin;
use platform::telemetry::ObservedRequest;

/// Routes the requests of one listener to the gateway, the dashboard, the management API, decisions, the exchange of
/// tokens, or reports of leaks.
///
/// - A listener for decisions serves nothing else.
/// - A listener for the management API serves nothing else, and no other listener serves it.
/// - A request for the path of the exchange, or of reports of leaks, never reaches the upstream, on any listener.
/// - A request under the dashboard's path never reaches the upstream, on any listener.
pub(super) struct ListenerRouter {
    pub(super) gateway: Rc<Gateway>,
    pub(super) dashboard: Option<Rc<Dashboard>>,
    pub(super) management_api: Option<Rc<ManagementApi>>,
    pub(super) tokens: Option<Rc<TokenEndpoint>>,
    pub(super) leaks: Option<Rc<LeakEndpoint>>,
    pub(super) role: ListenerRole,
    /// Origin on which browsers see responses of the upstream.
    pub(super) origin: ResponseOrigin,
    /// Decisions for other proxies; none on a listener that does not serve them.
    pub(super) decisions: Option<Rc<Decisions>>,
}

impl ListenerRouter {
    /// Answers one request. To be called when the connection calls its service.
    pub(super) fn dispatch(self, connection: &Rc<Connection>, request: Request<Incoming>) -> ResponseFuture {
        if let Some(decisions) = self.decisions {
            return decisions.handle(self.gateway, connection, request);
        }
        if self.role == ListenerRole::Management {
            let api = self.management_api.expect("a listener for management has it");
            let (observed, request) = observe(&self.gateway, connection, request, |path| path.into());
            let connection = Rc::clone(connection);
            return Box::pin(async move { own_observed(api.handle(&connection.peer, request).await, observed) });
        }
        if let Some(tokens) = self.tokens
            && self.role != ListenerRole::Dashboard
            && tokens.is_path(request.uri().path())
        {
            let (observed, request) = observe(&self.gateway, connection, request, |path| path.into());
            let connection = Rc::clone(connection);
            return Box::pin(async move { own_observed(tokens.handle(&connection.peer, request).await, observed) });
        }
        if let Some(leaks) = self.leaks
            && self.role != ListenerRole::Dashboard
            && leaks.is_path(request.uri().path())
        {
            let (observed, request) = observe(&self.gateway, connection, request, |path| path.into());
            let (head, body) = request.into_parts();
            let presented = self.gateway.admission.presented_key(&head);
            let (connection, request) = (Rc::clone(connection), Request::from_parts(head, body));
            return Box::pin(async move {
                own_observed(leaks.handle(&connection.peer, presented, request).await, observed)
            });
        }
        let Some(dashboard) = self.dashboard else {
            return self.gateway.handle(connection, self.origin, request);
        };
        let is_dashboard_path = dashboard.contains_path(request.uri().path());
        if self.role != ListenerRole::Dashboard && !is_dashboard_path {
            return self.gateway.handle(connection, self.origin, request);
        }
        let (observed, request) = observe(&self.gateway, connection, request, |path| dashboard.public_path(path));
        match self.role {
            ListenerRole::All | ListenerRole::Dashboard => {
                let connection = Rc::clone(connection);
                Box::pin(async move { own_observed(dashboard.handle(&connection.peer, request).await, observed) })
            }
            // Forwarding the path would show the upstream requests that carry a session cookie of the dashboard.
            ListenerRole::Api | ListenerRole::Management | ListenerRole::Decisions => {
                Box::pin(std::future::ready(own_observed(dashboard.not_found(), observed)))
            }
        }
    }
}

/// Begins to observe a request that is answered here, at its public path.
fn observe(
    gateway: &Gateway,
    connection: &Connection,
    request: Request<Incoming>,
    public_path: impl FnOnce(&str) -> Cow<'_, str>,
) -> (Option<Rc<ObservedRequest>>, Request<Incoming>) {
    let (head, body) = request.into_parts();
    let observed = gateway.observe(connection, &head, &public_path(head.uri.path()));
    (observed, Request::from_parts(head, body))
}
