//! Facts of a traced request, beside those of every request, and the tries to send it.

use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use uuid::Uuid;

use domain::trace_context::{self, BAGGAGE, SpanId, TRACEPARENT, TRACESTATE, TraceId, TraceParent, TraceState};

/// Facts of a traced request. Texts of the client are as they came: they are redacted when spans are made of them.
#[derive(Debug)]
pub struct TraceFacts {
    pub(crate) trace_id: TraceId,
    /// Server span.
    pub(super) span_id: SpanId,
    /// Span of the caller in the same trace; none when the trace begins here.
    pub(super) parent: Option<SpanId>,
    /// Client's own trace, if the trace links to it.
    pub(super) link: Option<(TraceParent, Option<TraceState>)>,
    /// State of the caller's trace.
    pub(super) state: Option<TraceState>,
    /// True if the trace is recorded from the beginning.
    pub(super) is_sampled: bool,
    /// True if the client's connection is encrypted, also where a proxy has ended the encryption.
    pub(super) is_encrypted: bool,
    pub(super) host: Option<Box<[u8]>>,
    pub(super) tries: Vec<Try>,
}

/// One try to send the request to the upstream.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) span_id: SpanId,
    pub(super) begun: Instant,
    /// None: it ends with the request.
    pub(super) ended: Option<Instant>,
    /// `Host` of the endpoint.
    pub(super) host: HeaderValue,
    pub(super) version: Version,
    pub(super) status: Option<StatusCode>,
    pub(super) error: Option<TryError>,
}

/// Reason why a try has no response: `error.type` of its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryError(pub &'static str);

impl TraceFacts {
    /// Replaces the trace context of a head that goes to the upstream, but for `traceparent`, which each try has its
    /// own of. Baggage stays with the trace that it came with; fields of other tracing systems go.
    pub(crate) fn write_state(&self, headers: &mut HeaderMap) {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
        let foreign: Vec<HeaderName> =
            headers.keys().filter(|name| trace_context::is_foreign_field(name)).cloned().collect();
        foreign.iter().for_each(|name| drop(headers.remove(name)));
        if self.parent.is_none() {
            headers.remove(BAGGAGE);
        }
        if let Some(state) = &self.state {
            headers.insert(TRACESTATE, state.header());
        }
    }

    /// Begins a try at an endpoint: ends the one before, and writes the `traceparent` of its span into the head. A try
    /// without a result goes on as this one: its endpoint had no room, and nothing was tried there.
    pub(crate) fn begin_try(&mut self, headers: &mut HeaderMap, host: &HeaderValue, version: Version) {
        let span_id = new_span_id();
        let begun = self.end_last();
        self.tries.push(Try { span_id, begun, ended: None, host: host.clone(), version, status: None, error: None });
        let parent = TraceParent { trace_id: self.trace_id, span_id, is_sampled: self.is_sampled };
        headers.insert(TRACEPARENT, parent.header());
    }

    /// Notes the result of the last try. One with a response goes on to the end of the request, unless another follows.
    pub(crate) fn end_try(&mut self, result: Result<StatusCode, TryError>) {
        let Some(last) = self.tries.last_mut().filter(|last| last.ended.is_none()) else { return };
        match result {
            Ok(status) => last.status = Some(status),
            Err(error) => {
                last.error = Some(error);
                last.ended = Some(Instant::now());
            }
        }
    }

    /// Ends the last try, if it goes on, or removes it, if nothing was tried. Returns the time at which the next one
    /// begins.
    fn end_last(&mut self) -> Instant {
        let now = Instant::now();
        match self.tries.pop() {
            Some(last) if last.status.is_none() && last.error.is_none() => last.begun,
            Some(last) => {
                self.tries.push(Try { ended: last.ended.or(Some(now)), ..last });
                now
            }
            None => now,
        }
    }
}

/// A random id. The bits of its version and variant are before the last 56, which all who sample go by.
pub(super) fn new_trace_id() -> TraceId {
    TraceId::from_bits(Uuid::new_v4().as_u128()).expect("the version of an id is not zero")
}

/// A random id.
pub(super) fn new_span_id() -> SpanId {
    #[allow(clippy::cast_possible_truncation, reason = "the last 8 bytes")]
    let bits = Uuid::new_v4().as_u128() as u64;
    SpanId::from_bits(bits).expect("the variant of an id is not zero")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::super::tracer::tests::record;
    use super::*;
    use crate::telemetry::ObservedRequest;

    fn begin_try(observed: &ObservedRequest, head: &mut HeaderMap) {
        observed.begin_try(head, &HeaderValue::from_static("a:1"), Version::HTTP_11);
    }

    #[test]
    fn try_at_an_endpoint_without_room_goes_on_as_the_next_one() {
        let mut head = HeaderMap::new();
        let trace = record(Request::new(()), |observed| {
            begin_try(observed, &mut head);
            begin_try(observed, &mut head);
            observed.end_try(Err(TryError("timeout")));
            begin_try(observed, &mut head);
            observed.end_try(Ok(StatusCode::OK));
        })
        .trace;
        let results: Vec<_> = trace.tries.iter().map(|one| (one.status, one.error)).collect();
        assert_eq!(results, [(None, Some(TryError("timeout"))), (Some(StatusCode::OK), None)]);
        let sent = TraceParent { trace_id: trace.trace_id, span_id: trace.tries[1].span_id, is_sampled: true };
        assert_eq!(head[TRACEPARENT], sent.header());
    }

    #[test]
    fn failed_try_ends_with_its_failure_and_one_with_a_response_when_another_follows() {
        let trace = record(Request::new(()), |observed| {
            let mut head = HeaderMap::new();
            begin_try(observed, &mut head);
            observed.end_try(Ok(StatusCode::BAD_GATEWAY));
            begin_try(observed, &mut head);
            observed.end_try(Err(TryError("timeout")));
            // Its second result is none of this try.
            observed.end_try(Ok(StatusCode::OK));
        })
        .trace;
        let [first, second] = &trace.tries[..] else { panic!("{trace:?}") };
        assert_eq!(first.ended, Some(second.begun));
        assert!(second.ended.is_some() && second.status.is_none(), "{second:?}");
    }
}
