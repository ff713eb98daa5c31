//! A server: host, port, and the TLS by which it is verified.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::tls::{self, ClientTls};

/// Time-out of a connection to one address, so that one that does not answer leaves time for the next.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Stream to a server, with or without TLS.
pub trait OutboundStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> OutboundStream for S {}

/// A server, and the TLS by which it is verified.
#[derive(Clone, Debug)]
pub struct Server {
    /// A name, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// None without encryption.
    pub tls: Option<Arc<ClientTls>>,
}

/// Reason why there is no TCP connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host name cannot be resolved.
    #[error("its name cannot be resolved")]
    Name(#[source] io::Error),
    /// No address of the host accepts a connection.
    #[error("cannot connect to it")]
    Connect(#[source] io::Error),
}

/// Reason why there is no connection to a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No certificate can be issued for the name.
    #[error("its name cannot be that of a certificate")]
    Name(#[from] InvalidDnsNameError),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
}

impl Server {
    /// Connects, and verifies the server where it has TLS.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn connect(&self) -> Result<Box<dyn OutboundStream>, ServerError> {
        let stream = connect(&self.host, self.port).await?;
        let Some(client) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())?;
        let stream = tls::connect(&client.connector(), name, stream).await;
        Ok(Box::new(stream.map_err(ServerError::Handshake)?))
    }
}

/// Connects to a host, a name or an address without brackets, whose addresses are tried in turn: the error is that of
/// the last one.
async fn connect(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let addresses = lookup_host((host, port)).await.map_err(ConnectError::Name)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(ConnectError::Connect(last))
}
