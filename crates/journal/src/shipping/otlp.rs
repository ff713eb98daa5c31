//! Collector of OpenTelemetry as a sink: log records by OTLP over HTTP, in Protobuf.
//!
//! - A record is a log record with the name of event `keygate.audit`: its body is the record in JSON, its attributes are
//!   fields that collectors filter by. `log.record.uid` is its id, by which repeated deliveries are recognized.
//! - A checkpoint is a log record with the name of event `keygate.audit.checkpoint`: its body is the signed note.
//! - A collector that takes a request and rejects some of it is not asked again (OTLP specification, "Partial success"); the
//!   log says so, and how many. A request with a record that it refuses is sent in parts ([`super::isolation`]).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::time::timeout;

use super::batch::Batch;
use super::message::Message;
use super::message_progress::MessageProgress;
use super::rejected_file::RejectedFile;
use super::settings::OtlpSettings;
use super::sink_error::SinkError;
use crate::audit::{JournalCheckpoint, Outcome, Record};
use platform::outbound::{HttpConnection, Server};
use platform::tls::{self, ClientTls};

/// Path of an endpoint that is given without one (OTLP specification, "OTLP/HTTP request").
pub const PATH: &str = "/v1/logs";
const EVENT: &str = "keygate.audit";
const CHECKPOINT_EVENT: &str = "keygate.audit.checkpoint";
const SERVICE: &str = "keygate";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// A collector.
#[derive(Debug)]
pub(super) struct LogCollector {
    sender: Sender,
    progress: MessageProgress,
}

/// Sender of requests. It keeps one connection.
#[derive(Debug)]
struct Sender {
    settings: OtlpSettings,
    server: Server,
    headers: HeaderMap,
    connection: Option<HttpConnection>,
}

impl LogCollector {
    pub(super) fn open(settings: OtlpSettings) -> Result<Self, tls::Error> {
        let url = &settings.url;
        let tls = url.is_encrypted().then(|| ClientTls::open(&settings.tls, &[]).map(Arc::new)).transpose()?;
        let server = Server { host: url.host().to_owned(), port: url.port(), tls };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(url.authority()).expect("an authority is visible ASCII"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("keygate/", env!("CARGO_PKG_VERSION"))));
        headers.insert(CONTENT_TYPE, PROTOBUF);
        for (name, value) in &settings.headers {
            // The configuration has checked it.
            let Ok(mut value) = HeaderValue::from_str(value.expose()) else { continue };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let sender = Sender { settings, server, headers, connection: None };
        Ok(Self { sender, progress: MessageProgress::default() })
    }

    pub(super) fn target(&self) -> String {
        self.sender.target()
    }

    pub(super) fn disconnect(&mut self) {
        self.sender.connection = None;
    }

    /// Sends the records of a batch, and then its checkpoints, request by request.
    pub(super) async fn deliver(&mut self, batch: &Batch, rejected: &mut RejectedFile) -> Result<(), SinkError> {
        let Self { sender, progress } = self;
        let mut rejected_in_part = 0;
        let send = async |message: Message<'_>| {
            let logs = match message {
                Message::Records(records) => records.iter().map(log_record).collect(),
                Message::Checkpoints(checkpoints) => checkpoints.iter().map(checkpoint_record).collect(),
            };
            rejected_in_part += sender.send(&batch.gateway, logs).await?;
            Ok(())
        };
        let delivered = progress.deliver(batch, rejected, send).await;
        rejected.count_refused(rejected_in_part);
        delivered
    }
}

impl Sender {
    fn target(&self) -> String {
        self.settings.url.authority().to_owned()
    }

    /// Sends a request, and returns how many of its records the collector has rejected, which took the others.
    async fn send(&mut self, gateway: &str, logs: Vec<LogRecord>) -> Result<u64, SinkError> {
        let body = request(gateway, logs).encode_to_vec();
        let limit = self.settings.timeout;
        let exchanged = timeout(limit, self.exchange(body.into())).await;
        let (status, answer) = exchanged.map_err(|_| SinkError::TimedOut(limit))??;
        if !status.is_success() {
            return Err(SinkError::Status(status));
        }
        Ok(self.note_rejected(&answer))
    }

    /// Sends a request over the connection that is kept, or a new one.
    async fn exchange(&mut self, body: Bytes) -> Result<(StatusCode, Bytes), SinkError> {
        // Taken, so that a request that is given up closes its connection.
        let mut connection = match self.connection.take().filter(HttpConnection::is_open) {
            Some(connection) => connection,
            None => HttpConnection::open(self.server.connect().await?).await?,
        };
        let mut request = Request::post(self.settings.url.target()).body(body).map_err(SinkError::Address)?;
        request.headers_mut().clone_from(&self.headers);
        let (head, answer) = connection.send(request).await?.into_parts();
        self.connection = Some(connection);
        Ok((head.status, answer))
    }

    /// Logs and returns what the collector has rejected of a request that it took. A body that is not that of OTLP rejects
    /// nothing.
    fn note_rejected(&self, answer: &[u8]) -> u64 {
        let partial = ExportLogsServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
        let Some(partial) = partial.filter(|partial| partial.rejected_log_records > 0) else { return 0 };
        tracing::error!(
            target = self.target(),
            records = partial.rejected_log_records,
            reason = partial.error_message,
            "the collector has rejected records of the audit; they are missing there"
        );
        partial.rejected_log_records.unsigned_abs()
    }
}

fn request(gateway: &str, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let attributes = vec![
        text("service.name", SERVICE),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", gateway),
    ];
    let scope = InstrumentationScope {
        name: SERVICE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let logs = ScopeLogs { scope: Some(scope), log_records, schema_url: String::new() };
    let resource = Resource { attributes, ..Resource::default() };
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
            text("log.record.uid", &format!("{origin}/{size}/{root}")),
            text("keygate.gateway", gateway),
            text("keygate.checkpoint.origin", origin),
            attribute("keygate.checkpoint.size", Value::IntValue(i64::try_from(*size).unwrap_or(i64::MAX))),
            text("keygate.checkpoint.root", root),
        ],
        event_name: CHECKPOINT_EVENT.to_owned(),
        ..LogRecord::default()
    }
}

fn severity(outcome: Outcome) -> SeverityNumber {
    match outcome {
        Outcome::InternalError | Outcome::UpstreamError => SeverityNumber::Error,
        Outcome::Refused(_) | Outcome::ClientError => SeverityNumber::Warn,
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
        ("user.id", record.user_id.map(|user| user.to_string())),
        ("client.address", record.ip.map(|ip| ip.to_string())),
        ("user_agent.original", record.user_agent.clone()),
        ("http.request.method", Some(record.method.clone())),
        ("url.path", Some(record.path.clone())),
    ];
    let texts = known.into_iter().filter_map(|(name, value)| Some(text(name, &value?)));
    let numbers = [
        ("http.response.status_code", record.status.map(i64::from)),
        ("keygate.count", Some(i64::try_from(record.uses()).unwrap_or(i64::MAX))),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some(attribute(name, Value::IntValue(value?))));
    texts.chain(numbers).collect()
}

fn text(name: &str, value: &str) -> KeyValue {
    attribute(name, Value::StringValue(value.to_owned()))
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn string(text: String) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(text)) }
}
