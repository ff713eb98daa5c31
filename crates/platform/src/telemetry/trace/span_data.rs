//! Spans of a request as messages of OTLP, under the names of OpenTelemetry's semantic conventions
//! for HTTP, version 1.30.
//!
//! - The name of a server span is the method and the pattern of the route: bounded, whatever clients send.
//! - Texts of the client are redacted: the secret of a key, wherever a client has put it, is not exported.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use http::{StatusCode, Version};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{Span, SpanFlags, Status};

use super::queue::TraceRecord;
use super::trace_facts::Try;
use crate::metrics::{OTHER_METHOD, known_method};
use crate::outbound::delivery::otlp::{number, text};
use domain::key;
use domain::trace_context::{SpanId, TraceId, TraceParent, TraceState};

/// Bytes of a path or a host that are exported at most.
const MAX_TEXT: usize = 1024;
/// Bytes of the state of a trace that are exported at most: those that every system takes (W3C, section 3.3.1.5).
const MAX_STATE: usize = 512;

/// Appends the spans of a request: the server span, then those of its tries.
pub(super) fn push_spans(record: &TraceRecord, spans: &mut Vec<Span>) {
    spans.push(server_span(record));
    let tries = record.trace.tries.iter().enumerate();
    spans.extend(tries.map(|(resends, attempt)| client_span(record, resends, attempt)));
}

fn server_span(record: &TraceRecord) -> Span {
    let method = known_method(&record.head.method);
    Span {
        parent_span_id: record.trace.parent.map_or_else(Vec::new, span_bytes),
        flags: flags(record.trace.is_sampled, record.trace.parent.is_some()),
        name: match &record.facts.pattern {
            Some(route) => format!("{} {route}", name_of(method)),
            None => name_of(method).to_owned(),
        },
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(start_time(record)),
        end_time_unix_nano: nanos(start_time(record) + record.facts.duration),
        attributes: server_attributes(record, method),
        links: record.trace.link.iter().map(link).collect(),
        status: Some(server_status(record)),
        ..span_of(record, record.trace.span_id)
    }
}

/// A span of the trace of a request.
fn span_of(record: &TraceRecord, span_id: SpanId) -> Span {
    Span {
        trace_id: trace_bytes(record.trace.trace_id),
        span_id: span_bytes(span_id),
        trace_state: exported_state(record.trace.state.as_ref()),
        ..Span::default()
    }
}

fn server_attributes(record: &TraceRecord, method: &'static str) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("http.request.method", method),
        text("url.scheme", if record.trace.is_encrypted { "https" } else { "http" }),
        text("url.path", record.head.path.truncated(MAX_TEXT).into_owned()),
        text("network.protocol.name", "http"),
        text("network.protocol.version", version(record.head.version)),
        text("client.address", record.facts.client.to_string()),
    ];
    if let Some(id) = record.facts.id {
        attributes.push(text("keygate.request.id", id.to_string()));
    }
    if let Some(route) = &record.facts.pattern {
        attributes.push(text("http.route", route.to_string()));
    }
    if let Some(host) = &record.trace.host {
        push_server(&mut attributes, &redacted(host));
    }
    if let Some(caller) = &record.facts.caller {
        attributes.extend(caller.key_id.map(|key| text("keygate.key.id", key.to_string())));
        attributes.push(text("keygate.org.id", caller.org_id.to_string()));
    }
    push_result(&mut attributes, record.facts.status, record.facts.error, StatusCode::is_server_error);
    attributes
}

/// `Error` for what is the gateway's or the upstream's doing: a refusal is the client's.
fn server_status(record: &TraceRecord) -> Status {
    let is_refused = record.facts.status.is_some_and(|status| status.is_client_error());
    match record.facts.error {
        Some(reason) if !is_refused => error_status(reason),
        _ if record.facts.status.is_some_and(|status| status.is_server_error()) => error_status(""),
        _ => Status::default(),
    }
}

fn error_status(reason: &str) -> Status {
    Status { code: SpanStatus::Error.into(), message: reason.to_owned() }
}

