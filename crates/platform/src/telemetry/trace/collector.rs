//! Collector: the destination of the spans of ended requests, which it takes in batches by OTLP over HTTP.
//!
//! A batch is sent again after 429, 502, 503 and 504, and when no answer came: with growing pauses, or after
//! `Retry-After`, until the time of the batch is up (OTLP specification, "Failures"). Then it is dropped and counted.

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use prost::Message as _;

use super::queue::TraceRecord;
use super::settings::Settings;
use super::span_data::push_spans;
use crate::metrics::TraceMetrics;
use crate::outbound::delivery::{Batch, Destination, Failure, HttpPost, otlp};

/// Spans of a batch, from which on it is sent.
const BATCH: usize = 512;

/// A collector.
#[derive(Debug)]
pub(super) struct Collector {
    post: HttpPost,
    resource: Resource,
    metrics: TraceMetrics,
}

impl Collector {
    pub(super) fn new(post: HttpPost, settings: &Settings, metrics: &TraceMetrics) -> Self {
        let resource = otlp::resource(&settings.service, &settings.instance);
        Self { post, resource, metrics: metrics.clone() }
    }

    /// The message of a batch.
    fn encode(&self, records: &[Box<TraceRecord>]) -> Vec<u8> {
        let mut spans = Vec::new();
        records.iter().for_each(|record| push_spans(record, &mut spans));
        let spans = ScopeSpans { scope: Some(otlp::scope()), spans, schema_url: String::new() };
        let spans = ResourceSpans {
            resource: Some(self.resource.clone()),
            scope_spans: vec![spans],
            schema_url: String::new(),
        };
        ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
    }

    /// Counts the spans of a batch that was taken, but for those that the collector has rejected.
    fn count_exported(&self, spans: u64, answer: &[u8]) {
        let (rejected, message) = rejected_spans(answer);
        let rejected = rejected.min(spans);
        self.metrics.dropped_rejected.inc_by(rejected);
        self.metrics.exported.inc_by(spans - rejected);
        if rejected > 0 {
            tracing::debug!(rejected, message, "the collector has rejected spans");
        }
    }
}

impl Destination for Collector {
    type Item = Box<TraceRecord>;

    async fn deliver(&mut self, batch: &mut Batch<Box<TraceRecord>>) -> Result<(), Failure> {
        let part = self.part_len(batch.rest());
        let records = &batch.rest()[..part];
        let message = self.encode(records).into();
        let answer = self.post.post(message, HeaderMap::new()).await;
        let answer = answer.map_err(|error| {
            let retry = error.retry();
            Failure::new(error, retry)
        })?;
        self.count_exported(count_spans(records), &answer);
        batch.advance(part);
        Ok(())
    }

    fn part_len(&self, rest: &[Box<TraceRecord>]) -> usize {
        let mut spans = 0;
        let fitting = rest.iter().take_while(|record| {
            let has_room = spans < BATCH;
            spans += record.spans();
            has_room
        });
        fitting.count()
    }

    fn count_lost(&self, records: &[Box<TraceRecord>]) {
        self.metrics.dropped_export.inc_by(count_spans(records));
    }

    fn log_failure(&self, failure: &Failure) {
        tracing::warn!(error = %failure, "cannot export traces; spans are dropped until the collector takes them");
    }

    fn log_recovery(&self) {
        tracing::info!("traces are exported again");
    }

    fn log_flush_timeout(&self) {
        tracing::warn!("the collector did not take the last spans in time; they are dropped");
    }
}

fn count_spans(records: &[Box<TraceRecord>]) -> u64 {
    records.iter().map(|record| record.spans() as u64).sum()
}

/// Spans that a collector has rejected of a batch that it took, and its reason. A body that is not that
/// of OTLP rejects none.
fn rejected_spans(answer: &[u8]) -> (u64, String) {
    let partial = ExportTraceServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    let partial = partial.unwrap_or_default();
    (u64::try_from(partial.rejected_spans).unwrap_or(0), partial.error_message)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn rejected_spans_are_read_of_the_answer() {
        let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".into() };
        let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(rejected_spans(&answer), (3, "too old".into()));
        for other in [&b""[..], b"{}", b"\xff\xff", &answer[..3]] {
            assert_eq!(rejected_spans(other).0, 0, "{other:?}");
        }
    }
}
