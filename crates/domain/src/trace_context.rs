//! Trace context: the fields `traceparent` and `tracestate` of the W3C Recommendation "Trace Context", level 1.
//!
//! - A `traceparent` that breaks a rule of the Recommendation is as good as none, and so is one that is there twice.
//! - A `tracestate` that breaks a rule is left out, and the `traceparent` beside it counts all the same.
//! - A later version of `traceparent` is read by the fields that it shares with version 00 (section 3.2.4).
//! - Other tracing systems have fields of their own ([`is_foreign_field`]): beside the gateway's `traceparent` they
//!   would name another trace, of the client's choice, and an upstream may prefer them.

mod state;

use std::fmt;
use std::num::{NonZero, NonZeroU64, NonZeroU128};
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use state::TraceState;

/// `traceparent`.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `tracestate`.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// W3C Baggage: what callers say to all that serve the trace.
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Fields of other tracing systems: Zipkin (`b3`), Jaeger, Google Cloud, AWS X-Ray, OpenCensus, Elastic APM, New Relic,
/// Sentry.
const FOREIGN: &[&str] = &[
    "b3",
    "elastic-apm-traceparent",
    "grpc-tags-bin",
    "grpc-trace-bin",
    "jaeger-baggage",
    "jaeger-debug-id",
    "newrelic",
    "sentry-trace",
    "uber-trace-id",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
];
/// Prefixes of such fields: Zipkin, Jaeger's baggage, Datadog, OpenTracing, LightStep, SkyWalking.
const FOREIGN_PREFIXES: &[&str] = &["x-b3-", "uberctx-", "x-datadog-", "ot-baggage-", "ot-tracer-", "x-ot-", "sw8"];

/// Bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Bit of the flags that says that the caller has recorded the trace.
const SAMPLED: u8 = 1;

/// Id of a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// Id of a span: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

/// Content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Trace.
    pub trace_id: TraceId,
    /// Span of the caller.
    pub span_id: SpanId,
    /// True if the caller has recorded the trace.
    pub is_sampled: bool,
}

/// Text that is not a trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a trace id: 32 lower-case hexadecimal digits, not all zero")]
pub struct InvalidTraceId;

/// Trace context of a received head; none when it has no valid `traceparent`.
pub fn read(headers: &HeaderMap) -> Option<(TraceParent, Option<TraceState>)> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = TraceParent::parse(parents.next()?.as_bytes()).filter(|_| parents.next().is_none())?;
    Some((parent, TraceState::read(headers)))
}

/// Returns whether a field hands on the trace of a system other than the W3C's.
pub fn is_foreign_field(name: &HeaderName) -> bool {
    let name = name.as_str();
    FOREIGN.contains(&name) || FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl TraceId {
    /// The id with these bits; none when all are zero.
    pub fn from_bits(bits: u128) -> Option<Self> {
        NonZero::new(bits).map(Self)
    }

    /// The bits of the id, in network byte order.
    pub fn bits(self) -> u128 {
        self.0.get()
    }
}

impl SpanId {
    /// The id with these bits; none when all are zero.
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZero::new(bits).map(Self)
    }

    /// The bits of the id, in network byte order.
    pub fn bits(self) -> u64 {
        self.0.get()
    }
}

impl TraceParent {
    /// Parses the value of a field. White space around it is no part of the value (RFC 9110, section 5.5).
    fn parse(value: &[u8]) -> Option<Self> {
        let value = trim(value);
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let [v, version, b'-', ids @ ..] = known else { return None };
        let version = hexadecimal(&[*v, *version])?;
        // Version 00 has no more fields; a later one may have, behind a dash. Version ff is forbidden.
        let is_whole = rest.is_empty() || version != 0 && rest[0] == b'-';
        if version == 0xff || !is_whole {
            return None;
        }
        let trace_id = &ids[..32];
        let span_id = &ids[33..49];
        let flags = &ids[50..52];
        let has_dashes = ids[32] == b'-' && ids[49] == b'-';
        let flags = u8::try_from(hexadecimal(flags)?).ok()?;
        has_dashes.then_some(Self {
            trace_id: TraceId::from_bits(hexadecimal(trace_id)?)?,
            span_id: SpanId::from_bits(u64::try_from(hexadecimal(span_id)?).ok()?)?,
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// The value of the field. Flags other than the sampled one are zero (section 3.2.2.5.2).
    pub fn header(&self) -> HeaderValue {
        let text = format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled));
        let mut value = HeaderValue::try_from(text).expect("hexadecimal digits and dashes are visible ASCII");
        // It never comes again: HTTP/2 is not to keep it in its table (RFC 7541, section 6.2.3).
        value.set_sensitive(true);
        value
    }
}

/// Number of lower-case hexadecimal digits, 32 at most.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// A value without the spaces and tabs around it.
fn trim(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let start = value.iter().position(is_text).unwrap_or(value.len());
    let end = value.iter().rposition(is_text).map_or(start, |last| last + 1);
    &value[start..end]
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.bits())
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.bits())
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

impl FromStr for TraceId {
    type Err = InvalidTraceId;

