//! Admitted requests between admission and the last frame of their response.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body as _;
use prometheus::{Histogram, IntCounter, IntGauge};

use super::Gateway;
use super::caller_usage::CallerUsage;
use super::observer::ObservedRequest;
use super::open_exchanges::OpenExchange;
use super::rate_limit::RateLimitFields;
use super::rejection::{Rejection, of_body_error};
use super::request::Arrival;
use crate::admission::Route;
use domain::clock::{self, Micros};
use domain::refusal::Refusal;
use edge::forward::RequestFeatures;
use journal::audit::{AuditEntry, Outcome, UseEnd};
use platform::request_body::UploadProgress;
use platform::telemetry::trace::RequestTrace;
use state::{Admitted, Permit};
use upstream::ResponseBody;

/// Guard of an admitted request: its slot, its open audit entry, and the body of its response.
///
/// - Dropped anywhere, it gives the slot back and closes the entry; as `aborted` unless another outcome was set.
/// - It is reset, and the outcome is `terminated`, when its credential is revoked.
pub struct Exchange {
    pub(super) _permit: Permit,
    pub(super) entry: Option<AuditEntry>,
    /// Ends the exchange when its credential is revoked.
    pub(super) open: OpenExchange,
    /// Time at which the head arrived.
    pub(super) arrived: Micros,
    pub(super) upload: UploadProgress,
    /// Body of the upstream's response, once its head is on its way to the client.
    pub(super) body: Option<ForwardedBody>,
    /// Rate-limit status of the caller, which the response shows.
    pub(super) rate_limit: RateLimitFields,
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
    pub(super) in_flight: IntGauge,
    pub(super) duration: Histogram,
    /// Trace of the request, which ends with the exchange; none when traces are off.
    pub(super) trace: Option<Rc<RequestTrace>>,
    /// The request as the access log sees it; none without one.
    pub(super) observed: Option<Rc<ObservedRequest>>,
    /// Facts for the answer of the gateway itself; none: the upstream answers.
    pub(super) usage: Option<Box<CallerUsage>>,
}

/// Body of the upstream's response.
pub(super) struct ForwardedBody {
    pub(super) frames: ResponseBody,
    /// True if there is no body, but a `Content-Length` of the body that a GET would bring. On HTTP/1 the library sends such
    /// a length only when it takes the body for one that may still come.
    pub(super) length_only: bool,
}

impl Exchange {
    /// Begins the exchange of an admitted request.
    pub(super) fn begin(
        gateway: &Gateway,
        arrival: &Arrival,
        route: &Route,
        admitted: Admitted,
        entry: AuditEntry,
        upload: UploadProgress,
        features: RequestFeatures,
    ) -> Self {
        gateway.metrics.in_flight.inc();
        let usage = CallerUsage::of(route, &admitted);
        let Admitted { principal, validity, permit, rate_limit, .. } = admitted;
        let rate_limit = RateLimitFields::new(rate_limit, principal.method);
        let reset = arrival.downstream.reset_handle();
        if let Some(observed) = &arrival.observed {
            let upstream = route.serve.is_none().then(|| gateway.upstreams[route.upstream].pool.upstream());
            observed.note_admitted(&principal, upstream, entry.is_recorded());
        }
        Self {
            _permit: permit,
            entry: Some(entry),
            open: gateway.open.register(principal, validity, reset, arrival.log_position),
            arrived: arrival.time,
            upload,
            body: None,
            rate_limit,
            status: None,
            sent: 0,
            tunnelled: 0,
            trailers: features.trailers.then(|| gateway.metrics.fields_dropped.response.clone()),
            features,
            outcome: None,
            in_flight: gateway.metrics.in_flight.clone(),
            duration: route.metrics.duration.clone(),
            trace: arrival.trace.clone(),
            observed: arrival.observed.clone(),
            usage,
        }
    }

    /// Time in which something must come in a long-lived exchange, of this length; none for others.
    pub(super) fn idle_limit(&self, idle: Duration) -> Option<Duration> {
        self.features.long_lived.then_some(idle)
    }

    /// Sets the outcome, unless one was set before: the first cause is the one that counts.
    pub(super) fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// Ends the exchange without a response from the upstream, and answers the request.
    pub(super) fn fail(&mut self, arrival: &Arrival, route: &Route, refusal: Refusal) -> Response<Bytes> {
        // When the request's body failed, the upstream could not respond: the body's failure is the cause.
        let refusal = self.upload.error().map_or(refusal, of_body_error);
        self.end(Outcome::of_refusal(refusal).unwrap_or(Outcome::UpstreamError));
        arrival.note_refusal(refusal);
        let response = Rejection::with_rate_limit(refusal, self.rate_limit).response(arrival.reference());
        self.status = Some(response.status());
        self.sent = arrival.sent(&response);
        route.metrics.count_response(response.status());
        response
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
        if let Some(entry) = self.entry.take() {
            // A panic drops the exchange, too. It is not the client's doing, and the client is answered with 500, unless
            // the head of another response was sent before.
            let panicked = std::thread::panicking();
            let default = match panicked {
                true => Outcome::InternalError,
                false if self.open.is_terminated() => Outcome::Terminated,
                false => Outcome::Aborted,
            };
            let outcome = self.outcome.unwrap_or(default);
            if let Some(trace) = self.trace.as_ref().filter(|_| outcome != Outcome::Completed) {
                trace.set_error(outcome.name());
            }
            let status = self.status.or(panicked.then_some(StatusCode::INTERNAL_SERVER_ERROR));
            let end = UseEnd {
                outcome,
                status: status.map(|status| status.as_u16()),
                duration_us,
                request_bytes: self.upload.received_bytes() + self.tunnelled,
                response_bytes: self.sent,
            };
            if let Some(observed) = &self.observed {
                observed.note_end(&end);
            }
            entry.close(end);
        }
    }
}
