//! Queue of ended requests on their way to the exporter: bounded, and never waited for.

use std::sync::Arc;
use std::time::Duration;

use super::trace_facts::TraceFacts;
use crate::metrics::TraceMetrics;
use crate::outbound::delivery;
use crate::telemetry::request_facts::{HeadFacts, RequestFacts};

/// Time for which requests are collected, so that the exporter is not woken for each.
const COLLECT: Duration = Duration::from_secs(1);

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

/// The exporter's end of the queue.
pub(super) type QueueEnd = Arc<delivery::Queue<Box<TraceRecord>>>;

/// Sending end of the queue. Clones share it; dropping the last one closes the queue.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    records: QueueEnd,
    metrics: TraceMetrics,
}

impl Queue {
    /// A queue for so many requests, and its other end.
    pub(super) fn new(size: usize, metrics: TraceMetrics) -> (Self, QueueEnd) {
        let end = delivery::Queue::new(size, COLLECT);
        (Self(Arc::new(Shared { records: Arc::clone(&end), metrics })), end)
    }

    /// Hands a request to the exporter; counts its spans as dropped when the queue is full.
    pub(super) fn push(&self, record: Box<TraceRecord>) {
        if let Err(record) = self.0.records.push(record) {
            self.0.metrics.dropped_queue.inc_by(record.spans() as u64);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.records.close();
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Request, Version};

    use super::super::tracer::Tracer;
    use super::super::tracer::tests::{begin, settings};
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn full_queue_drops_a_request_and_counts_all_its_spans() {
        let metrics = Metrics::new().traces;
        let (queue, end) = Queue::new(1, metrics.clone());
        let tracer = Tracer::new(settings(), queue);
        for _ in 0..2 {
            let trace = begin(&tracer, Request::new(()), false);
            trace.begin_try(&mut HeaderMap::new(), &HeaderValue::from_static("a:1"), Version::HTTP_11);
        }
        assert_eq!(metrics.dropped_queue.get(), 2);
        drop(tracer);
        assert!(end.is_closed(), "with its last tracer");
        assert_eq!(end.wait_for_end(Duration::ZERO).unwrap().len(), 1);
    }
}
