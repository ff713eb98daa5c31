//! One connection to a management listener: HTTP/1.1, one exchange at a time.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::cli::answer::Answer;
use platform::abort_on_drop::AbortOnDrop;
use platform::outbound::Server;

/// Bytes of an answer at most: usage of many keys is the longest.
const MAX_ANSWER: usize = 256 << 20;
/// Time-out of the TLS handshake, and of connecting to all addresses of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// An open connection. Dropped, it closes.
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDrop<()>,
}

impl Connection {
    /// Connects, and verifies the server where it has TLS.
    pub(super) async fn open(server: &Server) -> anyhow::Result<Self> {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, server.connect()).await;
        let stream = connecting.with_context(|| format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()))??;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The request that it ends sees the error, so the driver has no result of its own.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, _driver: AbortOnDrop::new(driver) })
    }

    /// Returns whether it takes another request: the server closes connections that are idle.
    pub(super) async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request, and reads its answer to the end.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>, timeout: Duration) -> anyhow::Result<Answer> {
        let exchange = async {
            let response = self.sender.send_request(request).await.context("the connection was closed")?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!(error).context("the answer cannot be read"))?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        let answer = tokio::time::timeout(timeout, exchange).await;
        answer.with_context(|| format!("no answer within {} s", timeout.as_secs()))?
    }
}
