//! Queue of ended requests on their way to the exporter: bounded, and never waited for.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};

use super::record::TraceRecord;
use crate::metrics::TraceMetrics;

/// Sending end of the queue. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Before `_open`: when the exporter sees that it is closed, nothing more comes.
    records: mpsc::Sender<Box<TraceRecord>>,
    /// Wakes the exporter before its time.
    wake: Arc<Notify>,
    metrics: TraceMetrics,
    /// Closes when the last clone is dropped.
    _open: watch::Sender<()>,
}

/// The exporter's end of the queue.
pub(super) struct QueueEnd {
    pub(super) records: mpsc::Receiver<Box<TraceRecord>>,
    pub(super) wake: Arc<Notify>,
    pub(super) open: watch::Receiver<()>,
}

impl Queue {
    /// A queue for so many requests, and its other end.
    pub(super) fn new(size: usize, metrics: TraceMetrics) -> (Self, QueueEnd) {
        let (records, receiver) = mpsc::channel(size);
        let (open, is_open) = watch::channel(());
        let wake = Arc::new(Notify::new());
        let end = QueueEnd { records: receiver, wake: Arc::clone(&wake), open: is_open };
        (Self(Arc::new(Shared { records, wake, metrics, _open: open })), end)
    }

    /// Hands a request to the exporter; counts its spans as dropped when the queue is full.
    pub(super) fn push(&self, record: Box<TraceRecord>) {
        let Shared { records, wake, metrics, .. } = &*self.0;
        if let Err(error) = records.try_send(record) {
            let record = error.into_inner();
            metrics.dropped_queue.inc_by(record.spans() as u64);
        }
        // The exporter looks now and then. Waking it for each request would cost a system call each time.
        if records.capacity() < records.max_capacity() / 2 {
            wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use http::{HeaderMap, HeaderValue, Request, Version};

    use super::super::tracer::Tracer;
    use super::super::tracer::tests::{begin, settings, tracer};
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn full_queue_drops_a_request_and_counts_all_its_spans() {
        let metrics = Metrics::new().traces;
        let (queue, mut end) = Queue::new(1, metrics.clone());
        let tracer = Tracer::new(settings(), queue);
        for _ in 0..2 {
            let trace = begin(&tracer, Request::new(()), false);
            trace.begin_try(&mut HeaderMap::new(), &HeaderValue::from_static("a:1"), Version::HTTP_11);
        }
        assert_eq!(metrics.dropped_queue.get(), 2);
        assert!(end.records.try_recv().is_ok() && end.records.try_recv().is_err());
    }

    #[test]
    fn exporter_is_woken_when_the_queue_is_half_full_and_not_before() {
        let (tracer, end) = tracer(4);
        let push = || drop(begin(&tracer, Request::new(()), false));
        let is_woken = || end.wake.notified().now_or_never().is_some();
        push();
        push();
        assert!(!is_woken());
        push();
        assert!(is_woken());
    }
}