    fn from_str(text: &str) -> Result<Self, InvalidTraceId> {
        let bits = if text.len() == 32 { hexadecimal(text.as_bytes()) } else { None };
        bits.and_then(Self::from_bits).ok_or(InvalidTraceId)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parse(value: &str) -> Option<TraceParent> {
        TraceParent::parse(value.as_bytes())
    }

    /// The grammar of section 3.2, written down once more as a program that reads one field after the other.
    fn is_valid_by_the_grammar(value: &str) -> bool {
        let is_hexadecimal =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let is_id =
            |text: &str, length| text.len() == length && is_hexadecimal(text) && text.bytes().any(|byte| byte != b'0');
        let parts: Vec<&str> = value.splitn(5, '-').collect();
        let [version, trace, span, flags, further @ ..] = &parts[..] else { return false };
        let is_version = version.len() == 2 && is_hexadecimal(version) && *version != "ff";
        let is_flags = flags.len() == 2 && is_hexadecimal(flags);
        is_version && is_id(trace, 32) && is_id(span, 16) && is_flags && (further.is_empty() || *version != "00")
    }

    #[test]
    fn examples_of_the_recommendation_are_read_and_written() {
        let sampled = parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!((sampled.trace_id.to_string(), sampled.span_id.to_string()), (TRACE.to_owned(), SPAN.to_owned()));
        assert!(sampled.is_sampled);
        assert_eq!(sampled.header(), format!("00-{TRACE}-{SPAN}-01"));
        let unsampled = parse(&format!(" 00-{TRACE}-{SPAN}-00\t")).unwrap();
        assert_eq!(unsampled, TraceParent { is_sampled: false, ..sampled });
        assert_eq!(unsampled.header(), format!("00-{TRACE}-{SPAN}-00"));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-ff")), Some(sampled), "flags that are not known are ignored");
        for later in ["cc-T-S-01", "cc-T-S-01-", "cc-T-S-01-what-the-future-holds"] {
            assert_eq!(parse(&later.replace('T', TRACE).replace('S', SPAN)), Some(sampled), "{later}");
        }
    }

    #[test]
    fn written_traceparent_is_in_no_table_of_http2() {
        let written = parse(&format!("00-{TRACE}-{SPAN}-01")).unwrap().header();
        assert!(written.is_sensitive());
    }

    #[test]
    fn invalid_traceparent_is_none() {
        let zeros = "0".repeat(32);
        for value in [
            "",
            "00",
            "ff-T-S-01",
            "0-T-S-01",
            "00-T-S",
            "00-T-S-1",
            "00-T-S-01-",
            "00-T-S-01-more",
            "cc-T-S-01.",
            "cc-T-S-011",
            "00_T_S_01",
            "00-T-S-0g",
            "0G-T-S-01",
            "00 -T-S-01",
        ] {
            assert_eq!(parse(&value.replace('T', TRACE).replace('S', SPAN)), None, "{value}");
        }
        assert_eq!(parse(&format!("00-{zeros}-{SPAN}-01")), None);
        assert_eq!(parse(&format!("00-{TRACE}-{}-01", &zeros[..16])), None);
        assert_eq!(parse(&format!("00-{}-{SPAN}-01", TRACE.to_uppercase())), None);
    }

    #[test]
    fn second_traceparent_makes_both_invalid() {
        let value: HeaderValue = format!("00-{TRACE}-{SPAN}-01").parse().unwrap();
        let mut headers = HeaderMap::new();
        assert!(read(&headers).is_none());
        headers.append(TRACEPARENT, value.clone());
        assert!(read(&headers).is_some());
        headers.append(TRACEPARENT, value);
        assert!(read(&headers).is_none());
    }

    #[test]
    fn fields_of_other_tracing_systems_are_found() {
        let is_foreign = |name: &str| is_foreign_field(&HeaderName::try_from(name).unwrap());
        for name in ["b3", "X-B3-SpanId", "Uber-Trace-Id", "X-Cloud-Trace-Context", "x-datadog-parent-id", "sw8-x"] {
            assert!(is_foreign(name), "{name}");
        }
        for name in ["traceparent", "tracestate", "baggage", "b33", "x-b3", "x-trace", "x-request-id", "trace-id"] {
            assert!(!is_foreign(name), "{name}");
        }
    }

    #[test]
    fn trace_id_is_read_as_it_is_shown() {
        let id: TraceId = TRACE.parse().unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{TRACE}\""));
        assert_eq!(serde_json::from_str::<TraceId>(&format!("\"{TRACE}\"")).unwrap(), id);
        for wrong in ["", "0", &TRACE[1..], &TRACE.to_uppercase(), &"0".repeat(32)] {
            assert_eq!(wrong.parse::<TraceId>(), Err(InvalidTraceId), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn traceparent_is_accepted_exactly_by_the_grammar(
            valid in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,9})?",
            changes in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9a-gA-F_.]"), 0..3),
            length in prop::option::weighted(0.2, 0_usize..70),
        ) {
            let mut value = valid.into_bytes();
            for (at, byte) in changes {
                *at.get_mut(&mut value) = byte.as_bytes()[0];
            }
            value.truncate(length.unwrap_or(usize::MAX));
            let value = String::from_utf8(value).unwrap();
            prop_assert_eq!(parse(&value).is_some(), is_valid_by_the_grammar(&value), "{}", value);
        }

        #[test]
        fn traceparent_comes_back_as_it_was_written(trace in 1..=u128::MAX, span in 1..=u64::MAX, is_sampled: bool) {
            let trace_id = TraceId::from_bits(trace).unwrap();
            let span_id = SpanId::from_bits(span).unwrap();
            let parent = TraceParent { trace_id, span_id, is_sampled };
            prop_assert_eq!(TraceParent::parse(parent.header().as_bytes()), Some(parent));
        }

        #[test]
        fn any_bytes_are_read_or_not(value in prop::collection::vec(any::<u8>(), 0..80)) {
            TraceParent::parse(&value);
        }
    }
}
