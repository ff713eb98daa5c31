//! HTTP/1.1 over a connection to a server: one exchange at a time.

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::server::OutboundStream;
use crate::abort_on_drop::AbortOnDrop;

/// Bytes of an answer at most: what is sent here is acknowledged, and not answered at length.
const MAX_ANSWER: usize = 64 * 1024;

/// An open connection. Dropped, it closes.
#[derive(Debug)]
pub struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDrop<()>,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection ended before the answer.
    #[error("the connection ended before its answer")]
    Broken(#[source] hyper::Error),
    /// The body of the answer is too long, or broke off.
    #[error("its answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl HttpConnection {
    /// Begins HTTP on a stream.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub async fn open(stream: Box<dyn OutboundStream>) -> Result<Self, ExchangeError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ExchangeError::Broken)?;
        // The request that it ends sees the error, so the driver has no result of its own.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, _driver: AbortOnDrop::new(driver) })
    }

    /// Returns whether the server has not closed the connection.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request, and reads the answer to its end.
    ///
    /// # Errors
    /// [`ExchangeError`]; the connection is of no further use then.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        self.sender.ready().await.map_err(ExchangeError::Broken)?;
        let response = self.sender.send_request(request.map(Full::new)).await.map_err(ExchangeError::Broken)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(ExchangeError::Answer)?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}
