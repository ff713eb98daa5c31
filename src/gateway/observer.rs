//! Observation of requests: the line of the access log, and the metrics of the semantic conventions, which are written when
//! the last part of a request is dropped.
//!
//! - Without an observer nothing is collected: each place tests one pointer.
//! - A request is observed from its arrival. The parts that hold it note what they know: admission the route and the caller,
//!   the exchange its end, the response its status. The last one to be dropped is the end of the request: the body of the
//!   response, the tunnel, or, when the client disconnects before, the future of the response.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use uuid::Uuid;

use super::Gateway;
use super::connection::Connection;
use super::observed_head::ObservedHead;
use crate::admission::Route;
use domain::clock::{self, Micros, Reading};
use domain::identity::{Peer, Principal, X_REQUEST_ID};
use domain::refusal::Refusal;
use domain::trace_context::TraceId;
use journal::audit::{Outcome, UseEnd};
use platform::metrics::{ActiveRequest, RequestEnd, ServerConventions};
use platform::telemetry::access_log::{AccessLog, Caller, Line, LoggedRequests, RequestText};

/// Outcome of a refusal that has none in the audit journal.
const REFUSED: &str = "refused";
/// Outcome of a request whose response was not sent whole.
const ABORTED: &str = "aborted";
/// Outcome of a request to the dashboard.
const COMPLETED: &str = "completed";

/// Outcomes of responses that were not sent whole, whatever their status.
const BROKEN: [&str; 3] = [ABORTED, "terminated", "upstream_error"];

/// Observer of one worker's requests.
#[derive(Debug)]
pub struct Observer {
    access_log: Option<AccessLog>,
    conventions: Option<ServerConventions>,
    /// A line is written here, then copied into the queue.
    buffer: RefCell<Vec<u8>>,
}

/// An observed request. Dropping its last holder writes its line.
pub struct ObservedRequest {
    observer: Rc<Observer>,
    arrival: ObservedArrival,
    facts: RefCell<Facts>,
    _active: Option<ActiveRequest>,
}

/// Facts that are known when a head has arrived.
struct ObservedArrival {
    time: Micros,
    begun: Instant,
    peer: Rc<Peer>,
    client: std::net::IpAddr,
    head: Option<ObservedHead>,
}

/// Facts that come later.
#[derive(Default)]
struct Facts {
    id: Option<Uuid>,
    trace_id: Option<TraceId>,
    query: Option<RequestText>,
    route: Option<String>,
    /// Path of the route, as the configuration has it.
    pattern: Option<Box<str>>,
    caller: Option<Caller>,
    upstream: Option<String>,
    endpoint: Option<String>,
    refusal: Option<&'static str>,
    outcome: Option<&'static str>,
    status: Option<u16>,
    request_body_bytes: u64,
    response_body_bytes: u64,
    /// True if the audit journal has a record of the request.
    is_audited: bool,
}

impl Observer {
    /// Observer of one worker; none when there is nothing to write.
    pub fn new(access_log: Option<AccessLog>, conventions: Option<ServerConventions>) -> Option<Self> {
        let is_needed = access_log.is_some() || conventions.is_some();
        is_needed.then(|| Self { access_log, conventions, buffer: RefCell::default() })
    }

    /// Begins to observe a request with these ids: its own, and that of its trace.
    pub(super) fn observe(
        self: &Rc<Self>,
        connection: &Connection,
        client: std::net::IpAddr,
        head: &Parts,
        arrival: Reading,
        (id, trace_id): (Uuid, Option<TraceId>),
    ) -> Rc<ObservedRequest> {
        let observed = self.begin(arrival, &connection.peer, client, Some(ObservedHead::new(head, head.uri.path())));
        {
            let mut facts = observed.facts.borrow_mut();
            (facts.id, facts.trace_id) = (Some(id), trace_id);
        }
        observed
    }

