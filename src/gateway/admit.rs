//! Admission of a request, from its checked head to the request that leaves for the upstream.

use std::rc::Rc;
use std::sync::{Arc, Once};

use http::request::Parts;
use http::{Method, Request, Response, Version};
use http_body::Body as _;

use super::audit_facts::AuditTexts;
use super::exchange::{CallerGrant, Exchange, Grant};
use super::guarded_body::GuardedBody;
use super::public::PublicSlot;
use super::rejection::Rejection;
use super::request::Arrival;
use super::{Gateway, Unsent, own_response};
use crate::admission::Route;
use domain::budget::Cost;
use domain::field_lines::FieldLines;
use domain::head_fields::FieldSet;
use domain::identity::Principal;
use domain::refusal::Refusal;
use edge::forward::{self, AllowedFeatures, ForwardContext, RequestFeatures, UpstreamRequest, ValidatedHead};
use journal::audit::{AuditEntry, Unavailable, Use};
use platform::metrics::PublicRouteMetrics;
use platform::request_body::RequestBody;
use state::Admitted;

/// Admitted request: its route, its exchange, and its head for the upstream.
pub(super) type AdmittedRequest<'a> = (&'a Route, Box<Exchange>, ForwardedRequest);

/// Request on its way to the upstream.
pub(super) struct ForwardedRequest {
    pub(super) request: Request<RequestBody>,
    /// Fields of its head that are not in its table.
    pub(super) added: FieldLines,
}

/// Grant of an admitted request, before its exchange begins.
#[expect(clippy::large_enum_variant, reason = "handed on at once; a box would be an allocation for each request")]
pub(super) enum Granted {
    /// To a caller, whose audit entry is open.
    Caller { admitted: Admitted, entry: AuditEntry },
    /// To anybody, on a public route.
    Public(PublicSlot),
}

impl Granted {
    /// The caller; none on a public route.
    pub(super) fn principal(&self) -> Option<&Arc<Principal>> {
        match self {
            Self::Caller { admitted, .. } => Some(&admitted.principal),
            Self::Public(_) => None,
        }
    }

    /// The grant of the exchange that begins now.
    pub(super) fn into_grant(self, gateway: &Gateway, arrival: &Arrival, route: &Route, has_key_field: bool) -> Grant {
        match self {
            Self::Caller { admitted, entry } => {
                Grant::Caller(CallerGrant::new(gateway, arrival, route, admitted, entry, has_key_field))
            }
            Self::Public(slot) => Grant::Public(slot),
        }
    }
}

