//! Facts of one request, from which its spans are made: handed from its worker to the exporter as they are.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderValue, Method, StatusCode, Version};
use uuid::Uuid;

use domain::identity::OrgId;
use domain::key::KeyId;
use domain::trace_context::{SpanId, TraceId, TraceParent, TraceState};

/// Facts of one request. Texts of the client are as they came: they are redacted when spans are made of them.
#[derive(Debug)]
pub(super) struct TraceRecord {
    pub(super) trace_id: TraceId,
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
    pub(super) started: SystemTime,
    /// The same on the monotonic clock, from which all other times are measured.
    pub(super) begun: Instant,
    pub(super) duration: Duration,
    /// Id of the request.
    pub(super) request_id: Uuid,
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) is_encrypted: bool,
    pub(super) client: IpAddr,
    /// Path, without the query string.
    pub(super) path: Box<str>,
    pub(super) host: Option<Box<[u8]>>,
    /// Pattern of the route, if a listed one matches.
    pub(super) route: Option<Box<str>>,
    pub(super) key_id: Option<KeyId>,
    pub(super) org_id: Option<OrgId>,
    pub(super) status: Option<StatusCode>,
    /// Reason why the request was refused or has failed.
    pub(super) error: Option<&'static str>,
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

impl TraceRecord {
    /// Returns whether the request was refused or has failed: then it is exported whatever its trace is.
    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some() || self.status.is_some_and(|status| status.is_server_error())
    }

    /// Number of its spans.
    pub(super) fn spans(&self) -> usize {
        1 + self.tries.len()
    }
}
