//! Socket of an upstream connection, with TLS or without.
//!
//! - A socket with TLS exists only after the certificate was verified: for the endpoint's host, or for the configured
//!   name, by the configured authorities, or by those of the system.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::settings::Endpoint;
use crate::tls::ClientTls;

/// TLS parameters of connections to one endpoint.
pub(super) struct Encryption {
    /// Trusted authorities and client certificate, shared by all endpoints.
    pub(super) store: Arc<ClientTls>,
    /// Name that the certificate must be for.
    name: ServerName<'static>,
}

/// Connected socket.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Returns whether bytes were decrypted, or an error was found, that no read has returned yet.
    pub(super) fn has_read_ahead(&mut self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => {
                let state = stream.get_mut().1.process_new_packets();
                state.is_err() || state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
        }
    }
}

impl Encryption {
    pub(super) fn new(store: &Arc<ClientTls>, name: &ServerName<'static>) -> Self {
        Self { store: Arc::clone(store), name: name.clone() }
    }
}

/// Connects: tries every address of the endpoint's name, then shakes hands where the endpoint has TLS.
pub(super) async fn connect_socket(endpoint: &Endpoint, encryption: Option<&Encryption>) -> io::Result<Socket> {
    let stream = TcpStream::connect((&*endpoint.host, endpoint.port)).await?;
    stream.set_nodelay(true)?;
    let Some(Encryption { store, name }) = encryption else { return Ok(Socket::Plain(stream)) };
    Ok(Socket::Tls(Box::new(store.connector().connect(name.clone(), stream).await?)))
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Encryption").field(&self.name).finish()
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
