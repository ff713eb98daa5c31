//! Facts of one request, written down once while it runs, and rendered by pure functions when it ends: as a line of the
//! access log (`access_log/line`), as spans (`trace/span_data`), and as a measurement of the semantic conventions.
//!
//! - Plain data without a reference to the request: the exporter of traces gets it as it is, on its own thread.
//! - Texts of the client are copied without secrets, and cut to what is shown of them.
//! - The audit journal has a record of every use, also where nothing else is written: its part of the facts is the
//!   gateway's exchange, which notes its end here.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::USER_AGENT;
use http::request::Parts;
use http::{Method, StatusCode, Version};
use uuid::Uuid;

use super::access_log::query;
use super::trace::TraceFacts;
use crate::metrics::RequestEnd;
use domain::clock::{Micros, Reading};
use domain::head_fields::CredentialFields;
use domain::identity::{Peer, Principal, TlsVersion};
use domain::key;

/// Bytes kept of a user agent, as in the audit journal.
pub(super) const USER_AGENT_CAP: usize = 256;
/// Bytes kept of a path, as in the audit journal.
pub(super) const PATH_CAP: usize = 1024;
/// Bytes kept of a query string.
pub(super) const QUERY_CAP: usize = 1024;

/// Outcome of a request that was answered whole, as in the audit journal.
pub const COMPLETED: &str = "completed";
/// Outcome of a request whose response was not sent whole.
const ABORTED: &str = "aborted";
/// Outcomes of responses that were not sent whole, whatever their status.
const BROKEN: [&str; 3] = [ABORTED, "terminated", "upstream_error"];

/// Facts of one request. What is not known is none.
#[derive(Debug)]
pub struct RequestFacts {
    /// Id of the request, the `X-Request-Id` of its response.
    pub id: Option<Uuid>,
    /// Time of arrival.
    pub time: Micros,
    /// The same on the monotonic clock, from which all other times are measured.
    pub begun: Instant,
    /// Time from the arrival to the end of the response; zero until then.
    pub duration: Duration,
    /// Other end of the connection.
    pub source: SocketAddr,
    /// TLS version of the connection; none without TLS.
    pub tls: Option<TlsVersion>,
    /// Client, by the trusted-proxy rule.
    pub client: IpAddr,
    /// Head; none when it could not be read.
    pub head: Option<HeadFacts>,
    /// Trace; none when traces are off. Boxed: it is large.
    pub trace: Option<Box<TraceFacts>>,
    /// Name of the route.
    pub route: Option<String>,
    /// Path of the route, as the configuration has it.
    pub pattern: Option<Box<str>>,
    /// Query string; none unless the route says that it is logged.
    pub query: Option<RequestText>,
    /// Caller, once it is known.
    pub caller: Option<Arc<Principal>>,
    /// Name of the upstream; none until the request is admitted, and when the gateway itself answers.
    pub upstream: Option<String>,
    /// Endpoint that has answered.
    pub endpoint: Option<String>,
    /// `code` of the last refusal.
    pub refusal: Option<&'static str>,
    /// Reason why the request was refused or has failed: the first one ([`RequestFacts::fail`]).
    pub error: Option<&'static str>,
    /// Outcome, as in the audit journal.
    pub outcome: Option<&'static str>,
    /// Status of the response.
    pub status: Option<StatusCode>,
    /// Bytes of the request's body.
    pub request_body_bytes: u64,
    /// Bytes of the response's body that were sent.
    pub response_body_bytes: u64,
    /// True if the audit journal has a record of the request.
    pub is_audited: bool,
}

/// Facts of a head.
#[derive(Debug)]
pub struct HeadFacts {
    /// Method.
    pub method: Method,
    /// HTTP version.
    pub version: Version,
    /// Path, without the query string.
    pub path: RequestText,
    /// `User-Agent`.
    pub user_agent: Option<RequestText>,
    /// Bytes of the head, as HTTP/1.1 writes it.
    pub bytes: u64,
}

/// Text of a request, without secrets, as far as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestText(Box<[u8]>);

impl RequestFacts {
    /// Facts of a request that has just arrived.
    pub fn new(id: Option<Uuid>, arrival: Reading, peer: &Peer, client: IpAddr) -> Self {
        Self {
            id,
            time: arrival.time,
            begun: arrival.instant,
            duration: Duration::ZERO,
            source: peer.address,
            tls: peer.tls,
            client,
            head: None,
            trace: None,
            route: None,
            pattern: None,
            query: None,
            caller: None,
            upstream: None,
            endpoint: None,
            refusal: None,
            error: None,
            outcome: None,
            status: None,
            request_body_bytes: 0,
            response_body_bytes: 0,
            is_audited: false,
        }
    }

    /// Sets the reason why the request was refused or has failed. The first reason counts.
    pub fn fail(&mut self, reason: &'static str) {
        self.error.get_or_insert(reason);
    }

