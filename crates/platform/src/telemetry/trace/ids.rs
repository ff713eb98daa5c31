//! New ids of traces and spans.

use uuid::Uuid;

use domain::trace_context::{SpanId, TraceId};

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
