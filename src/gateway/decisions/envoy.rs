//! Envoy over gRPC: `ext_authz`, which asks once, and `ext_proc`, whose stream lives as long as the exchange, with
//! health checks beside them.

use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use envoy_wire::ext_authz::{self, CheckRequest, CheckResponse};
use envoy_wire::ext_proc;
use envoy_wire::grpc::{self, Code, InvalidCall};
use envoy_wire::health::{self, HealthCheckRequest, HealthCheckResponse, ServingStatus};
use envoy_wire::{Kind, Struct, Value};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::call::{CallBody, Conversation, Inbox, Outbox, Status};
use super::described::{self, Described};
use super::process_end::Stage;
use super::{Admitted, DecisionSlots, Decisions, decide};
use crate::admission::Route;
use crate::gateway::catch_panic::catch_panic;
use crate::gateway::connection::Connection;
use crate::gateway::guarded_body::GuardedBody;
use crate::gateway::own_response::{self, own};
use crate::gateway::rejection::HeadRefusal;
use crate::gateway::request::Arrival;
use crate::gateway::{Gateway, ResponseFuture, head};
use edge::forward::{self, ResponseOrigin, ValidatedHead};
use edge::transport::ExchangeHandle;

/// Bytes of a message beside the head that it describes.
const MESSAGE_ROOM: usize = 16 * 1024;
/// A head in a message has lengths and tags in place of separators: it is a little larger.
const HEADS_PER_MESSAGE: usize = 2;

/// A call of Envoy, and what it needs to be answered.
pub(super) struct Call {
    pub(super) decisions: Rc<Decisions>,
    pub(super) gateway: Rc<Gateway>,
    pub(super) connection: Rc<Connection>,
    pub(super) exchange: ExchangeHandle,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
}

/// Fields of an answer.
pub(super) type Fields = Vec<(HeaderName, HeaderValue)>;

impl Decisions {
    /// Answers a call of gRPC.
    pub(super) fn call(
        self: Rc<Self>,
        gateway: Rc<Gateway>,
        connection: &Rc<Connection>,
        request: Request<Incoming>,
    ) -> ResponseFuture {
        let exchange = connection.exchange();
        let (head, body) = request.into_parts();
        let limit = gateway.settings.max_head * HEADS_PER_MESSAGE + MESSAGE_ROOM;
        let outbox = Outbox::default();
        let call = Call {
            decisions: self,
            gateway: Rc::clone(&gateway),
            connection: Rc::clone(connection),
            exchange,
            inbox: Inbox::new(body, limit),
            outbox: outbox.clone(),
        };
        let response = match grpc::rpc_path(&head).and_then(|path| call.converse(path)) {
            Ok(conversation) => {
                let conversation = end_panic(gateway, conversation);
                let body = CallBody::new(outbox, Box::pin(conversation));
                let mut response = Response::new(GuardedBody::Call(Box::new(body)));
                *response.headers_mut() = grpc::response_headers();
                response
            }
            Err(invalid) => refuse_call(invalid),
        };
        Box::pin(std::future::ready(response))
    }
}

/// The conversation, which ends as failed when it panics.
async fn end_panic(gateway: Rc<Gateway>, conversation: Conversation) -> Status {
    let ended = catch_panic(conversation).await;
    ended.unwrap_or_else(|| {
        tracing::error!("the gateway panicked while deciding");
        gateway.metrics.panics.inc();
        Status(Code::Internal, "the gateway failed")
    })
}

/// The answer to a request that is no call, or one of another method.
fn refuse_call(invalid: InvalidCall) -> Response<GuardedBody> {
    let mut response = own(Response::new(Bytes::new()));
    match invalid.http_status() {
        Some(status) => *response.status_mut() = status,
        None => *response.headers_mut() = grpc::trailers_only(invalid.code(), "there is no such method here"),
    }
    response
}

impl Call {
    /// The conversation of a call to this path.
    fn converse(self, path: &str) -> Result<Conversation, InvalidCall> {
        let holds_streams = self.decisions.settings.slots == DecisionSlots::Stream;
        Ok(match path {
            ext_authz::CHECK if !holds_streams => Box::pin(self.check()),
            ext_proc::PROCESS if holds_streams => Box::pin(self.process()),
            ext_authz::CHECK | ext_proc::PROCESS => Box::pin(self.refuse_by_slots()),
            health::CHECK => Box::pin(self.check_health(false)),
            health::WATCH => Box::pin(self.check_health(true)),
            _ => return Err(InvalidCall::Path),
        })
    }

    async fn refuse_by_slots(self) -> Status {
        Status(Code::Unimplemented, "ext_proc needs slots: stream, and ext_authz another setting of slots")
    }

    /// Answers whether proxies may ask here: once, or at each change as long as the call is open.
    async fn check_health(mut self, watches: bool) -> Status {
        let time = self.gateway.settings.body_idle_timeout;
        if let Err(status) = self.inbox.only::<HealthCheckRequest>(time).await {
            return status;
        }
        let process_end = self.decisions.process_end.clone();
        // Without the audit every request would be refused.
        let is_serving = !process_end.has_reached(Stage::Leaving) && self.gateway.journal.accepts_requests();
        let told = if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.outbox.send(&HealthCheckResponse::from(told));
        if watches && is_serving {
            process_end.wait_for(Stage::Leaving).await;
            self.outbox.send(&HealthCheckResponse::from(ServingStatus::NotServing));
        }
        Status::OK
    }

