//! Whose a request is: the gateway's, or the dashboard's.

use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::config::ListenerRole;
use crate::dashboard::Dashboard;
use crate::gateway::{Gateway, GuardedBody};
use crate::identity::Peer;
use crate::transport::UpgradeSlot;

/// What the requests to a listener are answered by.
///
/// - What is under the dashboard's path never reaches the upstream, at no listener.
pub(super) struct ListenerRouter {
    pub(super) gateway: Rc<Gateway>,
    pub(super) dashboard: Option<Rc<Dashboard>>,
    pub(super) serves: ListenerRole,
}

impl ListenerRouter {
    /// Answers one request.
    pub(super) async fn dispatch(
        &self,
        peer: &Rc<Peer>,
        upgrade_slot: &UpgradeSlot,
        request: Request<Incoming>,
    ) -> Response<GuardedBody> {
        let Some(dashboard) = &self.dashboard else { return self.gateway.handle(peer, upgrade_slot, request).await };
        let is_dashboards = dashboard.contains_path(request.uri().path());
        match (self.serves, is_dashboards) {
            (ListenerRole::All, true) | (ListenerRole::Dashboard, _) => own(dashboard.handle(peer, request).await),
            (ListenerRole::Api, true) => own(dashboard.not_found()),
            (ListenerRole::All | ListenerRole::Api, false) => self.gateway.handle(peer, upgrade_slot, request).await,
        }
    }
}

fn own(response: Response<Bytes>) -> Response<GuardedBody> {
    response.map(|body| GuardedBody::Own(Full::new(body)))
}
