//! Connections to a collector: HTTP/1.1, over TLS where its address says so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::{Endpoint, Settings};
use crate::abort_on_drop::AbortOnDrop;
use crate::tls;

/// Time-out of a connection to one address, so that one that does not answer leaves time for the next.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of an answer at most: it has a message and a number.
const MAX_ANSWER: usize = 64 * 1024;

/// Address of a collector, and the TLS by which it is verified.
#[derive(Debug)]
pub(super) struct Target {
    endpoint: Endpoint,
    /// None without encryption.
    tls: Option<Arc<ClientConfig>>,
}

/// An open connection. Dropped, it closes.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: AbortOnDrop<()>,
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the name of the collector cannot be resolved")]
    Name(#[source] io::Error),
    #[error("cannot connect to the collector")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake with the collector failed")]
    Handshake(#[source] io::Error),
    #[error("the connection to the collector ended before its answer")]
    Broken(#[source] hyper::Error),
    #[error("the answer of the collector cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the address of the collector cannot be used in a request")]
    Address(#[source] http::Error),
}

impl Target {
    pub(super) fn new(settings: &Settings) -> Result<Self, tls::Error> {
        let tls = settings.endpoint.is_encrypted().then(|| settings.tls.config()).transpose()?;
        Ok(Self { endpoint: settings.endpoint.clone(), tls })
    }

    /// Path and query of requests.
    pub(super) fn path(&self) -> Uri {
        self.endpoint.uri().path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()))
    }

    pub(super) async fn connect(&self) -> Result<Connection, SendError> {
        let stream = connect(&self.endpoint).await?;
        match &self.tls {
            None => Connection::new(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.endpoint.host().to_owned());
                let name = name.map_err(|error| SendError::Name(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
                let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
                Connection::new(stream.map_err(SendError::Handshake)?).await
            }
        }
    }
}

impl Connection {
    async fn new<S>(stream: S) -> Result<Self, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(SendError::Broken)?;
        // The request that it ends sees the error, so the driver has no result of its own.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, _driver: AbortOnDrop::new(driver) })
    }

    /// Returns whether the collector has not closed the connection.
    pub(super) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request, and reads the answer to its end.
    pub(super) async fn send(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        self.sender.ready().await.map_err(SendError::Broken)?;
        let response = self.sender.send_request(request.map(Full::new)).await.map_err(SendError::Broken)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(SendError::Answer)?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}

/// Connects to the host, trying its addresses in turn.
async fn connect(endpoint: &Endpoint) -> Result<TcpStream, SendError> {
    let addresses = tokio::net::lookup_host((endpoint.host(), endpoint.port())).await.map_err(SendError::Name)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(SendError::Connect(last))
}