    /// Returns whether the request was refused or has failed: then its spans are exported whatever its trace is.
    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some() || self.status.is_some_and(|status| status.is_server_error())
    }

    /// Outcome. A request that ended without one was broken off.
    pub(super) fn outcome(&self) -> &'static str {
        self.outcome.unwrap_or(ABORTED)
    }

    /// Returns whether the response is no error and went to its end.
    pub(super) fn has_succeeded(&self) -> bool {
        self.outcome() == COMPLETED && self.status.is_some_and(|status| status.as_u16() < 400)
    }

    /// Measurement for the metrics of the semantic conventions. A head that could not be read has none.
    pub(super) fn measurement(&self) -> Option<RequestEnd<'_>> {
        let method = &self.head.as_ref()?.method;
        let outcome = self.outcome();
        let is_failed = self.status.is_none_or(|status| status.is_server_error()) || BROKEN.contains(&outcome);
        let reason = self.refusal.unwrap_or(outcome);
        // A status of the upstream is its own name.
        let error = if is_failed && reason != COMPLETED { Some(reason) } else { None };
        Some(RequestEnd { method, status: self.status, error, seconds: self.duration.as_secs_f64() })
    }
}

impl HeadFacts {
    /// Facts of a head, which is shown with this path.
    pub fn new(head: &Parts, path: &str) -> Self {
        Self {
            method: head.method.clone(),
            version: head.version,
            path: RequestText::path(path),
            user_agent: head.headers.get(USER_AGENT).map(|agent| RequestText::user_agent(agent.as_bytes())),
            bytes: head_bytes(head),
        }
    }
}

impl RequestText {
    /// A path.
    pub(super) fn path(path: &str) -> Self {
        Self::cut(&key::redact(path.as_bytes()), PATH_CAP)
    }

    /// A query string. Parameters with the name of a field for keys hold secrets, too.
    pub fn query(query: &str, credentials: &CredentialFields) -> Self {
        Self::cut(&query::redact(query, credentials), QUERY_CAP)
    }

    /// A value of `User-Agent`.
    pub(super) fn user_agent(agent: &[u8]) -> Self {
        Self::cut(&key::redact(agent), USER_AGENT_CAP)
    }

    /// A copy, so that the whole head is not kept with it. The character behind the cap shows that the text was cut.
    fn cut(text: &[u8], cap: usize) -> Self {
        Self(text[..text.len().min(cap + char::MAX.len_utf8())].into())
    }

    /// The text, with up to one character beyond its cap.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, of at most so many bytes.
    pub(super) fn truncated(&self, cap: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0[..self.0.len().min(cap)])
    }
}

/// Bytes of a head as HTTP/1.1 writes it: `METHOD target HTTP/1.1`, fields with colon, space and line end, an empty
/// line.
fn head_bytes(head: &Parts) -> u64 {
    let target = head.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let fields: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    (head.method.as_str().len() + target + " HTTP/1.1\r\n".len() + 1 + fields + "\r\n".len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::clock;

    #[test]
    fn measurement_of_a_failure_has_its_reason_and_that_of_an_upstreams_status_has_none() {
        let peer = Peer { address: "192.0.2.7:1".parse().unwrap(), tls: None, certificate: None };
        let error = |outcome, refusal, status: u16| {
            let mut facts = RequestFacts::new(None, clock::read(), &peer, peer.address.ip());
            let (head, ()) = http::Request::new(()).into_parts();
            facts.head = Some(HeadFacts::new(&head, "/"));
            (facts.outcome, facts.refusal, facts.status) = (outcome, refusal, StatusCode::from_u16(status).ok());
            facts.measurement().unwrap().error
        };
        assert_eq!(error(Some(COMPLETED), None, 200), None);
        assert_eq!(error(Some(COMPLETED), None, 503), None, "the status is its own name");
        assert_eq!(error(Some("forbidden"), Some("insufficient_scope"), 403), None, "it is the client's doing");
        assert_eq!(error(Some("upstream_error"), Some("upstream_failed"), 502), Some("upstream_failed"));
        assert_eq!(error(Some("terminated"), None, 200), Some("terminated"));
        assert_eq!(error(None, None, 0), Some(ABORTED), "the client is gone");
        assert!(RequestFacts::new(None, clock::read(), &peer, peer.address.ip()).measurement().is_none());
    }

    #[test]
    fn first_reason_of_a_failure_counts() {
        let peer = Peer { address: "192.0.2.7:1".parse().unwrap(), tls: None, certificate: None };
        let mut facts = RequestFacts::new(None, clock::read(), &peer, peer.address.ip());
        assert!(!facts.has_failed());
        facts.fail("timeout");
        facts.fail("aborted");
        assert_eq!((facts.error, facts.has_failed()), (Some("timeout"), true));
    }
}
