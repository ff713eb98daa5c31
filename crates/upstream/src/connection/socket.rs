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

use super::held_writes::HeldWrites;
use crate::settings::{Address, Endpoint};
use platform::tls::{self, ClientTls};

/// TLS parameters of connections to one endpoint.
pub(crate) struct Encryption {
    /// Trusted authorities and client certificate, shared by all endpoints.
    pub(crate) store: Arc<ClientTls>,
    /// Name that the certificate must be for.
    name: ServerName<'static>,
}

/// Connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    /// Writes whose errors are held back; none when they are not.
    held_writes: Option<HeldWrites>,
}

/// Byte stream of a socket.
#[derive(Debug)]
enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// TLS over TCP. Boxed, because it is large.
    Tls(Box<TlsStream<TcpStream>>),
    /// Unix socket.
    Unix(UnixStream),
}

impl Encryption {
    pub(crate) fn new(store: &Arc<ClientTls>, name: &ServerName<'static>) -> Self {
        Self { store: Arc::clone(store), name: name.clone() }
    }
}

/// Connects to the endpoint's address, then shakes hands where the endpoint has TLS.
pub(crate) async fn connect_socket(endpoint: &Endpoint, encryption: Option<&Encryption>) -> io::Result<Socket> {
    let stream = match &endpoint.address {
        Address::Tcp(address) => TcpStream::connect(address).await?,
        Address::Unix(path) => return UnixStream::connect(path).await.map(|stream| Stream::Unix(stream).into()),
        Address::Unresolved => return Err(io::Error::new(io::ErrorKind::NotFound, "no address is known for its name")),
    };
    stream.set_nodelay(true)?;
    let Some(Encryption { store, name }) = encryption else { return Ok(stream.into()) };
    Ok(Stream::Tls(Box::new(tls::connect(&store.connector(), name.clone(), stream).await?)).into())
}

impl From<Stream> for Socket {
    fn from(stream: Stream) -> Self {
        Self { stream, held_writes: None }
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Stream::Tcp(stream).into()
    }
}

impl Socket {
    /// The same socket with errors of writes held back until everything was read: see [`super::held_writes`]. Only for
    /// a protocol that reads while it waits for a write.
    pub(crate) fn hold_write_errors(self) -> Self {
        Self { held_writes: Some(HeldWrites::default()), ..self }
    }

    /// Returns whether a write has failed whose error is, or was, held back.
    pub(crate) fn has_failed_write(&self) -> bool {
        self.held_writes.as_ref().is_some_and(HeldWrites::has_failed)
    }

    /// Returns whether the socket is open and nothing waits to be read from it. `polled`: the event loop has waited
    /// for events since the last response. The kernel is asked only if it has not, or if it has learnt of something
    /// then (see [`super::idle`]). With TLS, bytes may have been read from the kernel already.
    pub(crate) fn is_silent(&mut self, polled: bool) -> bool {
        self.stream.is_silent(polled)
    }

    /// Completes when there may be something to read, the end included.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let readable = match &mut self.stream {
            Stream::Tcp(stream) => stream.poll_read_ready(cx),
            Stream::Tls(tls) => tls.get_ref().0.poll_read_ready(cx),
            Stream::Unix(stream) => stream.poll_read_ready(cx),
        };
        readable.map(drop)
    }

    /// Has the kernel reset the connection when it is closed (`SO_LINGER` 0). A Unix socket has no reset.
    pub(crate) fn set_zero_linger(&self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_zero_linger(),
            Stream::Tls(tls) => tls.get_ref().0.set_zero_linger(),
            Stream::Unix(_) => Ok(()),
        }
    }

    /// Writes, or flushes.
    fn poll_out<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Stream, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Self { stream, held_writes } = self;
        match held_writes {
            Some(held) => held.poll(cx, |cx| write(stream, cx)),
            None => write(stream, cx),
        }
    }
}

impl Stream {
    fn is_silent(&mut self, polled: bool) -> bool {
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
}

fn peek(stream: &impl AsFd) -> io::Result<usize> {
    SockRef::from(stream).peek(&mut [MaybeUninit::uninit()])
}

/// Calls a method of the stream of a socket.
macro_rules! delegate {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            Stream::Tls($inner) => $call,
            Stream::Unix($inner) => $call,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let has_room = buf.remaining() > 0;
        let read = delegate!(&mut self.stream, stream => Pin::new(stream).poll_read(cx, buf));
        if let (Some(held), true) = (&mut self.held_writes, has_room) {
            held.note_read(&read, buf.filled().len() - before);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |stream, cx| delegate!(stream, stream => Pin::new(stream).poll_write(cx, bytes)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_out(cx, |stream, cx| delegate!(stream, stream => Pin::new(stream).poll_write_vectored(cx, bytes)))
    }

    fn is_write_vectored(&self) -> bool {
        delegate!(&self.stream, stream => stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_out(cx, |stream, cx| delegate!(stream, stream => Pin::new(stream).poll_flush(cx)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(&mut self.stream, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl std::fmt::Debug for Encryption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Encryption").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Socket whose peer has answered and closed, with bytes that it has not read: the connection is reset.
    async fn refused() -> Socket {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut peer = listener.accept().unwrap().0;
        stream.write_all(b"unread").await.unwrap();
        peer.write_all(b"answer").unwrap();
        drop(peer);
        stream.into()
    }

    /// Writes without reading, until a write does not succeed. Returns its error; none when it is pending.
    async fn write_until_it_fails(socket: &mut Socket) -> Option<io::Error> {
        let writing = async {
            loop {
                if let Err(error) = socket.write_all(b"more").await {
                    return error;
                }
            }
        };
        tokio::time::timeout(Duration::from_millis(200), writing).await.ok()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn response_is_read_before_a_failed_write_is_seen() {
        let mut socket = refused().await.hold_write_errors();
        assert!(write_until_it_fails(&mut socket).await.is_none() && socket.has_failed_write());
        let mut answer = Vec::new();
        // The end, or the reset, follows.
        socket.read_to_end(&mut answer).await.ok();
        assert_eq!(answer, b"answer");
        assert!(write_until_it_fails(&mut socket).await.is_some());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn failed_write_is_seen_at_once_where_it_is_not_held_back() {
        assert!(write_until_it_fails(&mut refused().await).await.is_some());
    }
}
