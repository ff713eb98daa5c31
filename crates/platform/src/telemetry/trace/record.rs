//! Ended request whose spans are exported: handed from its worker to the exporter as it is.

use super::trace_facts::TraceFacts;
use crate::telemetry::request_facts::{HeadFacts, RequestFacts};

/// Ended request with a trace. Its head and its trace are beside the other facts, which no longer have them: every
/// traced request has both.
#[derive(Debug)]
pub(super) struct TraceRecord {
    pub(super) facts: RequestFacts,
    pub(super) head: HeadFacts,
    pub(super) trace: Box<TraceFacts>,
}

impl TraceRecord {
    /// Record of a request that has ended; none when its spans are not exported: its trace is not sampled, and it has
    /// not failed.
    pub(super) fn new(mut facts: RequestFacts) -> Option<Box<Self>> {
        let trace = facts.trace.take()?;
        let head = facts.head.take()?;
        (trace.is_sampled || facts.has_failed()).then(|| Box::new(Self { facts, head, trace }))
    }

    /// Number of its spans.
    pub(super) fn spans(&self) -> usize {
        1 + self.trace.tries.len()
    }
}
