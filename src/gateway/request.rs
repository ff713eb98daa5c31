//! Facts about a request that are known when its head has arrived.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{EXPECT, USER_AGENT};
use http::request::Parts;
use http::{HeaderValue, Method, Response, Version};
use uuid::fmt::Hyphenated;
use uuid::{ContextV7, Timestamp, Uuid};

use super::Gateway;
use super::connection::Connection;
use super::observer::{ObservedRequest, Observer};
use crate::admission::{Denial, Route};
use domain::clock::{self, Micros, Reading};
use domain::head_fields::FieldSet;
use domain::identity::{AuthMethod, Principal, X_REQUEST_ID};
use domain::refusal::Refusal;
use domain::trace_context::TraceId;
use edge::forward::{Client, ResponseOrigin};
use edge::transport::ExchangeHandle;
use journal::audit::Use;
use platform::telemetry::trace::{Arrived, RequestTrace, Tracer};
use state::Admitted;

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
    pub(super) connection: Rc<Connection>,
    /// Handle of the exchange on its connection.
    pub(super) downstream: ExchangeHandle,
    /// Position in the revocation log before the credential was checked.
    pub(super) log_position: u64,
    /// HTTP version of the request.
    pub(super) version: Version,
    /// Client, by the trusted-proxy rule.
    pub(super) client: Client,
    /// True if the method is HEAD.
    pub(super) is_head: bool,
    /// True if the client sends the body only after a 100.
    pub(super) expects_continue: bool,
    /// Origin on which browsers see the response.
    pub(super) origin: ResponseOrigin,
    /// The request as the access log sees it; none without one.
    pub(super) observed: Option<Rc<ObservedRequest>>,
    /// Trace of the request; none when traces are off.
    pub(super) trace: Option<Rc<RequestTrace>>,
}

/// Ids by which a refused request can be found again: its own, and that of its trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    pub(super) request_id: Uuid,
    pub(super) trace: Option<&'a RequestTrace>,
}

impl Reference<'_> {
    /// Id of the trace, if there is one.
    pub(super) fn trace_id(&self) -> Option<TraceId> {
        self.trace.map(RequestTrace::trace_id)
    }
}

impl Arrival {
    pub(super) fn new(gateway: &Gateway, connection: &Rc<Connection>, origin: ResponseOrigin, head: &Parts) -> Self {
        let reading = clock::read();
        let Reading { time, instant: begun } = reading;
        let id = id_at(time, &gateway.ids);
        let downstream = connection.exchange();
        let has_expect = downstream.fields().map(|fields| fields.contains(FieldSet::EXPECT));
        let client = connection.clients.find(&connection.peer, &head.headers, &gateway.trusted_proxies);
        let begin = |tracer: &Tracer| {
            let peer = &connection.peer;
            tracer.begin(Arrived {
                head,
                client: client.ip,
                is_trusted: gateway.trusted_proxies.trusts(peer.address.ip().to_canonical()),
                is_encrypted: client.proto(peer, &head.headers) == "https",
                request_id: id,
                time: time.0,
                begun,
            })
        };
        let trace = gateway.tracer.as_ref().map(begin);
        let trace_id = trace.as_deref().map(RequestTrace::trace_id);
        let observe = |observer: &Rc<Observer>| observer.observe(connection, client.ip, head, reading, (id, trace_id));
        let observed = gateway.observer.as_ref().map(observe);
        Self {
            id,
            id_header: id_header(id),
            time,
            begun,
            downstream,
            connection: Rc::clone(connection),
            log_position: gateway.open.position(),
            version: head.version,
            trace,
            client,
            observed,
            is_head: head.method == Method::HEAD,
            expects_continue: has_expect.unwrap_or_else(|| head.headers.contains_key(EXPECT)),
            origin,
        }
    }

