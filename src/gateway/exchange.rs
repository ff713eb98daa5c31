//! Admitted requests between admission and the last frame of their response.
//!
//! A request of a caller and one to a public route are exchanges alike. They differ in their [`Grant`].

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body as _;
use prometheus::{Histogram, IntCounter, IntGauge};

use super::Gateway;
use super::audit_facts::body_sent;
use super::caller_usage::CallerUsage;
use super::metering::Metering;
use super::open_exchanges::OpenExchange;
use super::public::PublicSlot;
use super::rate_limit::RateLimitFields;
use super::rejection::{Rejection, classify_body_error};
use super::request::Arrival;
use crate::admission::Route;
use domain::clock::{self, Micros};
use domain::refusal::Refusal;
use edge::forward::RequestFeatures;
use journal::audit::{AuditEntry, Outcome, Settled, UseEnd};
use platform::request_body::UploadProgress;
use platform::telemetry::{ObservedRequest, RequestFacts};
use state::{Admitted, Permit};
use upstream::{ResponseBody, SendTerms};

/// Guard of an admitted request: what it was granted, and the body of its response.
///
/// - Dropped anywhere, it gives the slot back and closes the audit entry; as `aborted` unless another outcome was set.
/// - It is reset, and the outcome is `terminated`, when its credential is revoked.
/// - One owner at a time: the request's future, then the body of the response or the tunnel.
pub struct Exchange {
    /// Its grant, given back when it is dropped.
    pub(super) grant: Grant,
    /// Time at which the head arrived.
    pub(super) arrived: Micros,
    /// Progress of the request's body, shared with the body, which the upstream's connection reads.
    pub(super) upload: UploadProgress,
    /// Body of the upstream's response, once its head is on its way to the client.
    pub(super) body: Option<ForwardedBody>,
    /// Features that the client asked for.
    pub(super) features: RequestFeatures,
    /// Status that was sent.
    pub(super) status: Option<StatusCode>,
    /// Bytes of body that were sent.
    pub(super) sent: u64,
    /// Bytes that the client sent through a tunnel.
    pub(super) tunnelled: u64,
    /// Counter of dropped trailers; none: the client gets no trailers.
    pub(super) trailers: Option<IntCounter>,
    /// Outcome, once it is known.
    pub(super) outcome: Option<Outcome>,
    /// Gauge of the process, counted up when the exchange began and down when it is dropped.
    pub(super) in_flight: IntGauge,
    /// Histogram of the route, observed when the exchange is dropped.
    pub(super) duration: Histogram,
    /// Cost of the request, as its response says it; none where the cost is known beforehand, or there is no budget.
    pub(super) metering: Option<Box<Metering>>,
    /// Facts of the request, which get the end of the exchange; none when it is not observed.
    pub(super) observed: Option<Rc<ObservedRequest>>,
}

/// Grant of an admitted request. Given back when it is dropped.
pub(super) enum Grant {
    /// Of a caller with a key or a session.
    Caller(CallerGrant),
    /// Of anybody, on a public route: a place among such requests.
    Public(#[expect(dead_code, reason = "held, not read")] PublicSlot),
}

/// Grant of a caller.
pub(super) struct CallerGrant {
    /// Slots of the organization and the key, given back when the exchange is dropped; taken where they are held for
    /// longer.
    pub(super) permit: Option<Permit>,
    /// Open audit entry. Taken by the drop alone, which closes it: exactly one outcome for each use.
    pub(super) entry: Option<AuditEntry>,
    /// The upstream was sent nothing: what was reserved comes back.
    pub(super) is_unsent: bool,
    /// Registration among the worker's open exchanges, which resets the exchange when its credential is revoked.
    /// Removed when the exchange is dropped.
    pub(super) open: OpenExchange,
    /// Rate-limit status, which the response shows.
    pub(super) rate_limit: RateLimitFields,
    /// True if the key came in a field of its own, which means nothing to caches.
    pub(super) has_key_field: bool,
    /// Facts for the answer of the gateway itself; none: the upstream answers.
    pub(super) usage: Option<Box<CallerUsage>>,
}

/// Body of the upstream's response.
pub(super) struct ForwardedBody {
    pub(super) frames: ResponseBody,
    /// True if there is no body, but a `Content-Length` of the body that a GET would bring. On HTTP/1 the library sends
    /// such a length only when it takes the body for one that may still come.
    pub(super) length_only: bool,
}

impl CallerGrant {
    /// The grant of a caller whose entry is open.
    pub(super) fn new(
        gateway: &Gateway,
        arrival: &Arrival,
        route: &Route,
        admitted: Admitted,
        entry: AuditEntry,
        has_key_field: bool,
    ) -> Self {
        let usage = CallerUsage::of(route, &admitted);
        let Admitted { principal, validity, permit, rate_limit, .. } = admitted;
        let rate_limit = RateLimitFields::new(rate_limit, principal.method);
        let reset = arrival.downstream.reset_handle();
        arrival.note(|facts| facts.is_audited = entry.is_recorded());
        Self {
            permit: Some(permit),
            entry: Some(entry),
            is_unsent: false,
            open: gateway.open.register(principal, validity, reset, arrival.log_position),
            rate_limit,
            has_key_field,
            usage,
        }
    }
}

impl Exchange {
    /// Begins the exchange of an admitted request.
    pub(super) fn begin(
        gateway: &Gateway,
        arrival: &Arrival,
        route: &Route,
        grant: Grant,
        upload: UploadProgress,
        features: RequestFeatures,
    ) -> Self {
        gateway.metrics.in_flight.inc();
        arrival.note(|facts| {
            // None where another proxy forwards.
            let upstream = gateway.upstreams.get(route.upstream).filter(|_| route.serve.is_none());
            facts.upstream = upstream.map(|upstream| upstream.pool.upstream().to_owned());
        });
        let metering = match &grant {
            Grant::Caller(caller) => caller.permit.as_ref().and_then(|permit| Metering::of(route, permit)),
            Grant::Public(_) => None,
        };
        Self {
            grant,
            metering,
            arrived: arrival.time,
            upload,
            body: None,
            status: None,
            sent: 0,
            tunnelled: 0,
            trailers: features.trailers.then(|| gateway.metrics.fields_dropped.response.clone()),
            features,
            outcome: None,
            in_flight: gateway.metrics.in_flight.clone(),
            duration: route.metrics.duration.clone(),
            observed: arrival.observed.clone(),
        }
    }

