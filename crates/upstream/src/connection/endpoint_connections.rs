//! One worker's connections to one endpoint.

use std::cell::RefCell;
use std::rc::Rc;

use super::http2_connections::Http2Connections;
use super::idle::IdleConnections;
use super::limits::{EndpointLink, WorkerLink};
use crate::endpoint::endpoints::EndpointState;

/// Connections to one endpoint, of either protocol. Shared by the pools before and after a change of the configuration.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) idle: Rc<RefCell<IdleConnections>>,
    pub(crate) http2: Rc<Http2Connections>,
    /// Link to the bounds of the connections, and to the requests that wait for one.
    pub(crate) link: EndpointLink,
}

impl Connections {
    /// No connections.
    pub(crate) fn new(link: &Rc<WorkerLink>, endpoint: &EndpointState) -> Self {
        let link = EndpointLink::new(link, &endpoint.connections);
        let idle = Rc::new(RefCell::new(IdleConnections::new(link.clone())));
        Self { idle, http2: Rc::new(Http2Connections::new(link.clone())), link }
    }

    /// Closes what is idle, and keeps nothing from now on.
    pub(crate) fn close(&self) {
        self.idle.borrow_mut().close();
        self.http2.close();
    }
}