    /// Observes a request whose head could not be read, and which was answered at once.
    pub(super) fn observe_unread(
        self: &Rc<Self>,
        peer: &Rc<Peer>,
        refusal: Refusal,
        response: &Response<bytes::Bytes>,
        id: Uuid,
    ) {
        let client = peer.address.ip();
        let observed = self.begin(clock::read(), peer, client, None);
        observed.note_id(id);
        observed.note_refusal(refusal);
        observed.note_response(response.status(), response.body().len() as u64);
    }

    fn begin(
        self: &Rc<Self>,
        Reading { time, instant: begun }: Reading,
        peer: &Rc<Peer>,
        client: std::net::IpAddr,
        head: Option<ObservedHead>,
    ) -> Rc<ObservedRequest> {
        let scheme = if peer.tls.is_some() { "https" } else { "http" };
        let begin = |conventions: &ServerConventions| Some(conventions.begin(&head.as_ref()?.method, scheme));
        let active = self.conventions.as_ref().and_then(begin);
        let arrival = ObservedArrival { time, begun, peer: Rc::clone(peer), client, head };
        Rc::new(ObservedRequest { observer: Rc::clone(self), arrival, facts: RefCell::default(), _active: active })
    }

    fn write(&self, access_log: &AccessLog, line: &Line<'_>) {
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        line.write(&mut buffer);
        access_log.push(&buffer);
    }
}

impl Gateway {
    /// Begins to observe a request that another service answers; none without an access log. It is shown with this path.
    pub fn observe(&self, connection: &Connection, head: &Parts, path: &str) -> Option<Rc<ObservedRequest>> {
        let observer = self.observer.as_ref()?;
        let client = connection.clients.find(&connection.peer, &head.headers, &self.trusted_proxies).ip;
        Some(observer.begin(clock::read(), &connection.peer, client, Some(ObservedHead::new(head, path))))
    }
}

impl ObservedRequest {
    /// Notes the id of the request.
    pub(super) fn note_id(&self, id: Uuid) {
        self.facts.borrow_mut().id = Some(id);
    }

    /// Notes the route, and what it allows to be shown.
    pub(super) fn note_route(&self, route: &Route, head: &Parts) {
        let mut facts = self.facts.borrow_mut();
        facts.route.clone_from(&route.name);
        facts.pattern.clone_from(&route.path);
        facts.query = head.uri.query().filter(|_| route.log_query).map(RequestText::query);
    }

    /// Notes the caller.
    pub(super) fn note_caller(&self, principal: &Principal) {
        let Principal { key_id, user_id, org_id, method, .. } = principal;
        let caller = Caller { key_id: *key_id, user_id: *user_id, org_id: *org_id, method: *method };
        self.facts.borrow_mut().caller = Some(caller);
    }

    /// Notes that the request is admitted. `upstream` is none when the gateway answers itself; `is_audited`: the audit
    /// journal has a record of it.
    pub(super) fn note_admitted(&self, principal: &Principal, upstream: Option<&str>, is_audited: bool) {
        self.note_caller(principal);
        self.facts.borrow_mut().upstream = upstream.map(str::to_owned);
        self.note_audited(is_audited);
    }

    /// Notes the endpoint that has answered.
    pub(super) fn note_endpoint(&self, endpoint: &str) {
        self.facts.borrow_mut().endpoint = Some(endpoint.to_owned());
    }

    /// Notes whether the audit journal has a record of the request.
    pub(super) fn note_audited(&self, is_audited: bool) {
        self.facts.borrow_mut().is_audited = is_audited;
    }

    /// Notes that the gateway refuses the request.
    pub(super) fn note_refusal(&self, refusal: Refusal) {
        let mut facts = self.facts.borrow_mut();
        let method = facts.caller.map_or(domain::identity::AuthMethod::ApiKey, |caller| caller.method);
        facts.refusal = Some(refusal.answer(method).code);
        facts.outcome = Some(refusal.row().outcome.unwrap_or(REFUSED));
    }

