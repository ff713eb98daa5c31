//! HTTP/1.1 client for the admin socket and the admin listener: one request over one connection.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Time-out of a response. The slowest operation is a change, which waits for a disk write.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time-out of the head of a response about the whole state: that of an export waits for an index to be read.
const STATE_TIMEOUT: Duration = Duration::from_secs(600);

/// Sends one request about the whole state, and returns the response as it comes.
pub(super) async fn begin<S>(
    stream: S,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(StatusCode, Incoming)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = build(method, path, body)?;
    let responded = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the response: the request says that it is the last one.
        tokio::spawn(connection);
        sender.send_request(request).await.context("the connection was closed")
    };
    let response = tokio::time::timeout(STATE_TIMEOUT, responded)
        .await
        .with_context(|| format!("no response within {} s", STATE_TIMEOUT.as_secs()))??;
    Ok((response.status(), response.into_body()))
}

/// Sends one request and reads the whole response.
pub(super) async fn exchange<S>(
    stream: S,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    exchange_within(RESPONSE_TIMEOUT, stream, method, path, body).await
}

/// The same, with another time-out of the response.
pub(super) async fn exchange_within<S>(
    timeout: Duration,
    stream: S,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = build(method, path, body)?;
    tokio::time::timeout(timeout, send(stream, request))
        .await
        .with_context(|| format!("no response within {} s", timeout.as_secs()))?
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.context("the connection was closed")?;
    let status = response.status();
    let body = response.into_body().collect().await.context("the connection was closed")?.to_bytes();
    connection.abort();
    Ok((status, body))
}

fn build(method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Request<Full<Bytes>>> {
    let request = Request::builder().method(method).uri(path).header(HOST, "keygate").header(CONNECTION, "close");
    let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)));
    request.context("cannot build the request")
}
