//! Spans of a request, under the names of OpenTelemetry's semantic conventions for HTTP, version 1.30.
//!
//! - The name of a server span is the method and the pattern of the route: bounded, whatever clients send.
//! - Texts of the client are redacted: the secret of a key, wherever a client has put it, is not exported.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use http::{Method, StatusCode, Version};
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceFlags, TraceState as OtelState};
use opentelemetry::{InstrumentationScope, KeyValue, trace};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::record::TraceRecord;
use super::trace_facts::Try;
use domain::key;
use domain::trace_context::{SpanId, TraceId, TraceParent, TraceState};

/// Bytes of a path or a host that are exported at most.
const MAX_TEXT: usize = 1024;
/// Bytes of the state of a trace that are exported at most: those that every system takes (W3C, section 3.3.1.5).
const MAX_STATE: usize = 512;
/// `http.request.method` of other methods than those of RFC 9110 and PATCH.
const OTHER_METHOD: &str = "_OTHER";

/// Appends the spans of a request: the server span, then those of its tries.
pub(super) fn push_spans(record: &TraceRecord, scope: &InstrumentationScope, spans: &mut Vec<SpanData>) {
    spans.push(server_span(record, scope));
    let tries = record.trace.tries.iter().enumerate();
    spans.extend(tries.map(|(number, attempt)| client_span(record, number, attempt, scope)));
}

fn server_span(record: &TraceRecord, scope: &InstrumentationScope) -> SpanData {
    let method = known_method(&record.head.method);
    let name: Cow<'static, str> = match &record.facts.pattern {
        Some(route) => format!("{} {route}", name_of(method)).into(),
        None => name_of(method).into(),
    };
    let mut links = SpanLinks::default();
    links.links.extend(record.trace.link.as_ref().map(link));
    SpanData {
        span_context: context(record, record.trace.span_id),
        parent_span_id: record.trace.parent.map_or(trace::SpanId::INVALID, otel_span_id),
        parent_span_is_remote: record.trace.parent.is_some(),
        span_kind: SpanKind::Server,
        name,
        start_time: start_time(record),
        end_time: start_time(record) + record.facts.duration,
        attributes: server_attributes(record, method),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: server_status(record),
        instrumentation_scope: scope.clone(),
    }
}

fn server_attributes(record: &TraceRecord, method: &'static str) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("http.request.method", method),
        KeyValue::new("url.scheme", if record.trace.is_encrypted { "https" } else { "http" }),
        KeyValue::new("url.path", record.head.path.truncated(MAX_TEXT).into_owned()),
        KeyValue::new("network.protocol.name", "http"),
        KeyValue::new("network.protocol.version", version(record.head.version)),
        KeyValue::new("client.address", record.facts.client.to_string()),
    ];
    if let Some(id) = record.facts.id {
        attributes.push(KeyValue::new("keygate.request.id", id.to_string()));
    }
    if let Some(route) = &record.facts.pattern {
        attributes.push(KeyValue::new("http.route", route.to_string()));
    }
    if let Some(host) = &record.trace.host {
        push_server(&mut attributes, &redacted(host));
    }
    if let Some(caller) = &record.facts.caller {
        attributes.extend(caller.key_id.map(|key| KeyValue::new("keygate.key.id", key.to_string())));
        attributes.push(KeyValue::new("keygate.org.id", caller.org_id.to_string()));
    }
    push_result(&mut attributes, record.facts.status, record.facts.error, StatusCode::is_server_error);
    attributes
}

/// `Error` for what is the gateway's or the upstream's doing: a refusal is the client's.
fn server_status(record: &TraceRecord) -> Status {
    let is_refused = record.facts.status.is_some_and(|status| status.is_client_error());
    match record.facts.error {
        Some(reason) if !is_refused => Status::error(reason),
        _ if record.facts.status.is_some_and(|status| status.is_server_error()) => Status::error(""),
        _ => Status::Unset,
    }
}

