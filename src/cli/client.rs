//! A small HTTP/1.1 client: one request over one connection.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// For an answer: a change waits for the disk, and nothing waits longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends one request and reads the whole answer.
pub(super) async fn exchange<S>(
    stream: S,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "keygate")
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .context("the request cannot be made")?;
    tokio::time::timeout(PATIENCE, answered(stream, request))
        .await
        .with_context(|| format!("there was no answer within {} s", PATIENCE.as_secs()))?
}

async fn answered<S>(stream: S, request: Request<Full<Bytes>>) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.context("the connection broke off")?;
    let status = answer.status();
    let body = answer.into_body().collect().await.context("the connection broke off")?.to_bytes();
    connection.abort();
    Ok((status, body))
}
