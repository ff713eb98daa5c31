//! Exporters: each is a thread that takes ended requests from the queue of a tracer, and sends their
//! spans to the collector.
//!
//! - It takes what has come together a second after the first request, and when the queue is half full.
//! - A batch that the collector does not take in time is dropped and counted; meanwhile the queue fills,
//!   and drops and counts.
//! - It ends when the last tracer is dropped, and the rest of the queue is sent: after [`FLUSH_TIMEOUT`] at most.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::collector::Collector;
use super::queue::{Queue, QueueEnd};
use super::settings::Settings;
use super::tracer::Tracer;
use crate::metrics::TraceMetrics;
use crate::outbound::delivery::otlp::PROTOBUF;
use crate::outbound::delivery::{Backoff, HttpPost, RetryPolicy, Worker};
use crate::tls::{self, ClientTls};

/// Pauses before the first retry, and the longest one, before their jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time in which the rest of the queue must be sent when the gateway stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Time beyond that for its thread to end.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why an exporter cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file for connections to the collector cannot be used.
    #[error("{}", .0.in_full())]
    Tls(#[from] tls::Error),
    /// The thread cannot be started.
    #[error("cannot start the thread that exports traces")]
    Thread(#[from] std::io::Error),
}

/// Exporters of the process: one for each configuration of traces, also of one that a reload has
/// replaced. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct TraceExporters(Arc<Mutex<Vec<Running>>>);

/// Exporter whose thread was started.
#[derive(Debug)]
struct Running {
    queue: QueueEnd,
    /// TLS of connections to its collector; none without encryption.
    tls: Option<Arc<ClientTls>>,
}

impl TraceExporters {
    /// Starts an exporter, and returns its tracer.
    ///
    /// # Errors
    /// [`StartError`]: a file cannot be used, or there is no thread.
    pub fn start(&self, settings: &Settings, metrics: &TraceMetrics) -> Result<Tracer, StartError> {
        let post = HttpPost::open(settings.endpoint.url(), &settings.tls, PROTOBUF, settings.timeout)?;
        let post = post.with_fields(&settings.headers);
        let tls = post.tls();
        let (queue, end) = Queue::new(settings.queue, metrics.clone());
        let policy = RetryPolicy {
            pauses: Backoff::between(FIRST_PAUSE, LONGEST_PAUSE),
            give_up_after: Some(settings.timeout),
            flush: FLUSH_TIMEOUT,
            retries_when_closed: true,
        };
        Worker::start("traces", &end, Collector::new(post, settings, metrics), policy)?;
        let mut exporters = self.0.lock();
        exporters.retain(|exporter| !exporter.queue.has_ended());
        exporters.push(Running { queue: end, tls });
        Ok(Tracer::new(settings.clone(), queue))
    }

    /// The TLS of connections to all collectors, whose files are to be watched.
    pub fn tls(&self) -> Vec<Arc<ClientTls>> {
        let exporters = self.0.lock();
        exporters.iter().filter_map(|exporter| exporter.tls.clone()).collect()
    }

    /// Waits until all exporters have sent what they can. Their tracers are dropped already.
    pub fn wait(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT + JOIN_TIMEOUT;
        let exporters = std::mem::take(&mut *self.0.lock());
        for exporter in exporters {
            if exporter.queue.wait_for_end(deadline.saturating_duration_since(Instant::now())).is_some() {
                tracing::warn!("the exporter of traces has not ended in time; spans may be lost");
            }
        }
    }
}
