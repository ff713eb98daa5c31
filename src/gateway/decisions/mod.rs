//! Decisions for other proxies: a proxy describes a request that it has, and is told whether to pass it on.
//!
//! ```text
//! client ──request──▶ proxy ──described request──▶ decisions ─▶ scanner ─▶ validation ─▶ grant
//!                       ◀──identity, or the refusal──┘
//! ```
//!
//! - The described request becomes the bytes of a head, which take the way of every request: the strict scanner, the
//!   validation, admission, the audit entry. There is no second parser and no second rule.
//! - A fact that is missing or doubled is a refusal, never a default.
//! - Each listener speaks one protocol, so that no field of one is believed in another.
//! - The end of the exchange is the other proxy's: the use has the outcome `decided`. Its slots are given back with the
//!   answer, or held for a fixed time ([`DecisionSlots`]).
//! - Answers to pages of other origins are the other proxy's.

mod described;
mod answer;
mod identity;
mod call;
mod envoy;
mod stream;
mod process_end;
mod leases;
mod settings;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderName, Method, Request, Response};
use hyper::body::Incoming;
use tracing::field::display;

use super::catch_panic::catch_panic;
use super::connection::Connection;
use super::exchange::{Exchange, Grant};
use super::guarded_body::GuardedBody;
use super::rejection::HeadRefusal;
use super::request::Arrival;
use super::{Gateway, ResponseFuture, head, own_response};
use crate::admission::Route;
use domain::head_fields::FieldSet;
use domain::refusal::Refusal;
use edge::forward::{RequestFeatures, ResponseOrigin, TrustedProxies, ValidatedHead};
use journal::audit::Outcome;
use platform::request_body::UploadProgress;

use answer::Answers;
use identity::Identity;
use leases::Leases;

pub use call::CallBody;
pub use process_end::ProcessEnd;
pub use settings::{DecisionProtocol, DecisionSettings, DecisionSlots};

/// Decisions of one listener, on one worker.
pub struct Decisions {
    settings: DecisionSettings,
    /// Proxies whose word on the client counts: those that are trusted anyway, and those that ask.
    trusted: TrustedProxies,
    leases: Leases,
    /// Stage of the process on the way to its end.
    process_end: ProcessEnd,
    /// True once the head of a response was seen in a stream.
    sees_responses: Cell<bool>,
    /// True once a stream that ended early was warned of.
    has_warned: Cell<bool>,
}

/// Admitted request of another proxy.
struct Admitted<'a> {
    exchange: Exchange,
    identity: Identity<'a>,
    /// Names of fields of the request that the upstream must not get, where the request is seen as a whole.
    untrusted: Vec<HeaderName>,
}

impl Admitted<'_> {
    /// Names that the other proxy has to remove, as text.
    fn removals(&self) -> Vec<String> {
        self.untrusted.iter().map(|name| name.as_str().to_owned()).collect()
    }
}

impl Decisions {
    /// Decisions by these settings.
    pub fn new(settings: DecisionSettings, trusted: &TrustedProxies, process_end: ProcessEnd) -> Self {
        let trusted = TrustedProxies(trusted.0.iter().chain(&settings.peers).copied().collect());
        Self {
            settings,
            trusted,
            leases: Leases::default(),
            process_end,
            sees_responses: Cell::default(),
            has_warned: Cell::default(),
        }
    }

    /// Decides about the request that this one describes. To be called when the connection calls its service.
    pub fn handle(
        self: Rc<Self>,
        gateway: Rc<Gateway>,
        connection: &Rc<Connection>,
        request: Request<Incoming>,
    ) -> ResponseFuture {
        if self.settings.protocol == DecisionProtocol::Envoy {
            return self.call(gateway, connection, request);
        }
        let (asking, body) = request.into_parts();
        let (arrival, checked) = self.arrive(&gateway, connection, asking);
        Box::pin(async move {
            let response = match checked {
                Ok(head) => match catch_panic(self.answer(&gateway, &arrival, &head)).await {
                    Some(response) => response,
                    None => self.answer_panic(&gateway, &arrival),
                },
                Err(refusal) => self.refuse(&gateway, &arrival, refusal),
            };
            own_response::finish(response, arrival, Some(body)).await
        })
    }

