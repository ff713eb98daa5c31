//! Beginning of the trace of a request.

use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use super::queue::Queue;
use super::queue::TraceRecord;
use super::sampling::Ratio;
use super::settings::{ClientContext, Settings};
use super::trace_facts::{TraceFacts, new_span_id, new_trace_id};
use crate::telemetry::request_facts::RequestFacts;
use domain::trace_context::{self, TraceId, TraceParent, TraceState};

/// Begins traces, and hands those of ended requests to the exporter. Clones share one exporter, which ends when the
/// last of them is dropped: every traced request has one, by its observer.
#[derive(Clone, Debug)]
pub struct Tracer {
    settings: Arc<Settings>,
    queue: Queue,
}

/// Origin of a trace.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    /// Span of the caller; none: the trace begins here.
    parent: Option<TraceParent>,
    state: Option<TraceState>,
    /// Client's own trace.
    link: Option<(TraceParent, Option<TraceState>)>,
}

impl Tracer {
    pub(super) fn new(settings: Settings, queue: Queue) -> Self {
        Self { settings: Arc::new(settings), queue }
    }

    /// The settings that the tracer was made of.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Begins the trace of a request, or goes on with that of its caller. `is_trusted`: the other end of the connection
    /// is a trusted proxy. `is_encrypted`: the client's connection is.
    pub fn begin(&self, head: &Parts, is_trusted: bool, is_encrypted: bool) -> Box<TraceFacts> {
        let Origin { parent, state, link } = find_origin(&head.headers, is_trusted, self.settings.clients);
        let trace_id = parent.map_or_else(new_trace_id, |parent| parent.trace_id);
        Box::new(TraceFacts {
            trace_id,
            span_id: new_span_id(),
            parent: parent.map(|parent| parent.span_id),
            link,
            state,
            is_sampled: is_sampled(self.settings.ratio, parent, trace_id),
            is_encrypted,
            host: host(head),
            tries: Vec::new(),
        })
    }

    /// Hands a request that has ended to the exporter, if its spans are to be exported.
    pub(crate) fn end(&self, facts: RequestFacts) {
        if let Some(record) = TraceRecord::new(facts) {
            self.queue.push(record);
        }
    }
}

/// The host that the client has asked for.
fn host(head: &Parts) -> Option<Box<[u8]>> {
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
    host.or_else(|| head.uri.authority().map(|authority| authority.as_str().as_bytes())).map(Box::from)
}

/// Finds the origin of a trace. Only a trusted proxy can have a request traced, or have it not traced.
fn find_origin(headers: &HeaderMap, is_trusted: bool, clients: ClientContext) -> Origin {
    let received = match (is_trusted, clients) {
        (false, ClientContext::Ignore) => None,
        _ => trace_context::read(headers),
    };
    match received {
        Some((parent, state)) if is_trusted => Origin { parent: Some(parent), state, link: None },
        link => Origin { parent: None, state: None, link },
    }
}

/// Returns whether a trace is recorded from the beginning: as its caller does, else by the ratio.
fn is_sampled(ratio: Ratio, parent: Option<TraceParent>, trace_id: TraceId) -> bool {
    parent.map_or_else(|| ratio.contains(trace_id), |parent| parent.is_sampled)
}

#[cfg(test)]
pub(super) mod tests {
    use std::rc::Rc;
    use std::time::Duration;

    use http::Request;
    use uuid::Uuid;

    use super::*;
    use crate::metrics::Metrics;
    use crate::telemetry::{HeadFacts, ObservedRequest, Observer};
    use crate::tls::ClientSettings;
    use domain::clock;
    use domain::identity::Peer;
    use domain::trace_context::{TRACEPARENT, TRACESTATE};

    pub(crate) fn settings() -> Settings {
        Settings {
            endpoint: "http://localhost:4318".parse().unwrap(),
            headers: Vec::new(),
            tls: ClientSettings::default(),
            timeout: Duration::from_secs(1),
            ratio: Ratio::ALL,
            clients: ClientContext::Ignore,
            queue: 16,
            service: "a".into(),
            instance: "b".into(),
        }
    }

    /// Begins the trace of a request of a trusted proxy.
    pub(crate) fn begin(tracer: &Tracer, request: Request<()>, is_encrypted: bool) -> Rc<ObservedRequest> {
        let (head, ()) = request.into_parts();
        let peer = Peer { address: "127.0.0.1:1".parse().unwrap(), tls: None, certificate: None };
        let facts = RequestFacts {
            head: Some(HeadFacts::new(&head, head.uri.path())),
            trace: Some(tracer.begin(&head, true, is_encrypted)),
            ..RequestFacts::new(Some(Uuid::nil()), clock::read(), &peer, peer.address.ip())
        };
        Observer::new(None, None, Some(tracer.clone())).unwrap().begin(facts)
    }

    /// The record of a request to which this happens.
    pub(crate) fn record(request: Request<()>, happens: impl FnOnce(&ObservedRequest)) -> Box<TraceRecord> {
        let (queue, end) = Queue::new(1, Metrics::new().traces);
        happens(&begin(&Tracer::new(settings(), queue), request, true));
        end.wait_for_end(Duration::ZERO).unwrap().remove(0)
    }

    fn headers(fields: &[(http::HeaderName, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn trace_goes_on_only_for_trusted_proxies() {
        let value = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let received = headers(&[(TRACEPARENT, value), (TRACESTATE, "a=1")]);
        let (parent, state) = trace_context::read(&received).unwrap();
        let new = Origin { parent: None, state: None, link: None };
        let link = Origin { parent: None, state: None, link: Some((parent, state.clone())) };
        let goes_on = || Origin { parent: Some(parent), state: state.clone(), link: None };
        assert_eq!(find_origin(&received, false, ClientContext::Ignore), new);
        assert_eq!(find_origin(&received, false, ClientContext::Link), link);
        assert_eq!(find_origin(&received, true, ClientContext::Ignore), goes_on());
        assert_eq!(find_origin(&received, true, ClientContext::Link), goes_on());
        for invalid in [headers(&[]), headers(&[(TRACEPARENT, "00"), (TRACESTATE, "a=1")])] {
            assert_eq!(find_origin(&invalid, true, ClientContext::Link), new, "{invalid:?}");
        }
    }

    #[test]
    fn parent_decides_before_the_ratio() {
        let trace_id = new_trace_id();
        let span_id = new_span_id();
        let parent = |is_sampled| Some(TraceParent { trace_id, span_id, is_sampled });
        let none: Ratio = "0".parse().unwrap();
        assert!(is_sampled(none, parent(true), trace_id) && !is_sampled(Ratio::ALL, parent(false), trace_id));
        assert!(is_sampled(Ratio::ALL, None, trace_id) && !is_sampled(none, None, trace_id));
    }
}