fn client_span(record: &TraceRecord, resends: usize, attempt: &Try) -> Span {
    let method = known_method(&record.head.method);
    let mut attributes = vec![
        text("http.request.method", method),
        text("network.protocol.name", "http"),
        text("network.protocol.version", version(attempt.version)),
    ];
    if resends > 0 {
        attributes.push(number("http.request.resend_count", i64::try_from(resends).unwrap_or(i64::MAX)));
    }
    push_server(&mut attributes, &String::from_utf8_lossy(attempt.host.as_bytes()));
    let error = attempt.error.map(|error| error.0);
    push_result(&mut attributes, attempt.status, error, |status| status.is_client_error() || status.is_server_error());
    let has_failed = attributes.iter().any(|attribute| attribute.key == "error.type");
    let ended = attempt.ended.map_or(start_time(record) + record.facts.duration, |ended| wall_time(record, ended));
    Span {
        parent_span_id: span_bytes(record.trace.span_id),
        flags: flags(record.trace.is_sampled, false),
        name: name_of(method).to_owned(),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: nanos(wall_time(record, attempt.begun)),
        end_time_unix_nano: nanos(ended),
        attributes,
        status: Some(if has_failed { error_status(error.unwrap_or_default()) } else { Status::default() }),
        ..span_of(record, attempt.span_id)
    }
}

/// Status of the response, and the reason of a failure: a name, else the status, if it is one.
fn push_result(
    attributes: &mut Vec<KeyValue>,
    status: Option<StatusCode>,
    error: Option<&'static str>,
    is_error: impl Fn(&StatusCode) -> bool,
) {
    if let Some(status) = status {
        attributes.push(number("http.response.status_code", i64::from(status.as_u16())));
    }
    match (error, status.filter(is_error)) {
        (Some(reason), _) => attributes.push(text("error.type", reason)),
        (None, Some(status)) => attributes.push(text("error.type", status.as_u16().to_string())),
        (None, None) => {}
    }
}

