//! A downstream connection, as the gateway sees it: its peer, and how often it was refused in a row.

use std::cell::Cell;
use std::rc::Rc;

use http::header::CONNECTION;
use http::{HeaderValue, Response, Version};

use domain::identity::Peer;
use domain::problem::ProblemTypes;
use edge::forward::ConnectionClients;
use edge::transport::{ConnectionHandle, ExchangeHandle};
use journal::audit::PreparedFields;

/// Refusals of known keys in a row after which a connection closes: an honest client with a backoff never has so many,
/// and a client in a loop pays for a new connection from time to time.
const MAX_REFUSALS_IN_A_ROW: u32 = 100;

/// A downstream connection.
#[derive(Debug)]
pub struct Connection {
    /// Other end.
    pub peer: Rc<Peer>,
    /// Clients whose requests come over it, with the values of the fields that name them.
    pub(super) clients: ConnectionClients,
    /// Fields of its audit records, which seldom change.
    pub(super) audit_fields: PreparedFields,
    /// Types of the problems that requests are answered with.
    pub(super) problem_types: ProblemTypes,
    handle: ConnectionHandle,
    refusals_in_a_row: Cell<u32>,
}

impl Connection {
    /// A connection that was just established, whose problems have these types.
    pub fn new(peer: Rc<Peer>, handle: ConnectionHandle, problem_types: ProblemTypes) -> Self {
        let clients = ConnectionClients::new(&peer);
        let audit_fields = PreparedFields::default();
        Self { peer, clients, audit_fields, problem_types, handle, refusals_in_a_row: Cell::new(0) }
    }

    /// Handle of the exchange for which the service is called now. To be taken before the first await.
    pub fn exchange(&self) -> ExchangeHandle {
        self.handle.upgrade_slot.exchange()
    }

    /// Notes an admitted request.
    pub(super) fn count_admission(&self) {
        self.refusals_in_a_row.set(0);
    }

    /// Forgets the refusals in a row, on a connection with the requests of many clients.
    pub(super) fn forget_refusals(&self) {
        self.refusals_in_a_row.set(0);
    }

    /// Notes the refusal of a known key or session, and closes the connection with its response when there
    /// were too many in a row.
    pub(super) fn count_refusal<B>(&self, version: Version, response: &mut Response<B>) {
        let refusals = self.refusals_in_a_row.get() + 1;
        self.refusals_in_a_row.set(refusals);
        if refusals < MAX_REFUSALS_IN_A_ROW {
            return;
        }
        // HTTP/2 has no field for it (RFC 9113, section 8.2.2), but a frame.
        match version {
            Version::HTTP_2 => self.handle.close_gracefully(),
            _ => drop(response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"))),
        }
    }
}
