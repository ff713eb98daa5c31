//! One active check: its connection, its request, and what the response says.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, TE};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::settings::{HealthKind, HealthSettings};
use crate::connection::scanned_http2::ScannedHttp2Stream;
use crate::connection::socket::{Encryption, Socket, connect_socket};
use crate::settings::{Endpoint, Protocol};
use platform::abort_on_drop::AbortOnDrop;

/// Bytes of a response's body at most: a health response has some ten.
const MAX_BODY: usize = 64 * 1024;
/// Path of the gRPC health protocol.
const GRPC_PATH: PathAndQuery = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
/// Status `SERVING` of its response.
const SERVING: u8 = 1;

/// Reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no valid response: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("no valid response: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{}", .0.as_u16())]
    Status(StatusCode),
    #[error("grpc-status {0}")]
    GrpcStatus(String),
    #[error("not serving ({0})")]
    NotServing(u8),
}

/// Checks an endpoint. Returns what the answer said.
pub(crate) async fn check(
    endpoint: &Endpoint,
    encryption: Option<&Encryption>,
    protocol: Protocol,
    settings: &HealthSettings,
) -> Result<String, CheckError> {
    let kind = &settings.kind;
    let socket = connect_socket(endpoint, encryption).await?;
    let host = settings.host.as_deref().unwrap_or(&endpoint.authority);
    let request = request(host, encryption.is_some(), protocol, kind);
    match kind {
        HealthKind::Http { expect, .. } => {
            let (_task, response) = send(socket, protocol, request).await?;
            let status = response.status();
            let is_expected = if expect.is_empty() { status.is_success() } else { expect.contains(&status.as_u16()) };
            if is_expected { Ok(status.as_u16().to_string()) } else { Err(CheckError::Status(status)) }
        }
        HealthKind::Grpc { .. } => {
            let (_task, response) = send(socket, protocol, request).await?;
            read_grpc(response).await
        }
    }
}

/// Sends a request. The task runs the connection until it is dropped.
async fn send(
    socket: Socket,
    protocol: Protocol,
    request: Request<Full<Bytes>>,
) -> Result<(AbortOnDrop<()>, Response<Incoming>), hyper::Error> {
    // An error of the connection is an error of the exchange, too.
    match protocol {
        Protocol::Http1 => {
            let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
            let task = AbortOnDrop::new(tokio::spawn(async { drop(connection.await) }));
            Ok((task, sender.send_request(request).await?))
        }
        Protocol::Http2 => {
            let socket = ScannedHttp2Stream::new(socket, Arc::default());
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
            let task = AbortOnDrop::new(tokio::spawn(async { drop(connection.await) }));
            Ok((task, sender.send_request(request).await?))
        }
    }
}

fn request(host: &str, has_tls: bool, protocol: Protocol, kind: &HealthKind) -> Request<Full<Bytes>> {
    let (method, path, body) = match kind {
        HealthKind::Http { path, .. } => ("GET", path.clone(), Bytes::new()),
        HealthKind::Grpc { service } => ("POST", GRPC_PATH, grpc_message(service)),
    };
    let mut target = Uri::default().into_parts();
    target.path_and_query = Some(path);
    let mut request = Request::builder().method(method);
    match protocol {
        Protocol::Http1 => request = request.header(HOST, host),
        Protocol::Http2 => {
            target.scheme = Some(if has_tls { Scheme::HTTPS } else { Scheme::HTTP });
            target.authority = host.parse().ok();
        }
    }
    if matches!(kind, HealthKind::Grpc { .. }) {
        request = request.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers");
    }
    let target = Uri::from_parts(target).expect("a path, a scheme and an authority make a target");
    request.uri(target).body(Full::new(body)).expect("all parts are valid")
}

/// `HealthCheckRequest` behind the prefix of a gRPC message: field 1 is the name of the service.
fn grpc_message(service: &str) -> Bytes {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0A);
        // The configuration bounds a name to 100 bytes: a length of one byte.
        message.push(u8::try_from(service.len()).unwrap_or(0));
        message.extend_from_slice(service.as_bytes());
    }
    let length = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    [&[0], &length[..], &message].concat().into()
}

async fn read_grpc(response: Response<Incoming>) -> Result<String, CheckError> {
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(CheckError::Status(head.status));
    }
    let collected = Limited::new(body, MAX_BODY).collect().await.map_err(CheckError::Body)?;
    let status = |fields: &HeaderMap| {
        fields.get("grpc-status").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let status = collected.trailers().and_then(status).or_else(|| status(&head.headers)).unwrap_or_default();
    if status != "0" {
        return Err(CheckError::GrpcStatus(status));
    }
    match serving_status(&collected.to_bytes()) {
        SERVING => Ok("serving".to_owned()),
        other => Err(CheckError::NotServing(other)),
    }
}

/// Status of a `HealthCheckResponse` behind its prefix of five bytes: field 1, a number; 0 (unknown) when it is left
/// out.
fn serving_status(message: &[u8]) -> u8 {
    match message.get(5..) {
        Some([0x08, status, ..]) => *status,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_messages_are_those_of_the_protocol() {
        assert_eq!(&*grpc_message(""), b"\0\0\0\0\0");
        assert_eq!(&*grpc_message("s.S"), b"\0\0\0\0\x05\x0A\x03s.S");
        assert_eq!(serving_status(b"\0\0\0\0\x02\x08\x01"), SERVING);
        assert_eq!(serving_status(b"\0\0\0\0\x02\x08\x02"), 2);
        assert_eq!((serving_status(b"\0\0\0\0\0"), serving_status(b"")), (0, 0));
    }
}