    /// The grant of the caller; none on a public route.
    pub(super) fn caller(&self) -> Option<&CallerGrant> {
        match &self.grant {
            Grant::Caller(caller) => Some(caller),
            Grant::Public(_) => None,
        }
    }

    /// Facts for the answer of the gateway itself; none: the upstream answers.
    pub(super) fn take_usage(&mut self) -> Option<Box<CallerUsage>> {
        match &mut self.grant {
            Grant::Caller(caller) => caller.usage.take(),
            Grant::Public(_) => None,
        }
    }

    /// Returns whether the credential was revoked, so that the exchange is reset.
    pub(super) fn is_terminated(&self) -> bool {
        self.caller().is_some_and(|caller| caller.open.is_terminated())
    }

    /// The rejection of this request for a reason behind its admission.
    pub(super) fn rejection(&self, refusal: Refusal) -> Rejection<'static> {
        self.caller().map_or_else(
            || Rejection::new(refusal),
            |caller| Rejection::with_rate_limit(refusal, caller.rate_limit.clone()),
        )
    }

    /// Terms on which the request is sent. In a long-lived exchange, something must come within `idle`.
    pub(super) fn send_terms(&self, route: &Route, idle: Duration) -> SendTerms {
        SendTerms {
            long_lived: self.features.long_lived.then_some(idle),
            is_idempotent: route.idempotent,
            trace: self.observed.clone(),
        }
    }

    /// Sets the outcome, unless one was set before: the first cause is the one that counts.
    pub(super) fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// Ends the exchange without a response from the upstream, and answers the request.
    pub(super) fn fail(&mut self, arrival: &Arrival, route: &Route, refusal: Refusal) -> Response<Bytes> {
        // When the request's body failed, the upstream could not respond: the body's failure is the cause.
        let refusal = self.upload.error().map_or(refusal, classify_body_error);
        self.end(Outcome::of_refusal(refusal).unwrap_or(Outcome::UpstreamError));
        if refusal.is_before_sending()
            && let Grant::Caller(caller) = &mut self.grant
        {
            caller.is_unsent = true;
        }
        let response = self.rejection(refusal).respond_to(arrival);
        self.status = Some(response.status());
        self.sent = body_sent(arrival, &response);
        route.metrics.count_response(response.status());
        response
    }

    /// End of the audit record.
    fn audit_end(&self, duration_us: u64) -> UseEnd {
        // A panic drops the exchange, too. It is not the client's doing, and the client is answered with 500, unless
        // the head of another response was sent before.
        let panic_status = std::thread::panicking().then_some(StatusCode::INTERNAL_SERVER_ERROR);
        UseEnd {
            outcome: self.outcome.unwrap_or_else(|| self.outcome_of_drop(panic_status.is_some())),
            status: self.status.or(panic_status).map(|status| status.as_u16()),
            duration_us,
            request_bytes: self.upload.received_bytes() + self.tunnelled,
            response_bytes: self.sent,
        }
    }

    /// Outcome of an exchange that is dropped before its end.
    fn outcome_of_drop(&self, panicked: bool) -> Outcome {
        if panicked {
            Outcome::InternalError
        } else if self.is_terminated() {
            Outcome::Terminated
        } else {
            Outcome::Aborted
        }
    }
}

impl ForwardedBody {
    /// Returns whether no frame is left.
    pub(super) fn has_ended(&self) -> bool {
        self.frames.is_end_stream()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // A response that was cut off closes its connection before its slot is free.
        self.body = None;
        let duration_us = clock::now().since(self.arrived);
        self.in_flight.dec();
        #[allow(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        self.duration.observe(duration_us as f64 / 1e6);
        let end = self.audit_end(duration_us);
        if let Some(observed) = &self.observed {
            observed.note(|facts| note_end(facts, &end));
        }
        if let Grant::Caller(caller) = &mut self.grant {
            let entry = caller.entry.take();
            debug_assert!(entry.is_some(), "an exchange of a caller has its audit entry until it is dropped");
            let is_complete = end.outcome == Outcome::Completed;
            let cost = if caller.is_unsent {
                Some(0)
            } else {
                self.metering.as_deref().map(|metering| metering.cost(is_complete))
            };
            let settled = cost.and_then(|cost| {
                let reservation = caller.permit.take()?.into_reservation()?;
                Some(Settled { cost, returned: reservation.settle(cost) })
            });
            match (entry, settled) {
                (Some(entry), Some(settled)) => entry.close_settled(end, settled),
                (Some(entry), None) => entry.close(end),
                (None, _) => {}
            }
        }
    }
}

/// Notes the end of an exchange among the facts of its request.
fn note_end(facts: &mut RequestFacts, end: &UseEnd) {
    facts.outcome = Some(end.outcome.name());
    facts.status = end.status.and_then(|status| StatusCode::from_u16(status).ok());
    facts.request_body_bytes = end.request_bytes;
    facts.response_body_bytes = end.response_bytes;
    if end.outcome != Outcome::Completed {
        facts.fail(end.outcome.name());
    }
}
