//! Exporter: a thread that takes ended requests from the queue, and sends their spans to the collector in batches.
//!
//! - It looks into the queue once a second, and when the queue is half full.
//! - A batch that the collector does not take in time is dropped and counted; meanwhile the queue fills, and drops and counts.
//! - It ends when the last tracer is dropped, and the rest of the queue is sent: after [`FLUSH_TIMEOUT`] at most.

use std::convert::Infallible;
use std::sync::mpsc::{self as ended, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::collector::{Collector, Delivery};
use super::queue::{Queue, QueueEnd};
use super::record::TraceRecord;
use super::settings::Settings;
use super::span_data::push_spans;
use super::tracer::Tracer;
use crate::metrics::TraceMetrics;
use crate::tls::{self, ClientTls};

/// Time between two looks into the queue.
const INTERVAL: Duration = Duration::from_secs(1);
/// Spans of a batch, from which on it is sent.
const BATCH: usize = 512;
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
    /// The library refuses the settings.
    #[error("the exporter of traces refuses its settings")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The thread cannot be started.
    #[error("cannot start the thread that exports traces")]
    Thread(#[from] std::io::Error),
}

/// Exporters of the process: one for each configuration of traces, also of one that a reload has replaced. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct TraceExporters(Arc<Mutex<Vec<Running>>>);

/// Exporter whose thread was started.
#[derive(Debug)]
struct Running {
    /// Closed when the thread has ended.
    end: Receiver<Infallible>,
    /// TLS of connections to its collector; none without encryption.
    tls: Option<Arc<ClientTls>>,
}

/// Thread of an exporter.
struct Exporter {
    spans: SpanExporter,
    collector: Arc<Collector>,
    scope: InstrumentationScope,
    queue: mpsc::Receiver<Box<TraceRecord>>,
    wake: Arc<Notify>,
    metrics: TraceMetrics,
    /// True while the collector does not take spans, which is logged once.
    is_failing: bool,
}

/// Spans of a batch, counted as dropped unless the collector takes them.
struct Unsent<'a> {
    spans: u64,
    metrics: &'a TraceMetrics,
}

impl TraceExporters {
    /// Starts an exporter, and returns its tracer.
    ///
    /// # Errors
    /// [`StartError`]: a file cannot be used, or there is no thread.
    pub fn start(&self, settings: &Settings, metrics: &TraceMetrics) -> Result<Tracer, StartError> {
        let collector = Arc::new(Collector::new(settings)?);
        let tls = collector.tls();
        let spans = build(settings, &collector)?;
        let (queue, end) = Queue::new(settings.queue, metrics.clone());
        let tracer = Tracer::new(settings.clone(), queue);
        let scope = InstrumentationScope::builder("keygate").with_version(env!("CARGO_PKG_VERSION")).build();
        let QueueEnd { records: queue, wake, open } = end;
        let exporter = Exporter { spans, collector, scope, queue, wake, metrics: metrics.clone(), is_failing: false };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (running, end) = ended::channel();
        std::thread::Builder::new().name("traces".into()).spawn(move || {
            runtime.block_on(exporter.run(open));
            // Does not wait for the look-up of a host name.
            runtime.shutdown_background();
            drop(running);
        })?;
        let mut exporters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exporters.retain(|exporter| exporter.end.try_recv() == Err(TryRecvError::Empty));
        exporters.push(Running { end, tls });
        Ok(tracer)
    }

    /// The TLS of connections to all collectors, whose files are to be watched.
    pub fn tls(&self) -> Vec<Arc<ClientTls>> {
        let exporters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exporters.iter().filter_map(|exporter| exporter.tls.clone()).collect()
    }

    /// Waits until all exporters have sent what they can. Their tracers are dropped already.
    pub fn wait(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT + JOIN_TIMEOUT;
        let exporters = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for exporter in exporters {
            let rest = deadline.saturating_duration_since(Instant::now());
            if exporter.end.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("the exporter of traces has not ended in time; spans may be lost");
            }
        }
    }
}