    /// Notes a response of the gateway itself.
    pub(super) fn note_response(&self, status: StatusCode, body_bytes: u64) {
        let mut facts = self.facts.borrow_mut();
        facts.status = Some(status.as_u16());
        facts.response_body_bytes = body_bytes;
    }

    /// Notes the end of an exchange.
    pub(super) fn note_end(&self, end: &UseEnd) {
        let mut facts = self.facts.borrow_mut();
        facts.outcome = Some(end.outcome.name());
        facts.status = end.status;
        facts.request_body_bytes = end.request_bytes;
        facts.response_body_bytes = end.response_bytes;
    }

    /// Notes that a response without another outcome was sent whole.
    pub(super) fn note_sent(&self) {
        self.facts.borrow_mut().outcome.get_or_insert(COMPLETED);
    }

    /// Notes the response of the dashboard, which carries the request's id.
    pub(super) fn note_dashboard_response(&self, response: &Response<bytes::Bytes>) {
        let id = response.headers().get(X_REQUEST_ID).map(HeaderValue::as_bytes);
        self.facts.borrow_mut().id = id.and_then(|id| Uuid::try_parse_ascii(id).ok());
        self.note_response(response.status(), response.body().len() as u64);
    }

    /// Writes the line, if the request is to have one.
    fn log(&self, access_log: &AccessLog, facts: &Facts) {
        let settings = access_log.settings();
        if settings.requests == LoggedRequests::All || !facts.is_audited {
            self.observer.write(access_log, &self.line(facts, &settings.gateway));
        }
    }

    /// Notes the duration. A head that could not be read has none.
    fn measure(&self, conventions: &ServerConventions, facts: &Facts) {
        let Some(head) = &self.arrival.head else { return };
        let status = facts.status.and_then(|status| StatusCode::from_u16(status).ok());
        let outcome = facts.outcome.unwrap_or(ABORTED);
        let is_failed = status.is_none_or(|status| status.is_server_error()) || BROKEN.contains(&outcome);
        let error = if is_failed { Some(facts.refusal.unwrap_or(outcome)) } else { None };
        // A status of the upstream is its own name.
        let error = error.filter(|error| *error != Outcome::Completed.name());
        let seconds = self.arrival.begun.elapsed().as_secs_f64();
        let end = RequestEnd { method: &head.method, status, error, seconds };
        conventions.observe(end, facts.pattern.as_deref().unwrap_or_default());
    }

    fn line<'a>(&'a self, facts: &'a Facts, gateway: &'a str) -> Line<'a> {
        let ObservedArrival { time, begun, peer, client, head } = &self.arrival;
        let head = head.as_ref();
        let outcome = facts.outcome.unwrap_or(ABORTED);
        Line {
            time: *time,
            duration_ns: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
            id: facts.id,
            trace_id: facts.trace_id,
            method: head.map(|head| head.method.as_str()),
            path: head.map(|head| &head.path),
            query: facts.query.as_ref(),
            http_version: head.and_then(ObservedHead::version_number),
            request_bytes: head.map(|head| head.bytes + facts.request_body_bytes),
            request_body_bytes: facts.request_body_bytes,
            status: facts.status,
            response_body_bytes: facts.response_body_bytes,
            client: *client,
            source: peer.address,
            tls: peer.tls,
            user_agent: head.and_then(|head| head.user_agent.as_ref()),
            caller: facts.caller,
            gateway,
            route: facts.route.as_deref(),
            upstream: facts.upstream.as_deref(),
            endpoint: facts.endpoint.as_deref(),
            refusal: facts.refusal,
            outcome,
            succeeded: outcome == Outcome::Completed.name() && facts.status.is_some_and(|status| status < 400),
        }
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        let facts = self.facts.borrow();
        if let Some(access_log) = &self.observer.access_log {
            self.log(access_log, &facts);
        }
        if let Some(conventions) = &self.observer.conventions {
            self.measure(conventions, &facts);
        }
    }
}
