//! Beginning of the trace of a request.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use uuid::Uuid;

use super::ids::{new_span_id, new_trace_id};
use super::queue::Queue;
use super::record::TraceRecord;
use super::request_trace::RequestTrace;
use super::sampling::Ratio;
use super::settings::{ClientContext, Settings};
use domain::trace_context::{self, TraceId, TraceParent, TraceState};

/// Begins traces. Clones share one exporter, which ends when the last of them, and of the traces that they have begun, is
/// dropped.
#[derive(Clone, Debug)]
pub struct Tracer {
    settings: Arc<Settings>,
    queue: Queue,
}

/// Facts about a request that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Head of the request.
    pub head: &'a Parts,
    /// Client, by the trusted-proxy rule.
    pub client: IpAddr,
    /// True if the other end of the connection is a trusted proxy.
    pub is_trusted: bool,
    /// True if the client's connection is encrypted.
    pub is_encrypted: bool,
    /// Id of the request.
    pub request_id: Uuid,
    /// Time of arrival, in microseconds since 1970.
    pub time: u64,
    /// The same on the monotonic clock.
    pub begun: Instant,
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

    /// Begins the trace of a request, or goes on with that of its caller.
    pub fn begin(&self, arrived: Arrived<'_>) -> Rc<RequestTrace> {
        let head = arrived.head;
        let Origin { parent, state, link } = find_origin(&head.headers, arrived.is_trusted, self.settings.clients);
        let trace_id = parent.map_or_else(new_trace_id, |parent| parent.trace_id);
        let record = TraceRecord {
            trace_id,
            span_id: new_span_id(),
            parent: parent.map(|parent| parent.span_id),
            link,
            state,
            is_sampled: is_sampled(self.settings.ratio, parent, trace_id),
            started: SystemTime::UNIX_EPOCH + Duration::from_micros(arrived.time),
            begun: arrived.begun,
            duration: Duration::ZERO,
            request_id: arrived.request_id,
            method: head.method.clone(),
            version: head.version,
            is_encrypted: arrived.is_encrypted,
            client: arrived.client,
            path: head.uri.path().into(),
            host: host(head),
            route: None,
            key_id: None,
            org_id: None,
            status: None,
            error: None,
            tries: Vec::new(),
        };
        Rc::new(RequestTrace::new(self.queue.clone(), record))
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
    use http::Request;

    use super::super::queue::QueueEnd;
    use super::*;
    use crate::metrics::Metrics;
    use crate::tls::ClientSettings;
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

    /// A queue for so many requests, and a tracer that fills it.
    pub(crate) fn tracer(size: usize) -> (Tracer, QueueEnd) {
        let (queue, end) = Queue::new(size, Metrics::new().traces);
        (Tracer::new(settings(), queue), end)
    }

    /// Begins the trace of a request of a trusted proxy.
    pub(crate) fn begin(tracer: &Tracer, request: Request<()>, is_encrypted: bool) -> Rc<RequestTrace> {
        let (head, ()) = request.into_parts();
        let (client, begun) = ([127, 0, 0, 1].into(), Instant::now());
        let request_id = Uuid::nil();
        tracer.begin(Arrived { head: &head, client, is_trusted: true, is_encrypted, request_id, time: 0, begun })
    }

    /// The record of a request to which this happens.
    pub(crate) fn record(request: Request<()>, happens: impl FnOnce(&RequestTrace)) -> Box<TraceRecord> {
        let (tracer, mut end) = tracer(1);
        happens(&begin(&tracer, request, true));
        end.records.try_recv().unwrap()
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
        let (trace_id, span_id) = (new_trace_id(), new_span_id());
        let parent = |is_sampled| Some(TraceParent { trace_id, span_id, is_sampled });
        let none: Ratio = "0".parse().unwrap();
        assert!(is_sampled(none, parent(true), trace_id) && !is_sampled(Ratio::ALL, parent(false), trace_id));
        assert!(is_sampled(Ratio::ALL, None, trace_id) && !is_sampled(none, None, trace_id));
    }
}