/// Host and port of an authority. A host without a port has that of its scheme, which `url.scheme` tells.
fn push_server(attributes: &mut Vec<KeyValue>, authority: &str) {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.contains(']') => (host, port.parse::<u16>().ok()),
        _ => (authority, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    attributes.push(text("server.address", host.to_owned()));
    attributes.extend(port.map(|port| number("server.port", i64::from(port))));
}

/// A method in the name of a span.
fn name_of(method: &'static str) -> &'static str {
    if method == OTHER_METHOD { "HTTP" } else { method }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

/// Text of a client without the secrets of keys, and not too long.
fn redacted(text: &[u8]) -> String {
    let redacted = key::redact(text);
    // Cut after the redaction, which finds a key only when most of it is there.
    String::from_utf8_lossy(&redacted[..redacted.len().min(MAX_TEXT)]).into_owned()
}

fn start_time(record: &TraceRecord) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(record.facts.time.0)
}

fn wall_time(record: &TraceRecord, time: Instant) -> SystemTime {
    start_time(record) + time.checked_duration_since(record.facts.begun).unwrap_or(Duration::ZERO)
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn link((parent, state): &(TraceParent, Option<TraceState>)) -> Link {
    Link {
        trace_id: trace_bytes(parent.trace_id),
        span_id: span_bytes(parent.span_id),
        trace_state: exported_state(state.as_ref()),
        flags: flags(parent.is_sampled, true),
        ..Link::default()
    }
}

/// Flags of W3C in the last byte, and whether the parent, or the linked span, is another service's.
fn flags(is_sampled: bool, is_remote: bool) -> u32 {
    let remote = if is_remote { SpanFlags::ContextIsRemoteMask as u32 } else { 0 };
    u32::from(is_sampled) | SpanFlags::ContextHasIsRemoteMask as u32 | remote
}

fn trace_bytes(id: TraceId) -> Vec<u8> {
    id.bits().to_be_bytes().to_vec()
}

fn span_bytes(id: SpanId) -> Vec<u8> {
    id.bits().to_be_bytes().to_vec()
}

/// The state of a trace; empty when it is too long, or has the secret of a key.
fn exported_state(state: Option<&TraceState>) -> String {
    let text = state.map(TraceState::as_str).filter(|text| text.len() <= MAX_STATE);
    text.filter(|text| matches!(key::redact(text.as_bytes()), Cow::Borrowed(_))).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Request};
    use opentelemetry_proto::tonic::common::v1::any_value::Value;

    use super::super::tracer::tests::record;
    use super::*;
    use crate::telemetry::ObservedRequest;
    use domain::trace_context::{TRACEPARENT, TRACESTATE};

    /// The spans of a request to which this happens.
    fn spans(request: Request<()>, happens: impl FnOnce(&ObservedRequest)) -> Vec<Span> {
        let mut spans = Vec::new();
        push_spans(&record(request, happens), &mut spans);
        spans
    }

    fn get(span: &Span, name: &str) -> String {
        let found = span.attributes.iter().find(|attribute| attribute.key == name);
        match found.and_then(|attribute| attribute.value.clone()?.value) {
            Some(Value::StringValue(text)) => text,
            Some(Value::IntValue(number)) => number.to_string(),
            _ => String::new(),
        }
    }

    #[test]
    fn names_of_spans_are_bounded() {
        let request = Request::builder().method("BREW").uri("/pot").body(()).unwrap();
        let span = &spans(request, |_| {})[0];
        assert_eq!((&*span.name, get(span, "http.request.method").as_str()), ("HTTP", "_OTHER"));
        assert_eq!(get(span, "url.scheme"), "https");
        let long = Request::get(format!("/{}", "a".repeat(5000))).body(()).unwrap();
        assert_eq!(get(&spans(long, |_| {})[0], "url.path").len(), MAX_TEXT);
    }

    #[test]
    fn authority_is_a_host_and_perhaps_a_port() {
        for (authority, address, port) in [
            ("a.test:8080", "a.test", "8080"),
            ("a.test", "a.test", ""),
            ("[::1]:8080", "::1", "8080"),
            ("[::1]", "::1", ""),
            ("a.test:", "a.test", ""),
        ] {
            let request = Request::get("/").header("host", authority).body(()).unwrap();
            let span = &spans(request, |_| {})[0];
            assert_eq!((get(span, "server.address").as_str(), get(span, "server.port").as_str()), (address, port));
        }
    }

    #[test]
    fn refusal_is_no_error_of_the_server_and_a_client_error_of_the_upstream_is_one_of_its_try() {
        let answered = |status, error: Option<&'static str>| {
            spans(Request::new(()), |trace| {
                trace.begin_try(&mut HeaderMap::new(), &HeaderValue::from_static("a:1"), Version::HTTP_11);
                trace.end_try(Ok(status));
                trace.note(|facts| (facts.status, facts.error) = (Some(status), error));
            })
        };
        let is_error = |span: &Span| span.status.as_ref().unwrap().code() == SpanStatus::Error;
        for (status, error, expected) in [
            (StatusCode::OK, None, [false, false]),
            (StatusCode::NOT_FOUND, None, [false, true]),
            (StatusCode::FORBIDDEN, Some("insufficient_scope"), [false, true]),
            (StatusCode::BAD_GATEWAY, None, [true, true]),
            (StatusCode::OK, Some("aborted"), [true, false]),
        ] {
            let found = answered(status, error);
            assert_eq!([is_error(&found[0]), is_error(&found[1])], expected, "{status} {error:?}");
        }
    }

    #[test]
    fn context_is_exported_with_its_flag_and_a_state_that_is_not_too_long() {
        let with = |flags: &str, state: &str| {
            let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
            let request = Request::get("/").header(TRACEPARENT, parent).header(TRACESTATE, state).body(()).unwrap();
            // Exported in any case, as it fails.
            let span = spans(request, |trace| trace.note(|facts| facts.fail("aborted"))).swap_remove(0);
            (span.flags & 1 == 1, span.trace_state)
        };
        assert_eq!(with("01", "a=1"), (true, "a=1".to_owned()));
        assert_eq!(with("00", "a=1"), (false, "a=1".to_owned()));
        let long = [format!("a={}", "x".repeat(254)), format!("b={}", "x".repeat(254))].join(",");
        assert_eq!(with("01", &long).1, "", "{} bytes", long.len());
        assert_eq!(with("01", &long[..MAX_STATE]).1, long[..MAX_STATE]);
    }
}
