//! The bytes of a connection, plain or encrypted, and what was read of them ahead.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A socket of which the beginning may have been read already.
#[derive(Debug)]
pub(super) struct Socket {
    /// What was read and not used.
    pub(super) ahead: BytesMut,
    pub(super) stream: TcpStream,
}

/// A connection's bytes.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// A stream that outlives the library's use of it, for the last words of its connection.
#[derive(Clone, Debug)]
pub(super) struct SharedStream(Rc<RefCell<Stream>>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { ahead: BytesMut::new(), stream }
    }

    /// Reads more ahead; says how many bytes.
    pub(super) async fn read_ahead(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.ahead).await
    }
}

impl Stream {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => &socket.stream,
            Self::Tls(stream) => &stream.get_ref().0.stream,
        }
    }
}

impl SharedStream {
    pub(super) fn new(stream: Stream) -> Self {
        Self(Rc::new(RefCell::new(stream)))
    }

    /// What waits in the kernel to be sent is dropped when the stream is: nobody takes it.
    pub(super) fn forget_unsent(&self) {
        if let Err(error) = self.0.borrow().socket().set_zero_linger() {
            tracing::debug!(%error, "the unsent bytes of a connection stay with the kernel for a while");
        }
    }
}

/// Hands on what was read ahead; says whether there was anything.
pub(super) fn take_ahead(ahead: &mut BytesMut, buf: &mut ReadBuf<'_>) -> bool {
    let take = ahead.len().min(buf.remaining());
    buf.put_slice(&ahead[..take]);
    ahead.advance(take);
    take > 0
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if take_ahead(&mut self.ahead, buf) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Passes a call on to whichever stream it is.
macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self {
            Stream::Plain($stream) => $call,
            Stream::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for SharedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self.0.borrow_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(&mut *self.0.borrow_mut(), stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(&mut *self.0.borrow_mut(), stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        either!(&*self.0.borrow(), stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self.0.borrow_mut(), stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self.0.borrow_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}
