//! A server: host, port, and the TLS by which it is verified.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connect::{ConnectError, connect};
use crate::tls::ClientTls;

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
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone())?;
        let stream = tls.connector().connect(name, stream).await;
        Ok(Box::new(stream.map_err(ServerError::Handshake)?))
    }
}