fn client_span(record: &TraceRecord, number: usize, attempt: &Try, scope: &InstrumentationScope) -> SpanData {
    let method = known_method(&record.head.method);
    let mut attributes = vec![
        KeyValue::new("http.request.method", method),
        KeyValue::new("network.protocol.name", "http"),
        KeyValue::new("network.protocol.version", version(attempt.version)),
    ];
    if number > 0 {
        attributes.push(KeyValue::new("http.request.resend_count", i64::try_from(number).unwrap_or(i64::MAX)));
    }
    push_server(&mut attributes, &String::from_utf8_lossy(attempt.host.as_bytes()));
    let error = attempt.error.map(|error| error.0);
    push_result(&mut attributes, attempt.status, error, |status| status.is_client_error() || status.is_server_error());
    let has_failed = attributes.iter().any(|attribute| attribute.key.as_str() == "error.type");
    SpanData {
        span_context: context(record, attempt.span_id),
        parent_span_id: otel_span_id(record.trace.span_id),
        parent_span_is_remote: false,
        span_kind: SpanKind::Client,
        name: name_of(method).into(),
        start_time: wall_time(record, attempt.begun),
        end_time: attempt.ended.map_or(start_time(record) + record.facts.duration, |ended| wall_time(record, ended)),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: if has_failed { Status::error(error.unwrap_or_default()) } else { Status::Unset },
        instrumentation_scope: scope.clone(),
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
        attributes.push(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
    }
    match (error, status.filter(is_error)) {
        (Some(reason), _) => attributes.push(KeyValue::new("error.type", reason)),
        (None, Some(status)) => attributes.push(KeyValue::new("error.type", status.as_u16().to_string())),
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
    attributes.push(KeyValue::new("server.address", host.to_owned()));
    attributes.extend(port.map(|port| KeyValue::new("server.port", i64::from(port))));
}

/// A method that everybody knows; a client can send any other, and names of spans are bounded.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER_METHOD)
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

fn link((parent, state): &(TraceParent, Option<TraceState>)) -> Link {
    let flags = flags(parent.is_sampled);
    let (trace_id, span_id) = (otel_trace_id(parent.trace_id), otel_span_id(parent.span_id));
    Link::with_context(SpanContext::new(trace_id, span_id, flags, true, otel_state(state.as_ref())))
}

fn context(record: &TraceRecord, span_id: SpanId) -> SpanContext {
    let (trace_id, flags) = (otel_trace_id(record.trace.trace_id), flags(record.trace.is_sampled));
    SpanContext::new(trace_id, otel_span_id(span_id), flags, false, otel_state(record.trace.state.as_ref()))
}

fn flags(is_sampled: bool) -> TraceFlags {
    if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() }
}

fn otel_trace_id(id: TraceId) -> trace::TraceId {
    trace::TraceId::from_bytes(id.bits().to_be_bytes())
}

fn otel_span_id(id: SpanId) -> trace::SpanId {
    trace::SpanId::from_bytes(id.bits().to_be_bytes())
}

/// The state of a trace; empty when it is too long, or has the secret of a key.
fn otel_state(state: Option<&TraceState>) -> OtelState {
    let text = state.map(TraceState::as_str).filter(|text| text.len() <= MAX_STATE);
    let text = text.filter(|text| matches!(key::redact(text.as_bytes()), Cow::Borrowed(_)));
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Request};

    use super::super::tracer::tests::record;
    use super::*;
    use crate::telemetry::ObservedRequest;
    use domain::trace_context::{TRACEPARENT, TRACESTATE};

    /// The spans of a request to which this happens.
    fn spans(request: Request<()>, happens: impl FnOnce(&ObservedRequest)) -> Vec<SpanData> {
        let (mut spans, scope) = (Vec::new(), InstrumentationScope::builder("keygate").build());
        push_spans(&record(request, happens), &scope, &mut spans);
        spans
    }

    fn get(span: &SpanData, name: &str) -> String {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.map_or_else(String::new, |attribute| attribute.value.as_str().into_owned())
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
        let is_error = |span: &SpanData| matches!(span.status, Status::Error { .. });
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
            (span.span_context.is_sampled(), span.span_context.trace_state().header())
        };
        assert_eq!(with("01", "a=1"), (true, "a=1".to_owned()));
        assert_eq!(with("00", "a=1"), (false, "a=1".to_owned()));
        let long = [format!("a={}", "x".repeat(254)), format!("b={}", "x".repeat(254))].join(",");
        assert_eq!(with("01", &long).1, "", "{} bytes", long.len());
        assert_eq!(with("01", &long[..MAX_STATE]).1, long[..MAX_STATE]);
    }
}
