//! Observation of requests: one [`RequestFacts`] of each, which is rendered when the last part of the request is
//! dropped.
//!
//! - Without an observer nothing is collected: each place tests one pointer.
//! - A request is observed from its arrival. The parts that hold it note what they know: admission the route and the
//!   caller, the exchange its end, the tries at the upstream their results. The last one to be dropped is the end of
//!   the request: the body of the response, the tunnel, or, when the client disconnects before, the future of the
//!   response.

use std::cell::RefCell;
use std::rc::Rc;

use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::access_log::{AccessLog, LoggedRequests, write_line};
use super::request_facts::RequestFacts;
use super::trace::{TraceFacts, Tracer, TryError};
use crate::metrics::{GaugeGuard, ServerConventions};
use domain::trace_context::TraceId;

/// Observer of one worker's requests. Dropping the last holder, which may be a request, drops its tracer.
#[derive(Debug)]
pub struct Observer {
    access_log: Option<AccessLog>,
    conventions: Option<ServerConventions>,
    tracer: Option<Tracer>,
    /// A line is written here, then copied into the queue.
    buffer: RefCell<Vec<u8>>,
}

/// An observed request, shared by all who have a part in it. Dropping the last holder ends it, and renders its facts.
#[derive(Debug)]
pub struct ObservedRequest {
    observer: Rc<Observer>,
    /// None only while it is dropped.
    facts: RefCell<Option<RequestFacts>>,
    /// Counts the request as active until it is dropped.
    _active: Option<GaugeGuard>,
}

impl Observer {
    /// Observer of one worker; none when there is nothing to write.
    pub fn new(
        access_log: Option<AccessLog>,
        conventions: Option<ServerConventions>,
        tracer: Option<Tracer>,
    ) -> Option<Rc<Self>> {
        let is_needed = access_log.is_some() || conventions.is_some() || tracer.is_some();
        is_needed.then(|| Rc::new(Self { access_log, conventions, tracer, buffer: RefCell::default() }))
    }

    /// Begins traces; none when traces are off.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Begins to observe a request, of which these facts are known.
    pub fn begin(self: &Rc<Self>, facts: RequestFacts) -> Rc<ObservedRequest> {
        let scheme = if facts.tls.is_some() { "https" } else { "http" };
        let conventions = self.conventions.as_ref().zip(facts.head.as_ref());
        let active = conventions.map(|(conventions, head)| conventions.begin(&head.method, scheme));
        Rc::new(ObservedRequest { observer: Rc::clone(self), facts: RefCell::new(Some(facts)), _active: active })
    }

    /// Renders the facts of a request that has ended.
    fn render(&self, facts: RequestFacts) {
        if let Some(access_log) = &self.access_log {
            self.log(access_log, &facts);
        }
        if let Some(conventions) = &self.conventions
            && let Some(measurement) = facts.measurement()
        {
            conventions.observe(measurement, facts.pattern.as_deref().unwrap_or_default());
        }
        if let Some(tracer) = &self.tracer {
            tracer.end(facts);
        }
    }

    /// Writes the line, if the request is to have one.
    fn log(&self, access_log: &AccessLog, facts: &RequestFacts) {
        let settings = access_log.settings();
        if settings.requests == LoggedRequests::Unaudited && facts.is_audited {
            return;
        }
        let mut buffer = self.buffer.borrow_mut();
        buffer.clear();
        write_line(facts, &settings.gateway, &mut buffer);
        access_log.push(&buffer);
    }
}

impl ObservedRequest {
    /// Writes facts down.
    pub fn note(&self, change: impl FnOnce(&mut RequestFacts)) {
        if let Some(facts) = &mut *self.facts.borrow_mut() {
            change(facts);
        }
    }

    /// Id of the trace; none when traces are off.
    pub fn trace_id(&self) -> Option<TraceId> {
        self.facts.borrow().as_ref()?.trace.as_ref().map(|trace| trace.trace_id)
    }

    /// Replaces the trace context of a head that goes to the upstream (`TraceFacts::write_state`). Does nothing when
    /// traces are off.
    pub fn write_state(&self, headers: &mut HeaderMap) {
        self.note_in_trace(|trace| trace.write_state(headers));
    }

    /// Begins a try at an endpoint (`TraceFacts::begin_try`).
    pub fn begin_try(&self, headers: &mut HeaderMap, host: &HeaderValue, version: Version) {
        self.note_in_trace(|trace| trace.begin_try(headers, host, version));
    }

    /// Notes the result of the last try. One with a response goes on to the end of the request, unless another follows.
    pub fn end_try(&self, result: Result<StatusCode, TryError>) {
        self.note_in_trace(|trace| trace.end_try(result));
    }

    fn note_in_trace(&self, change: impl FnOnce(&mut TraceFacts)) {
        self.note(|facts| {
            if let Some(trace) = &mut facts.trace {
                change(trace);
            }
        });
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        if let Some(mut facts) = self.facts.take() {
            facts.duration = facts.begun.elapsed();
            self.observer.render(facts);
        }
    }
}
