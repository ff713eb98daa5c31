//! Socket of an upstream connection, with TLS or without.
//!
//! - A socket with TLS exists only after the certificate was verified: for the endpoint's host, or for the configured
//!   name, by the configured authorities, or by those of the system.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::settings::{Address, Endpoint};
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
    /// TCP.
    Tcp(TcpStream),
    /// TLS over TCP. Boxed, because it is large.
    Tls(Box<TlsStream<TcpStream>>),
    /// Unix socket.
    Unix(UnixStream),
}

impl Encryption {
    pub(super) fn new(store: &Arc<ClientTls>, name: &ServerName<'static>) -> Self {
        Self { store: Arc::clone(store), name: name.clone() }
    }
}

/// Connects to the endpoint's address, then shakes hands where the endpoint has TLS.
pub(super) async fn connect_socket(endpoint: &Endpoint, encryption: Option<&Encryption>) -> io::Result<Socket> {
    let stream = match &endpoint.address {
        Address::Tcp(address) => TcpStream::connect(address).await?,
        Address::Unix(path) => return UnixStream::connect(path).await.map(Socket::Unix),
        Address::Unresolved => return Err(io::Error::new(io::ErrorKind::NotFound, "no address is known for its name")),
    };
    stream.set_nodelay(true)?;
    let Some(Encryption { store, name }) = encryption else { return Ok(Socket::Tcp(stream)) };
    Ok(Socket::Tls(Box::new(store.connector().connect(name.clone(), stream).await?)))
}

impl Socket {
    /// Returns whether the socket is open and nothing waits to be read from it. `polled`: the event loop has waited for
    /// events since the last response. The kernel is asked only if it has not, or if it has learnt of something then (see
    /// [`super::idle`]). With TLS, bytes may have been read from the kernel already.
    pub(super) fn is_silent(&mut self, polled: bool) -> bool {
        // The runtime calls `peek` only if the event loop has learnt of something to read, or of the end.
        let peeked = match self {
            Self::Tcp(stream) if polled => stream.try_io(Interest::READABLE, || peek(stream)),
            Self::Tls(tls) if polled => tls.get_ref().0.try_io(Interest::READABLE, || peek(tls.get_ref().0)),
            Self::Unix(stream) if polled => stream.try_io(Interest::READABLE, || peek(stream)),
            Self::Tcp(stream) => peek(stream),
            Self::Tls(tls) => peek(tls.get_ref().0),
            Self::Unix(stream) => peek(stream),
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) && !self.has_read_ahead()
    }

    /// Returns whether bytes were decrypted, or an error was found, that no read has returned yet.
    fn has_read_ahead(&mut self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(tls) => {
                let state = tls.get_mut().1.process_new_packets();
                state.is_err() || state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
        }
    }

    /// Has the kernel reset the connection when it is closed (`SO_LINGER` 0). A Unix socket has no reset.
    pub(super) fn set_zero_linger(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_zero_linger(),
            Self::Tls(tls) => tls.get_ref().0.set_zero_linger(),
            Self::Unix(_) => Ok(()),
        }
    }
}

fn peek(stream: &impl AsFd) -> io::Result<usize> {
    SockRef::from(stream).peek(&mut [MaybeUninit::uninit()])
}

/// Calls a method of the stream in a socket.
macro_rules! delegate {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Tls($stream) => $call,
            Socket::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        delegate!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(&mut *self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Encryption").field(&self.name).finish()
    }
}
