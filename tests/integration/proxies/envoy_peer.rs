//! A peer that decides as keygate does by gRPC, `ext_authz` and `ext_proc`, by the rules of `decisions`.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use tokio::sync::watch;

use super::decisions::{ABSENT, IDENTITY, fold};
use super::envoy_messages as envoy;

/// Window of a connection. Half of it bounds the small messages that wait to be read: with the default, many exchanges
/// that end at once would end the connection, and all of its streams (`ENHANCE_YOUR_CALM`).
const WINDOW: u32 = 16 * 1024 * 1024;

/// A running peer. Its thread ends with the process.
pub struct EnvoyPeer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Streams of `ext_proc` that are open.
    open: AtomicUsize,
    /// Those that Envoy has asked on, since the start.
    questions: AtomicUsize,
    /// Heads of responses that were seen.
    responses: AtomicUsize,
    /// Set to end all streams with an error.
    revoked: watch::Sender<bool>,
}

/// Counts a stream, until it ends in any way.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl EnvoyPeer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, serve(listener, of_thread));
        });
        Self { address, shared }
    }

    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    pub fn questions(&self) -> usize {
        self.shared.questions.load(Ordering::SeqCst)
    }

    pub fn responses(&self) -> usize {
        self.shared.responses.load(Ordering::SeqCst)
    }

    /// Ends all streams with an error.
    pub fn revoke(&self) {
        self.shared.revoked.send_replace(true);
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::task::spawn_local(async move {
            let Ok(mut connection) =
                h2::server::Builder::new().initial_connection_window_size(WINDOW).handshake(stream).await
            else {
                return;
            };
            while let Some(accepted) = connection.accept().await {
                let (request, respond) = match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => return println!("a connection of Envoy ends: {error}"),
                };
                let shared = Arc::clone(&shared);
                tokio::task::spawn_local(async move { call(request, respond, &shared).await });
            }
        });
    }
}

/// Answers a call; nothing when Envoy goes away.
async fn call(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, shared: &Shared) -> Option<()> {
    shared.questions.fetch_add(1, Ordering::SeqCst);
    let path = request.uri().path().to_owned();
    let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut sending = respond.send_response(head, false).ok()?;
    let mut messages = Messages { body: request.into_body(), read: BytesMut::new() };
    match path.as_str() {
        "/envoy.service.auth.v3.Authorization/Check" => {
            send(&mut sending, &check(&messages.next().await?)?)?;
            end(&mut sending, 0)
        }
        "/envoy.service.ext_proc.v3.ExternalProcessor/Process" => {
            shared.open.fetch_add(1, Ordering::SeqCst);
            let _open = Open(&shared.open);
            process(&mut messages, &mut sending, shared).await
        }
        _ => end(&mut sending, 12),
    }
}

async fn process(messages: &mut Messages, sending: &mut SendStream<Bytes>, shared: &Shared) -> Option<()> {
    let mut revoked = shared.revoked.subscribe();
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            _ = revoked.wait_for(|is_revoked| *is_revoked) => return end(sending, 7),
        };
        let Some(message) = message else { return end(sending, 0) };
        let message = envoy::ProcessingRequest::decode(message).ok()?;
        if message.response_headers.is_some() {
            shared.responses.fetch_add(1, Ordering::SeqCst);
        }
        send(sending, &answer(message)?)?;
    }
}

/// Messages of a stream.
struct Messages {
    body: RecvStream,
    read: BytesMut,
}

impl Messages {
    /// The next one; none at the end, or when the stream breaks.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(length) = self.read.get(1..5) {
                let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
                if self.read.len() >= 5 + length {
                    self.read.advance(5);
                    return Some(self.read.split_to(length).freeze());
                }
            }
            let data = self.body.data().await?.ok()?;
            self.body.flow_control().release_capacity(data.len()).ok()?;
            self.read.extend_from_slice(&data);
        }
    }
}

fn send(sending: &mut SendStream<Bytes>, message: &impl Message) -> Option<()> {
    let bytes = message.encode_to_vec();
    let prefix = [&[0][..], &u32::try_from(bytes.len()).unwrap().to_be_bytes()].concat();
    sending.send_data([prefix, bytes].concat().into(), false).ok()
}

fn end(sending: &mut SendStream<Bytes>, status: u16) -> Option<()> {
    sending.send_trailers(HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(status))])).ok()
}