    /// The arrival of the request that this one describes, and its head as far as it is valid.
    fn arrive(
        &self,
        gateway: &Gateway,
        connection: &Rc<Connection>,
        mut asking: Parts,
    ) -> (Arrival, Result<ValidatedHead, HeadRefusal>) {
        // It carries the requests of many clients: that one of them is refused again and again says nothing of it.
        connection.forget_refusals();
        let is_head = asking.method == Method::HEAD;
        let (peer, clients) = (&connection.peer, &connection.clients);
        let arrive = |client, head: &Parts| {
            let arrival = Arrival::on(connection.exchange(), gateway, connection, client, ResponseOrigin::Api, head);
            arrival.of_other_proxy(is_head)
        };
        let client = clients
            .find_described(peer, &asking.headers, &self.trusted)
            .ok_or(HeadRefusal::from(Refusal::MalformedDecision));
        let described = client
            .and_then(|client| Ok((client, described::read(self.settings.protocol, &mut asking, &gateway.settings)?)));
        match described {
            Ok((client, head)) => (arrive(client, &head), head::validate(head, None, &gateway.settings)),
            Err(refusal) => {
                gateway.count_malformed_decision(refusal.refusal);
                let client = clients.find(peer, &asking.headers, &self.trusted);
                (arrive(client, &asking), Err(refusal))
            }
        }
    }

    async fn answer(&self, gateway: &Gateway, arrival: &Arrival, head: &ValidatedHead) -> Response<GuardedBody> {
        let answers = Answers(self.settings.protocol);
        if self.settings.protocol == DecisionProtocol::ForwardAuth && identity::has_look_alike(&head.headers) {
            return self.refuse(gateway, arrival, Refusal::MalformedRequest);
        }
        match decide(gateway, arrival, head).await {
            Ok((route, mut admitted)) => {
                gateway.metrics.overhead.observe(arrival.seconds_until(Instant::now()));
                let response = answers.admitted(gateway, &admitted);
                route.metrics.count_response(response.status());
                self.end_unseen(&mut admitted.exchange);
                own_response::own(response)
            }
            Err(refused) => answers.refused(arrival, refused),
        }
    }

    /// Ends an exchange that the other proxy goes on with unseen, and holds its slots where they are leased.
    fn end_unseen(&self, exchange: &mut Exchange) {
        exchange.end(Outcome::Decided);
        if let (DecisionSlots::Lease(time), Grant::Caller(caller)) = (self.settings.slots, &mut exchange.grant) {
            self.leases.hold(caller.permit.take(), time);
        }
    }

    /// Warns once of streams that end before the response: their slots bound nothing.
    fn warn_of_early_stream(&self) {
        if !self.has_warned.replace(true) {
            tracing::warn!(
                "a stream of ext_proc ended before its response began, so that its slots were not held: set \
                 `allow_mode_override: true` and `response_header_mode: SEND` in Envoy's filter"
            );
        }
    }

    fn refuse(&self, gateway: &Gateway, arrival: &Arrival, refusal: impl Into<HeadRefusal>) -> Response<GuardedBody> {
        Answers(self.settings.protocol).refused(arrival, gateway.early_rejection.refuse(refusal, arrival))
    }

    fn answer_panic(&self, gateway: &Gateway, arrival: &Arrival) -> Response<GuardedBody> {
        let trace_id = arrival.trace_id().map(display);
        tracing::error!(request_id = display(arrival.id), trace_id, "the gateway panicked while deciding");
        gateway.metrics.panics.inc();
        self.refuse(gateway, arrival, Refusal::InternalError)
    }
}

impl Gateway {
    /// Counts a question that lacks a fact or has one twice.
    fn count_malformed_decision(&self, refusal: Refusal) {
        if refusal == Refusal::MalformedDecision {
            self.metrics.malformed_decisions.inc();
        }
    }
}

/// Decides about a request as about one that is to be forwarded, and begins its exchange.
async fn decide<'a>(
    gateway: &'a Gateway,
    arrival: &'a Arrival,
    head: &ValidatedHead,
) -> Result<(&'a Route, Admitted<'a>), Response<GuardedBody>> {
    let (route, granted) = gateway.grant(arrival, head).await?;
    let caller = granted.principal().cloned();
    let has_key_field = head.fields().contains(FieldSet::CREDENTIAL);
    let grant = granted.into_grant(gateway, arrival, route, has_key_field);
    let features = RequestFeatures::default();
    let exchange = Exchange::begin(gateway, arrival, route, grant, UploadProgress::default(), features);
    let identity = Identity { caller, route, request_id: &arrival.id_header };
    Ok((route, Admitted { exchange, identity, untrusted: Vec::new() }))
}
