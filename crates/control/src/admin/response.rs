//! Responses of the admin socket and the admin listener.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Collected, Either, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::management::ManagementError;
use domain::problem::{self, Problem};

/// Response: most have their whole body in memory; an export comes piece by piece.
pub(super) type AdminResponse = Response<AdminBody>;

/// Body of a response.
pub(super) type AdminBody = Either<Full<Bytes>, Pieces>;

/// Body whose pieces come from a channel. An error ends it without its end, so that the client sees
/// that it is incomplete.
pub(super) struct Pieces(pub(super) mpsc::Receiver<Result<Bytes, io::Error>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// Reads the body of a request, of at most this many bytes. The error says why it cannot be read.
pub(super) async fn read_body(body: Incoming, max_bytes: usize) -> Result<Bytes, String> {
    let body = Limited::new(body, max_bytes).collect().await;
    body.map(Collected::to_bytes).map_err(|error| error.to_string())
}

/// A response with this body.
pub(super) fn content(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> AdminResponse {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with this value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> AdminResponse {
    let body = serde_json::to_vec(value).expect("replies are structs with text keys");
    content(status, "application/json", body)
}

/// A response whose body comes from a channel.
pub(super) fn pieces(content_type: &'static str, body: mpsc::Receiver<Result<Bytes, io::Error>>) -> AdminResponse {
    let mut response = Response::new(Either::Right(Pieces(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A problem response (RFC 9457).
pub(super) fn problem(status: StatusCode, code: &str, detail: String) -> AdminResponse {
    let body = Problem::new(status, code, detail).to_json();
    content(status, problem::MEDIA_TYPE, body)
}

/// The problem of an operation that was not performed.
pub(super) fn failed(error: &ManagementError) -> AdminResponse {
    problem(error.kind().status(), error.code(), error.in_full())
}

/// 500 for an `operation` that panicked.
pub(super) fn panicked(operation: &str) -> AdminResponse {
    let detail = format!("the {operation} ended unexpectedly; see the gateway's log");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", detail)
}

/// 404 for a path that does not exist.
pub(super) fn not_found() -> AdminResponse {
    problem(StatusCode::NOT_FOUND, "not_found", "there is nothing here".to_owned())
}

/// 405 with the methods that the path has.
pub(super) fn method_not_allowed(allowed: &'static str) -> AdminResponse {
    let detail = format!("only {allowed} works here");
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