    /// Ids by which the request can be found again.
    pub(super) fn reference(&self) -> Reference<'_> {
        Reference { request_id: self.id, trace: self.trace.as_deref() }
    }

    /// Id of the trace, if there is one.
    pub(super) fn trace_id(&self) -> Option<TraceId> {
        self.reference().trace_id()
    }

    /// Notes the route and the caller in the trace.
    pub(super) fn trace_caller(&self, route: &Route, result: &Result<Admitted, Denial>) {
        if let Some(trace) = &self.trace {
            let principal = match result {
                Ok(admitted) => Some(&*admitted.principal),
                Err(denial) => denial.principal.as_deref(),
            };
            trace.set_caller(route.path.as_deref(), principal);
        }
    }

    /// Sets `X-Request-Id` of the response.
    pub(super) fn mark<B>(self, mut response: Response<B>) -> Response<B> {
        if let Some(trace) = &self.trace {
            trace.set_status(response.status());
        }
        response.headers_mut().insert(X_REQUEST_ID, self.id_header);
        response
    }

    /// Notes the route for the access log.
    pub(super) fn note_route(&self, route: &Route, head: &Parts) {
        if let Some(observed) = &self.observed {
            observed.note_route(route, head);
        }
    }

    /// Notes the caller for the access log.
    pub(super) fn note_caller(&self, principal: &Principal) {
        if let Some(observed) = &self.observed {
            observed.note_caller(principal);
        }
    }

    /// Notes for the access log that the gateway refuses the request.
    pub(super) fn note_refusal(&self, refusal: Refusal) {
        if let Some(observed) = &self.observed {
            observed.note_refusal(refusal);
        }
    }

    /// Seconds from the arrival to `now`.
    pub(super) fn seconds_until(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.begun).as_secs_f64()
    }

    /// Action in the audit record: the route's name, else `METHOD /path`.
    pub(super) fn action<'b>(&self, head: &'b Parts, route: &'b Route) -> Cow<'b, str> {
        match &route.name {
            Some(name) => name.into(),
            None => format!("{} {}", head.method, head.uri.path()).into(),
        }
    }

    /// Beginning of the audit record, for a request that took nothing.
    pub(super) fn opening<'b>(
        &'b self,
        head: &'b Parts,
        route: &Route,
        action: &'b str,
        principal: Option<&Principal>,
    ) -> Use<'b> {
        let path_and_query = head.uri.path_and_query().map_or("/", |target| target.as_str());
        Use {
            id: self.id,
            time: self.time,
            number: None,
            key_id: principal.and_then(|principal| principal.key_id),
            user_id: principal.map(|principal| principal.user_id),
            org_id: principal.map(|principal| principal.org_id),
            auth_method: principal.map_or(AuthMethod::ApiKey, |principal| principal.method),
            ip: Some(self.client.ip),
            user_agent: head.headers.get(USER_AGENT).map(HeaderValue::as_bytes),
            action,
            method: head.method.as_str(),
            path: if route.query_in_audit { path_and_query } else { head.uri.path() },
            provisional: false,
            trace_id: self.trace_id(),
        }
    }

    /// Bytes of body that are sent with a response of the gateway itself.
    pub(super) fn sent(&self, response: &Response<Bytes>) -> u64 {
        if self.is_head { 0 } else { response.body().len() as u64 }
    }
}

/// Id of a request that arrives at this time: the clock is read once for both.
fn id_at(time: Micros, ids: &ContextV7) -> Uuid {
    let nanos = u32::try_from(time.0 % 1_000_000).expect("less than a second") * 1000;
    Uuid::new_v7(Timestamp::from_unix(ids, time.0 / 1_000_000, nanos))
}

/// Value of `X-Request-Id`: its bytes and the count of its clones, which go to the upstream and to the client, are one
/// allocation.
fn id_header(id: Uuid) -> HeaderValue {
    let mut text = [0; Hyphenated::LENGTH];
    id.hyphenated().encode_lower(&mut text);
    let text = Bytes::from_owner(text);
    let mut value = HeaderValue::from_maybe_shared(text).expect("hexadecimal digits and dashes are visible ASCII");
    // It never comes again. HTTP/2 would keep it in the table of the connection's fields otherwise, compare the next ones with
    // it, and evict those that do come again (RFC 7541, section 6.2.3).
    value.set_sensitive(true);
    value
}
