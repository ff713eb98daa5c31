//! Trace of one request while it runs.

use std::cell::RefCell;
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use super::ids::new_span_id;
use super::queue::Queue;
use super::record::{TraceRecord, Try, TryError};
use domain::identity::Principal;
use domain::trace_context::{self, BAGGAGE, TRACEPARENT, TRACESTATE, TraceId, TraceParent};

/// Trace of one request: the guard of its server span, shared by all who have a part in the request.
///
/// - Dropped with the last of them, which is when the last byte of the response is gone, it ends the span, and hands it to the
///   exporter if it is to be exported.
#[derive(Debug)]
pub struct RequestTrace {
    queue: Queue,
    trace_id: TraceId,
    /// None only while it is dropped.
    record: RefCell<Option<Box<TraceRecord>>>,
}

impl RequestTrace {
    pub(super) fn new(queue: Queue, record: TraceRecord) -> Self {
        Self { queue, trace_id: record.trace_id, record: RefCell::new(Some(Box::new(record))) }
    }

    /// Id of the trace.
    pub fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// Notes the route of the request, by the pattern of its path, and its caller.
    pub fn set_caller(&self, route: Option<&str>, principal: Option<&Principal>) {
        self.change(|record| {
            record.route = route.map(Into::into);
            record.key_id = principal.and_then(|principal| principal.key_id);
            record.org_id = principal.map(|principal| principal.org_id);
        });
    }

    /// Notes the status of the response.
    pub fn set_status(&self, status: StatusCode) {
        self.change(|record| record.status = Some(status));
    }

    /// Notes why the request was refused or has failed. The first reason counts.
    pub fn set_error(&self, reason: &'static str) {
        self.change(|record| {
            record.error.get_or_insert(reason);
        });
    }

    /// Replaces the trace context of a head that goes to the upstream, but for `traceparent`, which each try has its own of.
    /// Baggage stays with the trace that it came with; fields of other tracing systems go.
    pub fn write_state(&self, headers: &mut HeaderMap) {
        headers.remove(TRACEPARENT);
        headers.remove(TRACESTATE);
        let foreign: Vec<HeaderName> =
            headers.keys().filter(|name| trace_context::is_foreign_field(name)).cloned().collect();
        foreign.iter().for_each(|name| drop(headers.remove(name)));
        self.change(|record| {
            if record.parent.is_none() {
                headers.remove(BAGGAGE);
            }
            if let Some(state) = &record.state {
                headers.insert(TRACESTATE, state.header());
            }
        });
    }

    /// Begins a try at an endpoint: ends the one before, and writes the `traceparent` of its span into the head. A try without a
    /// result goes on as this one: its endpoint had no room, and nothing was tried there.
    pub fn begin_try(&self, headers: &mut HeaderMap, host: &HeaderValue, version: Version) {
        let span_id = new_span_id();
        self.change(|record| {
            let begun = end_last(record);
            let host = host.clone();
            record.tries.push(Try { span_id, begun, ended: None, host, version, status: None, error: None });
            let parent = TraceParent { trace_id: record.trace_id, span_id, is_sampled: record.is_sampled };
            headers.insert(TRACEPARENT, parent.header());
        });
    }

    /// Notes the result of the last try. One with a response goes on to the end of the request, unless another follows.
    pub fn end_try(&self, result: Result<StatusCode, TryError>) {
        self.change(|record| {
            let Some(last) = record.tries.last_mut().filter(|last| last.ended.is_none()) else { return };
            match result {
                Ok(status) => last.status = Some(status),
                Err(error) => {
                    last.error = Some(error);
                    last.ended = Some(Instant::now());
                }
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut TraceRecord)) {
        if let Some(record) = &mut *self.record.borrow_mut() {
            change(record);
        }
    }
}

/// Ends the last try, if it goes on, or removes it, if nothing was tried. Returns the time at which the next one begins.
fn end_last(record: &mut TraceRecord) -> Instant {
    let now = Instant::now();
    match record.tries.pop() {
        Some(last) if last.status.is_none() && last.error.is_none() => last.begun,
        Some(last) => {
            record.tries.push(Try { ended: last.ended.or(Some(now)), ..last });
            now
        }
        None => now,
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if record.is_sampled || record.has_failed() {
            record.duration = record.begun.elapsed();
            self.queue.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::super::tracer::tests::record;
    use super::*;

    fn begin_try(trace: &RequestTrace, head: &mut HeaderMap) {
        trace.begin_try(head, &HeaderValue::from_static("a:1"), Version::HTTP_11);
    }

    #[test]
    fn try_at_an_endpoint_without_room_goes_on_as_the_next_one() {
        let mut head = HeaderMap::new();
        let record = record(Request::new(()), |trace| {
            begin_try(trace, &mut head);
            begin_try(trace, &mut head);
            trace.end_try(Err(TryError("timeout")));
            begin_try(trace, &mut head);
            trace.end_try(Ok(StatusCode::OK));
        });
        let results: Vec<_> = record.tries.iter().map(|one| (one.status, one.error)).collect();
        assert_eq!(results, [(None, Some(TryError("timeout"))), (Some(StatusCode::OK), None)]);
        let sent = TraceParent { trace_id: record.trace_id, span_id: record.tries[1].span_id, is_sampled: true };
        assert_eq!(head[TRACEPARENT], sent.header());
    }

    #[test]
    fn failed_try_ends_with_its_failure_and_one_with_a_response_when_another_follows() {
        let record = record(Request::new(()), |trace| {
            let mut head = HeaderMap::new();
            begin_try(trace, &mut head);
            trace.end_try(Ok(StatusCode::BAD_GATEWAY));
            begin_try(trace, &mut head);
            trace.end_try(Err(TryError("timeout")));
            // Its second result is none of this try.
            trace.end_try(Ok(StatusCode::OK));
        });
        let [first, second] = &record.tries[..] else { panic!("{record:?}") };
        assert_eq!(first.ended, Some(second.begun));
        assert!(second.ended.is_some() && second.status.is_none(), "{second:?}");
    }

    #[test]
    fn first_reason_of_a_failure_counts() {
        let record = record(Request::new(()), |trace| {
            trace.set_error("timeout");
            trace.set_error("aborted");
        });
        assert_eq!(record.error, Some("timeout"));
    }
}
