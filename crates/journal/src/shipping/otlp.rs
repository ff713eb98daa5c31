//! Collector of OpenTelemetry as a sink: log records by OTLP over HTTP, in Protobuf.
//!
//! - A record is a log record with the name of event `keygate.audit`: its body is the record in JSON, its attributes
//!   are fields that collectors filter by. `log.record.uid` is its id, by which repeated deliveries are recognized.
//! - A checkpoint is a log record with the name of event `keygate.audit.checkpoint`: its body is the signed note.
//! - A collector that takes a request and rejects some of it is not asked again (OTLP specification, "Partial
//!   success"); the log says so, and how many. A request with a record that it refuses is sent in parts
//!   ([`super::isolation`]).

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use prost::Message as _;

use super::batch::Batch;
use super::message::Message;
use super::message_progress::MessageProgress;
use super::rejected_file::RejectedFile;
use super::settings::OtlpSettings;
use super::sink_error::SinkError;
use crate::audit::{JournalCheckpoint, Outcome, Record};
use platform::outbound::delivery::HttpPost;
use platform::outbound::delivery::otlp::{self, number, text};
use platform::tls;

/// Path of an endpoint that is given without one (OTLP specification, "OTLP/HTTP request").
pub const PATH: &str = "/v1/logs";
const EVENT: &str = "keygate.audit";
const CHECKPOINT_EVENT: &str = "keygate.audit.checkpoint";
const SERVICE: &str = "keygate";

/// A collector.
#[derive(Debug)]
pub(super) struct LogCollector {
    post: HttpPost,
    progress: MessageProgress,
}

impl LogCollector {
    pub(super) fn open(settings: &OtlpSettings) -> Result<Self, tls::Error> {
        let OtlpSettings { url, tls, timeout, headers } = settings;
        let post = HttpPost::open(url, tls, otlp::PROTOBUF, *timeout)?.with_fields(headers);
        Ok(Self { post, progress: MessageProgress::default() })
    }

    pub(super) fn target(&self) -> String {
        self.post.target().to_owned()
    }

    pub(super) fn disconnect(&mut self) {
        self.post.disconnect();
    }

    /// Sends the records of a batch, and then its checkpoints, request by request.
    pub(super) async fn deliver(&mut self, batch: &Batch, rejected: &mut RejectedFile) -> Result<(), SinkError> {
        let Self { post, progress } = self;
        let mut rejected_in_part = 0;
        let send = async |message: Message<'_>| {
            let logs = match message {
                Message::Records(records) => records.iter().map(log_record).collect(),
                Message::Checkpoints(checkpoints) => checkpoints.iter().map(checkpoint_record).collect(),
            };
            let answer = post.post(request(&batch.gateway, logs).encode_to_vec().into(), HeaderMap::new()).await?;
            rejected_in_part += rejected_records(post.target(), &answer);
            Ok(())
        };
        let delivered = progress.deliver(batch, rejected, send).await;
        rejected.count_refused(rejected_in_part);
        delivered
    }
}

/// Logs and returns how many records the collector has rejected of a request that it took. A body that is not that of
/// OTLP rejects nothing.
fn rejected_records(target: &str, answer: &[u8]) -> u64 {
    let partial = ExportLogsServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    let Some(partial) = partial.filter(|partial| partial.rejected_log_records > 0) else { return 0 };
    tracing::error!(
        target,
        records = partial.rejected_log_records,
        reason = partial.error_message,
        "the collector has rejected records of the audit; they are missing there"
    );
    partial.rejected_log_records.unsigned_abs()
}

fn request(gateway: &str, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let logs = ScopeLogs { scope: Some(otlp::scope()), log_records, schema_url: String::new() };
    let resource = otlp::resource(SERVICE, gateway);
    let logs = ResourceLogs { resource: Some(resource), scope_logs: vec![logs], schema_url: String::new() };
    ExportLogsServiceRequest { resource_logs: vec![logs] }
}

