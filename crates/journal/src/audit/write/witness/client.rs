//! HTTP client of a witness: one request with a checkpoint, on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Response};

use platform::outbound::{ExchangeError, HttpConnection, HttpUrl, Server, ServerError};
use platform::tls::ClientTls;

/// Time-out of a request as a whole.
const TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP client of one witness.
pub(super) struct Client {
    /// The address of `add-checkpoint`.
    target: HttpUrl,
    server: Server,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("its address cannot be used in a request")]
    Address(#[source] http::Error),
    #[error("it did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

impl Client {
    /// `tls` is none for `http`.
    pub(super) fn new(target: HttpUrl, tls: Option<Arc<ClientTls>>) -> Self {
        let server = Server { host: target.host().to_owned(), port: target.port(), tls };
        Self { target, server }
    }

    pub(super) async fn post(&self, body: String) -> Result<Response<Bytes>, ClientError> {
        let request = self.request(body)?;
        let exchange = async { Ok(HttpConnection::open(self.server.connect().await?).await?.send(request).await?) };
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_| ClientError::TimedOut)?
    }

    fn request(&self, body: String) -> Result<Request<Bytes>, ClientError> {
        Request::post(self.target.target())
            .header(HOST, self.target.authority())
            .header(CONTENT_TYPE, "text/plain; charset=utf-8")
            .header(CONNECTION, "close")
            .header(USER_AGENT, "keygate")
            .body(body.into())
            .map_err(ClientError::Address)
    }
}