    /// `ext_authz`: one question, one answer.
    async fn check(mut self) -> Status {
        let time = self.gateway.settings.body_idle_timeout;
        let question: CheckRequest = match self.inbox.only(time).await {
            Ok(question) => question,
            Err(status) => return status,
        };
        let (arrival, checked) = self.arrive(described::of_check(&question, &self.gateway));
        let answer = match self.decide(&arrival, checked).await {
            Ok(mut admitted) => {
                self.decisions.end_unseen(&mut admitted.exchange);
                let set = set_fields(&admitted).into_iter().map(text);
                let shown = self.shown_fields(&arrival, &admitted);
                let metadata = Some(metadata(&admitted, &shown));
                CheckResponse::admitted(set, admitted.removals(), metadata)
                    .with_response_fields(shown.into_iter().map(text))
            }
            Err(refused) => {
                let (status, fields, body) = into_refusal(refused, arrival).await;
                let body = String::from_utf8_lossy(&body).into_owned();
                CheckResponse::denied(status, fields.into_iter().map(text), body)
            }
        };
        self.outbox.send(&answer);
        Status::OK
    }

    /// The arrival of a described request, and its head as far as it is valid.
    pub(super) fn arrive(
        &self,
        described: Result<Described, HeadRefusal>,
    ) -> (Arrival, Result<ValidatedHead, HeadRefusal>) {
        let gateway = &*self.gateway;
        self.connection.forget_refusals();
        let arrive = |client, head| {
            let origin = ResponseOrigin::Api;
            Arrival::on(self.exchange.clone(), gateway, &self.connection, client, origin, head)
        };
        match described {
            Ok(Described { head, fields, client }) => {
                let arrival = arrive(client, &head).of_other_proxy(false);
                (arrival, head::validate(head, Some(fields), &gateway.settings))
            }
            Err(refusal) => {
                gateway.count_malformed_decision(refusal.refusal);
                let nothing = described::nothing();
                let clients = &self.connection.clients;
                let client = clients.find(&self.connection.peer, &nothing.headers, &gateway.trusted_proxies);
                (arrive(client, &nothing), Err(refusal))
            }
        }
    }

    /// Decides about a described request.
    pub(super) async fn decide<'a>(
        &'a self,
        arrival: &'a Arrival,
        checked: Result<ValidatedHead, HeadRefusal>,
    ) -> Result<Admitted<'a>, Response<GuardedBody>> {
        let gateway = &*self.gateway;
        let head = checked.map_err(|refusal| gateway.early_rejection.refuse(refusal, arrival))?;
        let (route, admitted) = decide(gateway, arrival, &head).await?;
        gateway.metrics.overhead.observe(arrival.seconds_until(Instant::now()));
        route.metrics.count_response(http::StatusCode::OK);
        Ok(Admitted { untrusted: untrusted_of(&head, route, gateway), ..admitted })
    }

    /// Fields that the response to the client gets, as in the proxy mode.
    pub(super) fn shown_fields(&self, arrival: &Arrival, admitted: &Admitted<'_>) -> Fields {
        let mut fields = http::HeaderMap::new();
        if let Some(caller) = admitted.exchange.caller() {
            caller.rate_limit.write(&mut fields, &self.gateway.policies, &self.gateway.memory);
        }
        fields.insert(domain::identity::X_REQUEST_ID, arrival.id_header.clone());
        fields.into_iter().filter_map(|(name, value)| Some((name?, value))).collect()
    }
}

/// Identity fields that have a value.
pub(super) fn set_fields(admitted: &Admitted<'_>) -> Fields {
    admitted.identity.fields().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A refusal as status, fields and body.
pub(super) async fn into_refusal(
    response: Response<GuardedBody>,
    arrival: Arrival,
) -> (http::StatusCode, Fields, Bytes) {
    let (head, body) = own_response::finish(response, arrival, None).await.into_parts();
    // It is in memory, and cannot fail.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let fields = head.headers.into_iter().filter_map(|(name, value)| Some((name?, value)));
    // Each connection is Envoy's own.
    let fields = fields.filter(|(name, _)| *name != http::header::CONNECTION).collect();
    (head.status, fields, body)
}

fn text((name, value): (HeaderName, HeaderValue)) -> (String, String) {
    (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Names of fields that Envoy has to remove.
fn untrusted_of(head: &ValidatedHead, route: &Route, gateway: &Gateway) -> Vec<HeaderName> {
    let passed = gateway.upstreams.get(route.upstream).map_or(&[][..], |upstream| upstream.passed_fields.names());
    forward::untrusted_names(&head.headers, &gateway.settings.credentials, passed, route.pass_authorization)
}

/// Key, organization, route and limit, for Envoy's access log and later filters.
fn metadata(admitted: &Admitted<'_>, shown: &Fields) -> Struct {
    let caller = admitted.identity.caller.as_deref();
    let fields = [
        ("key", caller.and_then(|caller| caller.key_id).map(|key| key.to_string())),
        ("organization", caller.map(|caller| caller.org_id.to_string())),
        ("route", admitted.identity.route.name.as_deref().map(str::to_owned)),
        ("limit", shown.iter().find(|(name, _)| name == "ratelimit-policy").cloned().map(|field| text(field).1)),
    ];
    let value = |text: String| Value { kind: Some(Kind::StringValue(text)) };
    let fields = fields.into_iter().filter_map(|(name, text)| Some((name.to_owned(), value(text?))));
    Struct { fields: fields.collect() }
}