fn log_record(record: &Record) -> LogRecord {
    let nanos = record.time.0.saturating_mul(1000);
    let severity = severity(record.outcome);
    LogRecord {
        time_unix_nano: nanos,
        // The journal has observed it at this time, whenever it is delivered: the same record is the same bytes.
        observed_time_unix_nano: nanos,
        severity_number: severity.into(),
        severity_text: severity.as_str_name().trim_start_matches("SEVERITY_NUMBER_").to_owned(),
        body: Some(string(serde_json::to_string(record).expect("records have no maps"))),
        attributes: attributes(record),
        trace_id: record.trace_id.map(|id| id.bits().to_be_bytes().to_vec()).unwrap_or_default(),
        event_name: EVENT.to_owned(),
        ..LogRecord::default()
    }
}

/// A checkpoint as a log record: its body is the signed note.
fn checkpoint_record(checkpoint: &JournalCheckpoint) -> LogRecord {
    let JournalCheckpoint { gateway, time, origin, size, root, note } = checkpoint;
    let nanos = time.0.saturating_mul(1000);
    LogRecord {
        time_unix_nano: nanos,
        observed_time_unix_nano: nanos,
        severity_number: SeverityNumber::Info.into(),
        severity_text: "INFO".to_owned(),
        body: Some(string(note.clone())),
        attributes: vec![
            // A tree has one root for each size: a second one is a log record of its own.
            text("log.record.uid", format!("{origin}/{size}/{root}")),
            text("keygate.gateway", gateway.clone()),
            text("keygate.checkpoint.origin", origin.clone()),
            number("keygate.checkpoint.size", i64::try_from(*size).unwrap_or(i64::MAX)),
            text("keygate.checkpoint.root", root.clone()),
        ],
        event_name: CHECKPOINT_EVENT.to_owned(),
        ..LogRecord::default()
    }
}

fn severity(outcome: Outcome) -> SeverityNumber {
    match outcome {
        Outcome::InternalError | Outcome::UpstreamError => SeverityNumber::Error,
        Outcome::Refused(_) | Outcome::ClientError | Outcome::Unconfirmed | Outcome::InDoubt => SeverityNumber::Warn,
        _ => SeverityNumber::Info,
    }
}

/// Attributes of a log record, by which collectors filter: names of the semantic conventions, and `keygate.*`.
fn attributes(record: &Record) -> Vec<KeyValue> {
    let known = [
        ("log.record.uid", Some(record.id.to_string())),
        ("keygate.gateway", Some(record.gateway.clone())),
        ("keygate.action", Some(record.action.clone())),
        ("keygate.outcome", Some(record.outcome.name().to_owned())),
        ("keygate.key_id", record.key_id.map(|key| key.to_string())),
        ("keygate.org_id", record.org_id.map(|org| org.to_string())),
        ("keygate.actor", record.actor.clone()),
        ("keygate.subject", record.subject.map(|user| user.to_string())),
        ("keygate.token_id", record.token_id.map(|token| token.to_string())),
        ("keygate.budget", record.budget.clone()),
        ("user.id", record.user_id.map(|user| user.to_string())),
        ("client.address", record.ip.map(|ip| ip.to_string())),
        ("user_agent.original", record.user_agent.clone()),
        ("http.request.method", Some(record.method.clone())),
        ("url.path", Some(record.path.clone())),
    ];
    let texts = known.into_iter().filter_map(|(name, value)| Some(text(name, value?)));
    let numbers = [
        ("http.response.status_code", record.status.map(i64::from)),
        ("keygate.cost", record.cost.map(|cost| i64::try_from(cost).unwrap_or(i64::MAX))),
        ("keygate.count", Some(i64::try_from(record.uses()).unwrap_or(i64::MAX))),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some(number(name, value?)));
    texts.chain(numbers).collect()
}

fn string(text: String) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text)) }
}
