//! Calls of Envoy by gRPC, and their answers.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use envoy_wire::ext_authz::{self, CheckRequest, CheckResponse};
use envoy_wire::ext_proc::{self, HttpHeaders, ProcessingRequest, ProcessingResponse, Request as Part};
use envoy_wire::grpc::{Message, MessageReader, encode_message};
use envoy_wire::{Address, HeaderMap, HeaderValue, Kind, Struct, Value};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::Asked;

type Frames = BoxStream<'static, Result<Frame<Bytes>, Infallible>>;

/// Address of the clients that Envoy names.
const SOURCE: &str = "198.51.100.7:4711";

/// A connection of Envoy.
pub struct Envoy {
    runtime: Runtime,
    sender: SendRequest<StreamBody<Frames>>,
}

/// An open call.
pub struct Call {
    pub parts: Option<mpsc::UnboundedSender<Bytes>>,
    body: Option<Incoming>,
    reader: MessageReader,
}

/// End of a call: the number of its status; none when the stream was reset.
pub type End = Option<String>;

impl Envoy {
    pub fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let stream = TokioIo::new(stream);
            // As Envoy, it does not mind how many streams end early.
            let mut builder = Builder::new(TokioExecutor::new());
            let handshake = builder.max_local_error_reset_streams(None).handshake(stream);
            let (sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender }
    }

    /// Makes a call with one message.
    pub fn ask(&mut self, path: &str, only: &impl Message) -> Call {
        let mut call = self.open(path, only);
        call.parts = None;
        call
    }

    /// Opens a call with its first message.
    pub fn open(&mut self, path: &str, first: &impl Message) -> Call {
        let (parts, receiver) = mpsc::unbounded_channel();
        parts.send(encode_message(first)).unwrap();
        let frames = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|data| (Ok(Frame::data(data)), receiver))
        });
        let request = Request::post(format!("http://keygate{path}")).header("content-type", "application/grpc");
        let request = request.body(StreamBody::new(frames.boxed())).unwrap();
        let response = self.runtime.block_on(self.sender.send_request(request)).unwrap();
        assert_eq!(response.status(), http::StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        Call { parts: Some(parts), body: Some(response.into_body()), reader: MessageReader::new(1 << 20) }
    }

    /// The next message of a call.
    pub fn next<M: Message + Default>(&self, call: &mut Call) -> Result<M, End> {
        let Call { body, reader, .. } = call;
        self.runtime.block_on(async {
            loop {
                if let Some(message) = reader.next_message().unwrap() {
                    return Ok(message);
                }
                match body.as_mut().unwrap().frame().await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => reader.push(data),
                        Err(frame) => {
                            let trailers = frame.into_trailers().unwrap();
                            return Err(Some(trailers["grpc-status"].to_str().unwrap().to_owned()));
                        }
                    },
                    Some(Err(_)) | None => return Err(None),
                }
            }
        })
    }

    /// Asks by `ext_authz`.
    pub fn check(&mut self, question: &CheckRequest) -> CheckResponse {
        let mut call = self.ask(ext_authz::CHECK, question);
        let answer = self.next(&mut call).unwrap();
        assert_eq!(self.next::<CheckResponse>(&mut call), Err(Some("0".to_owned())));
        answer
    }

    /// Opens a stream of `ext_proc`, and returns it with the answer to the head.
    pub fn process(&mut self, head: &ProcessingRequest) -> (Call, ProcessingResponse) {
        let mut call = self.open(ext_proc::PROCESS, head);
        let answer = self.next(&mut call).unwrap();
        (call, answer)
    }
}

impl Call {
    pub fn send(&self, part: Part) {
        self.parts.as_ref().unwrap().send(encode_message(&ProcessingRequest::from(part))).unwrap();
    }
}

/// The question of `ext_authz` about a request.
pub fn question(asked: Asked<'_>) -> CheckRequest {
    let mut http = ext_authz::HttpRequest {
        method: asked.method.to_owned(),
        path: asked.target.to_owned(),
        host: "h".to_owned(),
        scheme: "http".to_owned(),
        ..Default::default()
    };
    let named = [(":method", asked.method), (":path", asked.target), (":authority", "h")].into_iter();
    let key = key_field(asked.key);
    let fields = named.chain(asked.fields.iter().copied()).map(|(name, value)| (name, value.to_owned()));
    for (name, value) in fields.chain(key) {
        // As Envoy joins fields of one name.
        let name = name.to_ascii_lowercase();
        let joined = http.headers.get(&name).map(|first| format!("{first},{value}"));
        http.headers.insert(name, joined.unwrap_or(value));
    }
    let source = SOURCE.parse::<SocketAddr>().unwrap();
    let source = ext_authz::Peer { address: Some(Address::from(source)) };
    let attributes = ext_authz::AttributeContext {
        source: Some(source),
        request: Some(ext_authz::Request { http: Some(http), ..Default::default() }),
        ..Default::default()
    };
    CheckRequest { attributes: Some(attributes) }
}

/// The first part of a stream of `ext_proc`.
pub fn head(asked: Asked<'_>) -> ProcessingRequest {
    let pseudo = [(":method", asked.method), (":path", asked.target), (":authority", "h"), (":scheme", "http")];
    let fields = pseudo.into_iter().chain(asked.fields.iter().copied());
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let key = key_field(asked.key).map(|(name, value)| (name.to_owned(), value));
    let raw = |(name, value): (String, String)| raw_field(name, value);
    let headers = HeaderMap { headers: fields.chain(key).map(raw).collect() };
    let source = Value { kind: Some(Kind::StringValue(SOURCE.to_owned())) };
    let attributes = Struct { fields: [("source.address".to_owned(), source)].into() };
    ProcessingRequest {
        attributes: [("envoy.filters.http.ext_proc".to_owned(), attributes)].into(),
        ..Part::RequestHeaders(HttpHeaders { headers: Some(headers), end_of_stream: true }).into()
    }
}

/// The head of a response.
pub fn response_head(status: u16, end_of_stream: bool) -> Part {
    let status = raw_field(":status".to_owned(), status.to_string());
    Part::ResponseHeaders(HttpHeaders { headers: Some(HeaderMap { headers: vec![status] }), end_of_stream })
}

fn key_field(key: &str) -> Option<(&'static str, String)> {
    (!key.is_empty()).then(|| ("authorization", format!("Bearer {key}")))
}

fn raw_field(name: String, value: String) -> HeaderValue {
    HeaderValue { key: name, raw_value: value.into(), ..Default::default() }
}
