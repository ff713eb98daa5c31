//! Dispatch of requests on a listener: to the gateway or to the dashboard.

use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::config::ListenerRole;
use crate::dashboard::Dashboard;
use crate::forward::ResponseOrigin;
use crate::gateway::{Connection, Gateway, GuardedBody, ResponseFuture};

/// Routes the requests of one listener to the gateway or to the dashboard.
///
/// - A request under the dashboard's path never reaches the upstream, on any listener.
pub(super) struct ListenerRouter {
    pub(super) gateway: Rc<Gateway>,
    pub(super) dashboard: Option<Rc<Dashboard>>,
    pub(super) role: ListenerRole,
    /// Origin on which browsers see responses of the upstream.
    pub(super) origin: ResponseOrigin,
}

impl ListenerRouter {
    /// Answers one request. To be called when the connection calls its service.
    pub(super) fn dispatch(self, connection: &Rc<Connection>, request: Request<Incoming>) -> ResponseFuture {
        let Some(dashboard) = self.dashboard else {
            return self.gateway.handle(connection, self.origin, request);
        };
        let is_dashboard_path = dashboard.contains_path(request.uri().path());
        match (self.role, is_dashboard_path) {
            (ListenerRole::All, true) | (ListenerRole::Dashboard, _) => {
                let connection = Rc::clone(connection);
                Box::pin(async move { own(dashboard.handle(&connection.peer, request).await) })
            }
            // Forwarding the path would show the upstream requests that carry a session cookie of the dashboard.
            (ListenerRole::Api, true) => Box::pin(std::future::ready(own(dashboard.not_found()))),
            (ListenerRole::All | ListenerRole::Api, false) => self.gateway.handle(connection, self.origin, request),
        }
    }
}

fn own(response: Response<Bytes>) -> Response<GuardedBody> {
    response.map(|body| GuardedBody::Own(Full::new(body)))
}