/// Decision: names to set, and names to remove; or a status.
type Decision = Result<(Vec<&'static str>, Vec<String>), u16>;

fn decide(path: &str, headers: &[(String, String)]) -> Decision {
    if let Some(status) = path.strip_prefix("/refused/") {
        return Err(status.parse().unwrap());
    }
    let authorization = headers.iter().find(|(name, _)| name == "authorization").map(|(_, value)| value.as_str());
    let has_key = match authorization {
        Some("Bearer good") => true,
        Some("Bearer session") => false,
        _ => return Err(401),
    };
    let names = IDENTITY.map(|(name, _)| name);
    let set: Vec<&str> = names.into_iter().filter(|name| has_key || *name != ABSENT).collect();
    let is_set = |given: &str| set.iter().any(|name| name.eq_ignore_ascii_case(given));
    let is_identity = |given: &str| names.iter().any(|name| fold(name) == fold(given));
    let mut removed = vec!["authorization".to_owned()];
    removed.extend(headers.iter().map(|(name, _)| name).filter(|name| is_identity(name) && !is_set(name)).cloned());
    Ok((set, removed))
}

fn field(name: &str, value: &str) -> envoy::HeaderValueOption {
    let header = envoy::HeaderValue { key: name.to_ascii_lowercase(), value: value.to_owned(), raw_value: Vec::new() };
    envoy::HeaderValueOption { header: Some(header), append_action: 2 }
}

/// The same for `ext_proc`, which reads the other value.
fn raw(mut field: envoy::HeaderValueOption) -> envoy::HeaderValueOption {
    if let Some(header) = &mut field.header {
        header.raw_value = std::mem::take(&mut header.value).into_bytes();
    }
    field
}

fn identity(names: &[&str]) -> Vec<envoy::HeaderValueOption> {
    let set = IDENTITY.iter().filter(|(name, _)| names.contains(name));
    set.map(|(name, value)| field(name, value)).collect()
}

fn refusal_fields() -> Vec<envoy::HeaderValueOption> {
    vec![field("content-type", "application/problem+json"), field("retry-after", "7")]
}

fn problem(status: u16) -> String {
    format!("{{\"status\":{status},\"code\":\"of_the_peer\"}}")
}

fn check(question: &[u8]) -> Option<envoy::CheckResponse> {
    let http = envoy::CheckRequest::decode(question).ok()?.attributes?.request?.http?;
    let headers: Vec<_> = http.headers.into_iter().collect();
    Some(match decide(&http.path, &headers) {
        Ok((set, headers_to_remove)) => envoy::CheckResponse {
            status: Some(envoy::RpcStatus { code: 0 }),
            ok_response: Some(envoy::OkResponse { headers: identity(&set), headers_to_remove }),
            ..Default::default()
        },
        Err(status) => envoy::CheckResponse {
            status: Some(envoy::RpcStatus { code: 7 }),
            denied_response: Some(envoy::DeniedResponse {
                status: Some(envoy::HttpStatus { code: status.into() }),
                headers: refusal_fields(),
                body: problem(status),
            }),
            ..Default::default()
        },
    })
}

fn answer(message: envoy::ProcessingRequest) -> Option<envoy::ProcessingResponse> {
    if message.response_headers.is_some() {
        let response_headers = Some(envoy::HeadersResponse::default());
        return Some(envoy::ProcessingResponse { response_headers, ..Default::default() });
    }
    if message.response_trailers.is_some() {
        let response_trailers = Some(envoy::Empty {});
        return Some(envoy::ProcessingResponse { response_trailers, ..Default::default() });
    }
    let text = |header: envoy::HeaderValue| (header.key, String::from_utf8_lossy(&header.raw_value).into_owned());
    let headers: Vec<_> = message.request_headers?.headers?.headers.into_iter().map(text).collect();
    let path = headers.iter().find(|(name, _)| name == ":path")?.1.clone();
    Some(match decide(&path, &headers) {
        Ok((set, remove_headers)) => {
            let set_headers = identity(&set).into_iter().map(raw).collect();
            let mutation = envoy::HeaderMutation { set_headers, remove_headers };
            let response = Some(envoy::CommonResponse { header_mutation: Some(mutation) });
            let mode = envoy::ProcessingMode { response_header_mode: 1, response_trailer_mode: 1 };
            envoy::ProcessingResponse {
                request_headers: Some(envoy::HeadersResponse { response }),
                mode_override: Some(mode),
                ..Default::default()
            }
        }
        Err(status) => {
            let set_headers = refusal_fields().into_iter().map(raw).collect();
            let immediate = envoy::ImmediateResponse {
                status: Some(envoy::HttpStatus { code: status.into() }),
                headers: Some(envoy::HeaderMutation { set_headers, remove_headers: Vec::new() }),
                body: problem(status).into_bytes(),
            };
            envoy::ProcessingResponse { immediate_response: Some(immediate), ..Default::default() }
        }
    })
}
