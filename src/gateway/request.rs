//! Facts about a request that are known when its head has arrived.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderValue, Method, Version};
use uuid::fmt::Hyphenated;
use uuid::{ContextV7, Timestamp, Uuid};

use super::Gateway;
use super::connection::Connection;
use super::cors::CrossOrigin;
use super::rpc_protocol::RpcProtocol;
use crate::admission::Route;
use domain::clock::{self, Micros, Reading};
use domain::head_fields::{CredentialFields, FieldSet};
use domain::head_memory::HeadMemory;
use domain::identity::{AuthMethod, Principal};
use domain::refusal::Refusal;
use domain::trace_context::TraceId;
use edge::forward::{Client, ResponseOrigin};
use edge::transport::ExchangeHandle;
use platform::telemetry::{HeadFacts, ObservedRequest, Observer, RequestFacts, RequestText};

/// Facts about a request that are known when its head has arrived.
pub(super) struct Arrival {
    /// Id of the request and of its audit record.
    pub(super) id: Uuid,
    /// Value of `X-Request-Id`.
    pub(super) id_header: HeaderValue,
    /// Time of arrival.
    pub(super) time: Micros,
    /// The same on the monotonic clock, from which spans are measured.
    begun: Instant,
    /// Connection, shared with the other requests on it.
    pub(super) connection: Rc<Connection>,
    /// Handle of the exchange on its connection. Not kept beyond the head of the response: on HTTP/1 the next exchange
    /// has the same one.
    pub(super) downstream: ExchangeHandle,
    /// Position in the revocation log before the credential was checked.
    pub(super) log_position: u64,
    /// Fields of the head that are acted on, if transport has scanned it strictly for the fields of this configuration.
    pub(super) fields: Option<FieldSet>,
    /// HTTP version of the request.
    pub(super) version: Version,
    /// Client, by the trusted-proxy rule.
    pub(super) client: Client,
    /// True if the method is HEAD.
    pub(super) is_head: bool,
    /// True if a key was among the subprotocols that the client offers.
    pub(super) offers_key: bool,
    /// True if the client sends the body only after a 100.
    pub(super) expects_continue: bool,
    /// Rights of pages of other origins to the response; none when the route says nothing of them.
    pub(super) cors: Option<Box<CrossOrigin>>,
    /// Origin on which browsers see the response.
    pub(super) origin: ResponseOrigin,
    /// Protocol of calls in which a refusal is told; none: a problem document.
    pub(super) rpc: Option<RpcProtocol>,
    /// Facts for the access log, the trace and the metrics by convention; none when all of them are off. Shared with
    /// the exchange and the tries at the upstream: they are rendered when the last holder is dropped.
    pub(super) observed: Option<Rc<ObservedRequest>>,
    /// The last refusal that was noted, and the caller's method; none before one. Not its code, which is larger.
    refusal: Cell<Option<(Refusal, AuthMethod)>>,
}

impl Arrival {
    /// `offers_key` says that the head had a key among the subprotocols of a WebSocket.
    pub(super) fn new(
        gateway: &Gateway,
        connection: &Rc<Connection>,
        origin: ResponseOrigin,
        head: &Parts,
        offers_key: bool,
    ) -> Self {
        let client = connection.clients.find(&connection.peer, &head.headers, &gateway.trusted_proxies);
        let arrival = Self::on(connection.exchange(), gateway, connection, client, origin, head);
        Self { offers_key, ..arrival }
    }