/// The library's exporter. Fields and retries are the collector's own: the library takes some from environment variables, and
/// sleeps on the thread.
fn build(
    settings: &Settings,
    collector: &Arc<Collector>,
) -> Result<SpanExporter, opentelemetry_otlp::ExporterBuildError> {
    let builder = SpanExporter::builder().with_http().with_endpoint(settings.endpoint.uri().to_string());
    let builder = builder.with_protocol(Protocol::HttpBinary).with_timeout(settings.timeout);
    let builder = builder.with_retry_policy(RetryPolicy::disabled());
    let shared: Arc<dyn HttpClient> = Arc::<Collector>::clone(collector);
    let mut exporter = builder.with_shared_http_client(shared).build()?;
    let attributes = [
        KeyValue::new("service.name", settings.service.clone()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", settings.instance.clone()),
    ];
    exporter.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
    Ok(exporter)
}

impl Exporter {
    /// Exports until the last tracer is dropped, and then the rest.
    async fn run(mut self, open: watch::Receiver<()>) {
        let timed_out = async {
            wait_until_closed(open.clone()).await;
            sleep(FLUSH_TIMEOUT).await;
        };
        let is_flushed = tokio::select! {
            () = self.export_until_closed(open.clone()) => true,
            () = timed_out => false,
        };
        if !is_flushed {
            tracing::warn!("the collector did not take the last spans in time; they are dropped");
            while let Ok(record) = self.queue.try_recv() {
                self.metrics.dropped_export.inc_by(record.spans() as u64);
            }
        }
    }

    async fn export_until_closed(&mut self, open: watch::Receiver<()>) {
        loop {
            let wake = Arc::clone(&self.wake);
            // Looked at before the queue: nothing comes after the last tracer was dropped.
            let is_closed = tokio::select! {
                biased;
                () = wait_until_closed(open.clone()) => true,
                () = wake.notified() => false,
                () = sleep(INTERVAL) => false,
            };
            self.export_queue().await;
            if is_closed {
                return;
            }
        }
    }

    /// Exports what is in the queue.
    async fn export_queue(&mut self) {
        loop {
            let mut batch = Vec::new();
            while batch.len() < BATCH
                && let Ok(record) = self.queue.try_recv()
            {
                push_spans(&record, &self.scope, &mut batch);
            }
            if batch.is_empty() {
                return;
            }
            self.export(batch).await;
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let mut unsent = Unsent { spans: batch.len() as u64, metrics: &self.metrics };
        let exported = self.spans.export(batch).await;
        let Delivery { rejected, message, failure } = self.collector.take_delivery();
        if exported.is_ok() && failure.is_none() {
            unsent.accept(rejected);
        }
        drop(unsent);
        // The library's error has less to say than the collector's.
        let failure = failure.or_else(|| exported.err().map(|error| error.to_string()));
        self.log(failure, rejected, message);
    }

    /// Logs when the collector begins to refuse spans, and when it takes them again.
    fn log(&mut self, failure: Option<String>, rejected: u64, message: String) {
        let was_failing = std::mem::replace(&mut self.is_failing, failure.is_some());
        match failure {
            Some(error) if !was_failing => {
                tracing::warn!(error, "cannot export traces; spans are dropped until the collector takes them");
            }
            None if was_failing => tracing::info!("traces are exported again"),
            None if rejected > 0 => tracing::debug!(rejected, message, "the collector has rejected spans"),
            _ => {}
        }
    }
}

impl Unsent<'_> {
    /// Counts the batch as exported, but for the spans that the collector has rejected.
    fn accept(&mut self, rejected: u64) {
        let spans = std::mem::take(&mut self.spans);
        let rejected = rejected.min(spans);
        self.metrics.dropped_rejected.inc_by(rejected);
        self.metrics.exported.inc_by(spans - rejected);
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.metrics.dropped_export.inc_by(self.spans);
    }
}

/// Completes when the last tracer is dropped.
async fn wait_until_closed(mut open: watch::Receiver<()>) {
    while open.changed().await.is_ok() {}
}