impl Gateway {
    /// Admits a request, and takes it through `forward` on its way to the upstream; or answers its denial. Apart from
    /// `serve`, whose future would have room for all of this while it waits for the upstream.
    pub(super) async fn admit(
        &self,
        arrival: &Arrival,
        unsent: &mut Option<Unsent>,
    ) -> Result<AdmittedRequest<'_>, Response<GuardedBody>> {
        let head = &unsent.as_ref().expect("a request is admitted once").head;
        if let Some(response) = self.answer_preflight(arrival, head) {
            return Err(response);
        }
        let (route, granted) = self.grant(arrival, head).await?;
        let Unsent { head, body } = unsent.take().expect("a request is admitted once");
        let has_key_field = head.fields().contains(FieldSet::CREDENTIAL);
        let mut body = RequestBody::new(body, Rc::clone(&self.body_limits));
        if arrival.expects_continue && arrival.version == Version::HTTP_2 {
            body.note_expectation();
        }
        if may_have_no_body(&head, &body) {
            Box::pin(body.read_ahead()).await;
        }
        let caller = granted.principal().map(Arc::as_ref);
        let (forwarded, features) = self.rewrite_request(arrival, route, caller, head, body);
        let grant = granted.into_grant(self, arrival, route, has_key_field);
        let exchange = Exchange::begin(self, arrival, route, grant, forwarded.request.body().upload(), features);
        Ok((route, Box::new(exchange), forwarded))
    }

    /// Finds the route of a request, authorizes the request, and opens its audit entry; or records and answers its
    /// denial.
    pub(super) fn grant<'a>(
        &'a self,
        arrival: &Arrival,
        head: &ValidatedHead,
    ) -> impl Future<Output = Result<(&'a Route, Granted), Response<GuardedBody>>> {
        let route = self.admission.find_route(head);
        // A block and not an `async fn`, which has room for its arguments twice.
        async move {
            if let Some(public) = &route.public {
                let slot = self.admit_public(arrival, head, route, public).map_err(|refused| *refused)?;
                return Ok((route, Granted::Public(slot)));
            }
            // Before the decision: a request that cannot be recorded must not cost a token.
            if !self.journal.accepts_requests() {
                self.metrics.audit.refused.inc();
                return Err(self.early_rejection.refuse(Refusal::AuditUnavailable, arrival));
            }
            let admitted = self.authorize(arrival, head, route).await?;
            arrival.connection.count_admission();
            let Ok(entry) = self.open_entry(arrival, head, route, &admitted).await else {
                let response = own_response::reject_unrecorded(arrival, &admitted, route);
                // The upstream is sent nothing: what was reserved comes back.
                if let Some(reserved) = admitted.permit.into_reservation() {
                    reserved.settle(0);
                }
                return Err(response);
            };
            Ok((route, Granted::Caller { admitted, entry }))
        }
    }

    /// Decides about a request, and notes its caller; or records and answers its denial. Apart from `admit`, whose
    /// future would have room for the result while it waits for the journal.
    async fn authorize(
        &self,
        arrival: &Arrival,
        head: &ValidatedHead,
        route: &Route,
    ) -> Result<Admitted, Response<GuardedBody>> {
        let result = self.admission.authorize(head, head.fields(), route, &arrival.client.ip, arrival.time).await;
        arrival.note_admission(head, route, &self.settings.credentials, || match &result {
            Ok(admitted) => Some(Arc::clone(&admitted.principal)),
            Err(denial) => denial.principal.clone(),
        });
        match result {
            Ok(admitted) => Ok(admitted),
            Err(denial) => Err(Box::pin(self.refuse(arrival, head, route, &denial)).await),
        }
    }

    /// Admits a request to a public route; or refuses it.
    fn admit_public(
        &self,
        arrival: &Arrival,
        head: &ValidatedHead,
        route: &Route,
        metrics: &PublicRouteMetrics,
    ) -> Result<PublicSlot, Box<Response<GuardedBody>>> {
        arrival.note_admission(head, route, &self.settings.credentials, || None);
        match self.public.admit(arrival.client.ip, arrival.time) {
            Ok(slot) => {
                metrics.admitted.inc();
                Ok(slot)
            }
            Err(seconds) => {
                let rejection = if let Some(seconds) = seconds {
                    metrics.address_limited.inc();
                    Rejection::with_retry_after(Refusal::AddressLimited, seconds)
                } else {
                    metrics.busy.inc();
                    Rejection::new(Refusal::PublicBusy)
                };
                let mut response = rejection.respond_to(arrival);
                arrival.connection.count_refusal(arrival.version, &mut response);
                route.metrics.count_response(response.status());
                Err(Box::new(own_response::own(response)))
            }
        }
    }

    /// Counts a scheme that a trusted proxy names and that is not known, and warns of the first one.
    #[cold]
    fn count_unknown_proto(&self) {
        static WARNING: Once = Once::new();
        self.metrics.forwarded_proto_unknown.inc();
        WARNING.call_once(|| {
            tracing::warn!(
                "a trusted proxy sends X-Forwarded-Proto with something else than http or https, or with both; the \
                 scheme of its connection counts instead"
            );
        });
    }

    /// Writes the beginning of the audit record.
    fn open_entry(
        &self,
        arrival: &Arrival,
        head: &Parts,
        route: &Route,
        admitted: &Admitted,
    ) -> impl Future<Output = Result<AuditEntry, Unavailable>> + use<'_> {
        let texts = AuditTexts::new(head, route, &self.settings.credentials);
        let budget = admitted.permit.reservation().map(|reserved| reserved.total);
        let opening = Use {
            number: Some(admitted.number),
            provisional: admitted.provisional,
            // Without a budget, nothing is reserved.
            cost: if budget.is_some() { route.cost } else { Cost::fixed(route.cost.tokens()) },
            budget,
            ..texts.opening(arrival, head, Some(&admitted.principal))
        };
        self.journal.begin_prepared(&opening, &arrival.connection.audit_fields)
    }

    /// Takes an admitted request through `forward` on its way to the upstream, with the identity of its caller, if any.
    /// Returns it with the features that the client asked for.
    pub(super) fn rewrite_request(
        &self,
        arrival: &Arrival,
        route: &Route,
        principal: Option<&Principal>,
        head: ValidatedHead,
        mut body: RequestBody,
    ) -> (ForwardedRequest, RequestFeatures) {
        let context = ForwardContext {
            peer: &arrival.connection.peer,
            client: &arrival.client,
            principal,
            request_id: &arrival.id_header,
            strip_prefix: route.strip_prefix.as_deref(),
            credentials: &self.settings.credentials,
            pass_authorization: route.pass_authorization,
            allowed: AllowedFeatures { upgrade: &route.upgrade, trailers: route.trailers },
            passed: &self.upstreams[route.upstream].passed_fields,
            host: &self.upstreams[route.upstream].host,
            trace: arrival.observed.as_deref(),
            memory: &self.memory,
        };
        let UpstreamRequest { request, added, features, dropped_fields, has_unknown_proto } =
            forward::rewrite_request(head, body.size_hint().exact(), context);
        self.metrics.fields_dropped.request.inc_by(dropped_fields as u64);
        if has_unknown_proto {
            self.count_unknown_proto();
        }
        if features.long_lived {
            body.set_limits(&self.long_lived_limits);
        }
        (ForwardedRequest { request: request.map(|()| body), added }, features)
    }
}

/// Returns whether a request that seems to have a body may have none: a stream of HTTP/2 may end with an empty frame
/// behind the head. To be known for methods that seldom have one: as chunks, some servers refuse it.
fn may_have_no_body(head: &Parts, body: &RequestBody) -> bool {
    head.version == Version::HTTP_2
        && !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && matches!(head.method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS)
}
