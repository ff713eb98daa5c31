//! `ext_proc`: a stream is an exchange. It holds its slots and its audit entry until Envoy ends it, and is reset when
//! the credential is revoked.
//!
//! | event | outcome |
//! |---|---|
//! | the stream ends behind the trailers of the response, or its head, if that is all | `completed` |
//! | it ends behind the head of a response with a body | `decided`, with the status: maybe the client has gone |
//! | it ends before | `aborted`: the client has gone |
//! | the same, and no head was ever sent | `decided`, and counted: Envoy sends none, and slots bound nothing |
//! | the process is about to end | as above: the stream ends without an error, and the exchange goes on |
//! | the credential is revoked | `terminated`: the stream is reset, and by that the exchange |
//!
//! A cost that the response says is read from its head and its trailers. Without it, the reservation is the cost: a
//! stream that ends early does not say whether the upstream got the request.
//!
//! Envoy ends streams by a reset, so that the conversation is dropped wherever it waits.

use std::rc::Rc;

use bytes::Bytes;
use envoy_wire::ext_proc::{
    HttpHeaders, HttpTrailers, ProcessingMode, ProcessingRequest, ProcessingResponse, Request as Part,
};
use envoy_wire::grpc::Code;
use http::{HeaderName, HeaderValue, StatusCode};

use super::call::Status;
use super::described;
use super::envoy::{Call, Fields, into_refusal, set_fields};
use super::process_end::Stage;
use super::{Admitted, Decisions, ProcessEnd};
use crate::gateway::Gateway;
use crate::gateway::exchange::Exchange;
use crate::gateway::request::Arrival;
use journal::audit::Outcome;

/// Pseudo-field of the head of a response.
const STATUS: &str = ":status";
const OUT_OF_ORDER: Status = Status(Code::InvalidArgument, "a stream begins with the head of a request");
const OBSERVED: Status =
    Status(Code::InvalidArgument, "observability_mode reads no answer, so that nothing is refused");

/// Admitted exchange of a stream.
struct AdmittedStream {
    exchange: Exchange,
    /// Fields that the response to the client gets.
    shown: Fields,
    answer: ProcessingResponse,
}

impl Call {
    /// `ext_proc`: the parts of one exchange.
    pub(super) async fn process(mut self) -> Status {
        let time = self.gateway.settings.body_idle_timeout;
        let first: ProcessingRequest = match self.inbox.first(time).await {
            Ok(first) => first,
            Err(status) => return status,
        };
        if first.observability_mode {
            return OBSERVED;
        }
        let Some(Part::RequestHeaders(headers)) = &first.request else { return OUT_OF_ORDER };
        let (arrival, checked) = self.arrive(described::of_stream(headers, &first.attributes, &self.gateway));
        let decided = self.decide(&arrival, checked).await.map(|admitted| self.begin(&arrival, admitted));
        match decided {
            Ok(AdmittedStream { exchange, shown, answer }) => {
                self.outbox.send(&answer);
                self.follow(exchange, shown).await
            }
            Err(refused) => {
                let (status, fields, body) = into_refusal(refused, arrival).await;
                self.outbox.send(&ProcessingResponse::immediate(status, fields.into_iter().map(raw), body));
                self.inbox.end::<ProcessingRequest>(time).await;
                Status::OK
            }
        }
    }

    fn begin(&self, arrival: &Arrival, admitted: Admitted<'_>) -> AdmittedStream {
        let set = set_fields(&admitted).into_iter().map(raw);
        let mode = Some(ProcessingMode::until_response_ends());
        let answer = ProcessingResponse::admitted(set, admitted.removals(), mode);
        AdmittedStream { shown: self.shown_fields(arrival, &admitted), exchange: admitted.exchange, answer }
    }

    /// Answers the parts of an exchange until the stream ends. Dropped with the stream when that is reset.
    async fn follow(&mut self, exchange: Exchange, shown: Fields) -> Status {
        let mut exchange = StreamExchange::new(self, exchange);
        let mut shown = Some(shown);
        loop {
            let part = tokio::select! {
                part = self.inbox.next() => part,
                // Envoy lets the exchange go on, and its slots are given back: the excess is at most the open streams.
                () = exchange.process_end.wait_for(Stage::Ending) => return Status::OK,
            };
            let part: ProcessingRequest = match part {
                Ok(Some(part)) => part,
                Ok(None) => return Status::OK,
                Err(error) => return error.status(),
            };
            let answer = match &part.request {
                Some(Part::ResponseHeaders(headers)) => {
                    exchange.record_head(headers);
                    let shown = shown.take().into_iter().flatten().map(raw);
                    Some(ProcessingResponse::response_fields(shown))
                }
                Some(Part::ResponseTrailers(trailers)) => {
                    exchange.record_trailers(trailers);
                    part.unchanged()
                }
                _ => part.unchanged(),
            };
            if let Some(answer) = answer {
                self.outbox.send(&answer);
            }
        }
    }
}

/// Exchange of a stream. Dropping it ends it.
struct StreamExchange {
    exchange: Exchange,
    decisions: Rc<Decisions>,
    gateway: Rc<Gateway>,
    process_end: ProcessEnd,
    /// True once the whole response was sent.
    has_ended: bool,
}

impl StreamExchange {
    fn new(call: &Call, exchange: Exchange) -> Self {
        let decisions = Rc::clone(&call.decisions);
        let process_end = decisions.process_end.clone();
        Self { exchange, decisions, process_end, gateway: Rc::clone(&call.gateway), has_ended: false }
    }

    fn record_head(&mut self, headers: &HttpHeaders) {
        self.exchange.status = status_of(headers);
        self.has_ended = headers.end_of_stream;
        self.decisions.sees_responses.set(true);
        if let Some(metering) = &mut self.exchange.metering {
            metering.read_fields(headers.fields());
        }
    }

    fn record_trailers(&mut self, trailers: &HttpTrailers) {
        self.has_ended = true;
        if let Some(metering) = &mut self.exchange.metering {
            metering.read_fields(trailers.fields());
        }
    }

    /// Outcome of an exchange that ends now.
    fn outcome(&self) -> Outcome {
        match (self.has_ended, self.exchange.status) {
            (true, _) => Outcome::Completed,
            (false, Some(_)) => Outcome::Decided,
            (false, None) if self.decisions.sees_responses.get() => Outcome::Aborted,
            (false, None) => {
                self.gateway.metrics.early_streams.inc();
                self.decisions.warn_of_early_stream();
                Outcome::Decided
            }
        }
    }
}

impl Drop for StreamExchange {
    fn drop(&mut self) {
        // After these, the exchange knows its outcome itself.
        if !self.exchange.is_terminated() && !std::thread::panicking() {
            self.exchange.end(self.outcome());
        }
    }
}

/// Status in the head of a response.
fn status_of(headers: &HttpHeaders) -> Option<StatusCode> {
    let (_, status) = headers.fields().find(|(name, _)| *name == STATUS)?;
    StatusCode::from_bytes(status).ok()
}

fn raw((name, value): (HeaderName, HeaderValue)) -> (String, Bytes) {
    (name.to_string(), Bytes::copy_from_slice(value.as_bytes()))
}
