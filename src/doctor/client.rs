//! HTTP client of the checks: one GET over one connection, with a bounded body.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use platform::settings::WithUnit;

/// Time-out of an exchange. A healthy gateway or upstream answers within milliseconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of a body at most: several times the metrics of a gateway with hundreds of routes.
const MAX_BODY: usize = 16 << 20;
/// Name by which logs of upstreams show these requests.
const AGENT: &str = "keygate-doctor";

/// Reason why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// The target or the authority cannot be sent.
    #[error("the request cannot be built")]
    Request(#[from] http::Error),
    /// The connection failed, or the response is not HTTP.
    #[error("the connection failed")]
    Connection(#[from] hyper::Error),
    /// The body failed, or is too large.
    #[error("the body cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No response in time.
    #[error("no response within {}", WithUnit::Duration(TIMEOUT))]
    TimedOut,
}

pub(super) use platform::outbound::delivery::in_full;

/// Sends a GET over HTTP/1.1, and reads the response.
pub(super) async fn get<S>(stream: S, authority: &str, target: &str) -> Result<(StatusCode, Bytes), ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder()
        .uri(target)
        .header(HOST, authority)
        .header(USER_AGENT, AGENT)
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        connection.abort();
        Ok((status, body.map_err(ExchangeError::Body)?.to_bytes()))
    };
    timeout(TIMEOUT, exchange).await.map_err(|_| ExchangeError::TimedOut)?
}

/// Sends a GET over HTTP/2 with prior knowledge, and returns the status of the response.
pub(super) async fn status_over_http2<S>(stream: S, uri: &str) -> Result<StatusCode, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder().uri(uri).header(USER_AGENT, AGENT).body(Empty::<Bytes>::new())?;
    let exchange = async {
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        connection.abort();
        Ok(response.status())
    };
    timeout(TIMEOUT, exchange).await.map_err(|_| ExchangeError::TimedOut)?
}
