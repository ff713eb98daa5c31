//! Dispatch of requests on a listener: to the gateway or to the dashboard.

use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::config::ListenerRole;
use crate::dashboard::Dashboard;
use crate::forward::ResponseOrigin;
use crate::gateway::{Connection, Gateway, GuardedBody};
use crate::transport::ExchangeHandle;

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
    /// Answers one request.
    pub(super) async fn dispatch(
        &self,
        connection: &Connection,
        downstream: &ExchangeHandle,
        request: Request<Incoming>,
    ) -> Response<GuardedBody> {
        let Some(dashboard) = &self.dashboard else {
            return self.gateway.handle(connection, downstream, self.origin, request).await;
        };
        let is_dashboard_path = dashboard.contains_path(request.uri().path());
        match (self.role, is_dashboard_path) {
            (ListenerRole::All, true) | (ListenerRole::Dashboard, _) => {
                own(dashboard.handle(&connection.peer, request).await)
            }
            // Forwarding the path would show the upstream requests that carry a session cookie of the dashboard.
            (ListenerRole::Api, true) => own(dashboard.not_found()),
            (ListenerRole::All | ListenerRole::Api, false) => {
                self.gateway.handle(connection, downstream, self.origin, request).await
            }
        }
    }
}

fn own(response: Response<Bytes>) -> Response<GuardedBody> {
    response.map(|body| GuardedBody::Own(Full::new(body)))
}
