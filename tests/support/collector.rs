//! A collector of traces: takes OTLP over HTTP, decodes it, and answers as the test says.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

use super::{HyperOptions, HyperUpstream, until};

/// A collector on a port of its own.
pub struct Collector {
    server: HyperUpstream,
    received: Arc<Mutex<Vec<Export>>>,
}

/// A request to the collector.
#[derive(Clone, Debug)]
pub struct Export {
    pub path: String,
    pub headers: HeaderMap,
    pub bytes: Bytes,
    pub is_taken: bool,
}

/// A span, with its attributes as text.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    pub resource: BTreeMap<String, String>,
    pub attributes: BTreeMap<String, String>,
    pub span: Span,
}

/// Answer to a request.
type Answer = Response<Full<Bytes>>;

impl Collector {
    /// Takes all spans.
    pub fn start() -> Self {
        Self::answering(HyperOptions::http1(), |_| status(200))
    }

    /// Answers the request with each number, from 0 on, like this. Spans are taken with a status of 200.
    pub fn answering(options: HyperOptions, answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&received), Arc::new(answer));
        let server = options.start(move |request: Request<Incoming>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (head, body) = request.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                let number = log.lock().unwrap().len();
                let answer = answer(number);
                let is_taken = answer.status() == 200;
                let (path, headers) = (head.uri.path().to_owned(), head.headers);
                log.lock().unwrap().push(Export { path, headers, bytes, is_taken });
                Ok::<_, Infallible>(answer)
            }
        });
        Self { server, received }
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The block `telemetry` of a gateway that exports to this collector.
    pub fn telemetry(&self, traces: &str) -> String {
        format!("telemetry: {{ traces: {{ endpoint: 'http://{}', {traces} }} }}\n", self.address())
    }

    pub fn received(&self) -> Vec<Export> {
        self.received.lock().unwrap().clone()
    }

    /// Number of connections accepted.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }

    /// The spans that were taken so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.received().iter().filter(|export| export.is_taken).flat_map(Export::spans).collect()
    }

    /// Waits for so many spans, and returns all.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<ReceivedSpan> {
        until("the collector has the spans", || Some(self.spans()).filter(|spans| spans.len() >= count))
    }
}

impl Export {
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        let request = ExportTraceServiceRequest::decode(self.bytes.clone()).unwrap();
        let mut spans = Vec::new();
        for of_resource in request.resource_spans {
            let resource = attributes(&of_resource.resource.unwrap().attributes);
            for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                spans.push(ReceivedSpan { resource: resource.clone(), attributes: attributes(&span.attributes), span });
            }
        }
        spans
    }
}

impl ReceivedSpan {
    pub fn is_server(&self) -> bool {
        self.span.kind() == SpanKind::Server
    }

    pub fn trace_id(&self) -> String {
        hexadecimal(&self.span.trace_id)
    }

    pub fn id(&self) -> String {
        hexadecimal(&self.span.span_id)
    }

    pub fn parent(&self) -> String {
        hexadecimal(&self.span.parent_span_id)
    }

    /// An attribute; empty when there is none.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// An answer without a body.
pub fn status(status: u16) -> Answer {
    Response::builder().status(status).body(Full::default()).unwrap()
}

/// An answer that takes a batch, but for some spans.
pub fn rejecting(rejected_spans: i64) -> Answer {
    let partial = ExportTracePartialSuccess { rejected_spans, error_message: "too many".into() };
    let answer = ExportTraceServiceResponse { partial_success: Some(partial) };
    Response::new(Full::from(answer.encode_to_vec()))
}

fn attributes(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(&attribute.value))).collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