    /// The arrival of a request of this client on this exchange of a connection.
    pub(super) fn on(
        downstream: ExchangeHandle,
        gateway: &Gateway,
        connection: &Rc<Connection>,
        client: Client,
        origin: ResponseOrigin,
        head: &Parts,
    ) -> Self {
        let Reading { time, instant: begun } = clock::read();
        let id = id_at(time, &gateway.ids);
        let fields = downstream.fields(&gateway.settings.credentials);
        let has_expect = fields.map(|fields| fields.contains(FieldSet::EXPECT));
        let mut arrival = Self {
            id,
            id_header: id_header(id, &gateway.memory),
            time,
            begun,
            downstream,
            connection: Rc::clone(connection),
            log_position: gateway.open.position(),
            fields,
            version: head.version,
            client,
            observed: None,
            is_head: head.method == Method::HEAD,
            offers_key: false,
            expects_continue: has_expect.unwrap_or_else(|| head.headers.contains_key(EXPECT)),
            cors: CrossOrigin::of(gateway, head),
            origin,
            rpc: RpcProtocol::of(head),
            refusal: Cell::default(),
        };
        arrival.observed = gateway.observer.as_ref().map(|observer| arrival.observe(gateway, observer, head));
        arrival
    }

    /// The arrival of a request that another proxy describes. `is_head` says whether it asks by `HEAD`.
    pub(super) fn of_other_proxy(self, is_head: bool) -> Self {
        // Its body, and the fields that pages of other origins need, are not asked for.
        Self { is_head, expects_continue: false, cors: None, fields: None, rpc: None, ..self }
    }

    /// Begins to observe the request.
    fn observe(&self, gateway: &Gateway, observer: &Rc<Observer>, head: &Parts) -> Rc<ObservedRequest> {
        let peer = &self.connection.peer;
        let trace = observer.tracer().map(|tracer| {
            let is_trusted = gateway.trusted_proxies.trusts(peer.address.ip().to_canonical());
            tracer.begin(head, is_trusted, self.client.proto(peer, &head.headers).name == "https")
        });
        let arrival = Reading { time: self.time, instant: self.begun };
        observer.begin(RequestFacts {
            head: Some(HeadFacts::new(head, head.uri.path())),
            trace,
            ..RequestFacts::new(Some(self.id), arrival, peer, self.client.ip)
        })
    }

    /// Notes that the request was refused.
    pub(super) fn note_refusal(&self, refusal: Refusal, method: AuthMethod) {
        self.refusal.set(Some((refusal, method)));
    }

    /// Returns whether the request was refused because it has no credential.
    pub(super) fn lacks_credential(&self) -> bool {
        matches!(self.refusal.get(), Some((Refusal::NoCredential, _)))
    }

    /// Code of the request's refusal; none where it is not refused.
    pub(super) fn refusal_code(&self) -> Option<&'static str> {
        self.refusal.get().map(|(refusal, method)| refusal.answer(method).code)
    }

    /// Id of the trace, if there is one.
    pub(super) fn trace_id(&self) -> Option<TraceId> {
        self.observed.as_ref()?.trace_id()
    }

    /// Writes facts down, where the request is observed.
    pub(super) fn note(&self, change: impl FnOnce(&mut RequestFacts)) {
        if let Some(observed) = &self.observed {
            observed.note(change);
        }
    }

    /// Notes what admission has found: the route, what it allows to be shown, and the caller.
    pub(super) fn note_admission(
        &self,
        head: &Parts,
        route: &Route,
        credentials: &CredentialFields,
        caller: impl FnOnce() -> Option<Arc<Principal>>,
    ) {
        self.note(|facts| {
            facts.route.clone_from(&route.name);
            facts.pattern.clone_from(&route.path);
            let query = head.uri.query().filter(|_| route.log_query);
            facts.query = query.map(|query| RequestText::query(query, credentials));
            facts.caller = caller();
        });
    }

    /// Seconds from the arrival to `now`.
    pub(super) fn seconds_until(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.begun).as_secs_f64()
    }
}

/// Id of a request that arrives at this time: the clock is read once for both.
fn id_at(time: Micros, ids: &ContextV7) -> Uuid {
    let nanos = u32::try_from(time.0 % 1_000_000).expect("less than a second") * 1000;
    Uuid::new_v7(Timestamp::from_unix(ids, time.0 / 1_000_000, nanos))
}

/// Value of `X-Request-Id`. Its clones go to the upstream and to the client.
fn id_header(id: Uuid, memory: &HeadMemory) -> HeaderValue {
    let mut text = [0; Hyphenated::LENGTH];
    memory.value(id.hyphenated().encode_lower(&mut text).as_bytes())
}
