//! Adapters of byte streams: bytes that were read ahead, a guard that ends with the stream, a stream with several
//! owners, and a look at the bytes that pass.
//!
//! All of them are plain structs around the stream: none allocates, locks, or makes a system call of its own.

use std::cell::{Ref, RefCell, RefMut};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of which the beginning may have been read already: the prefix is read first. It may hold a guard, such as a
/// permit, which is dropped behind the stream.
#[derive(Debug)]
pub struct PrefixedStream<S, G = ()> {
    /// Bytes that were read from `stream` and not used.
    pub prefix: BytesMut,
    /// The stream itself.
    pub stream: S,
    /// Dropped behind the stream, which is declared before it.
    pub guard: G,
}

/// A stream with several owners on one thread.
///
/// The HTTP library owns the streams that it serves and does not always give them back. A second owner can still write
/// last bytes to the stream, or read on where HTTP has ended.
#[derive(Debug)]
pub struct SharedStream<S>(Rc<RefCell<S>>);

/// The inspector of an [`InspectedStream`]: sees what is read and written, may hold back or refuse what is read.
pub trait StreamInspector<S> {
    /// Reads from `stream` into `buf`.
    fn poll_read(&mut self, stream: &mut S, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Sees the result of a write: pending when the peer does not take the bytes.
    fn inspect_write(&mut self, written: &Poll<io::Result<usize>>);

    /// Sees the result of a flush: pending when the peer does not take what was written.
    fn inspect_flush(&mut self, flushed: &Poll<io::Result<()>>);

    /// Closes the stream for writing.
    fn poll_shutdown(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A stream with an inspector between it and its user.
#[derive(Debug)]
pub struct InspectedStream<S, I> {
    stream: S,
    inspector: I,
}

impl<S> PrefixedStream<S> {
    /// A stream of which nothing has been read.
    pub fn new(stream: S) -> Self {
        Self::with_guard(stream, ())
    }
}

impl<S, G> PrefixedStream<S, G> {
    /// A stream of which nothing has been read, with a guard that is dropped when the stream is closed.
    pub fn with_guard(stream: S, guard: G) -> Self {
        Self { prefix: BytesMut::new(), stream, guard }
    }
}

impl<S> SharedStream<S> {
    /// The first owner of `stream`.
    pub fn new(stream: S) -> Self {
        Self(Rc::new(RefCell::new(stream)))
    }

    /// The stream itself. Not to be held across a read or write.
    pub fn borrow(&self) -> Ref<'_, S> {
        self.0.borrow()
    }

    /// The stream itself, for what is no read or write of bytes.
    pub fn borrow_mut(&self) -> RefMut<'_, S> {
        self.0.borrow_mut()
    }
}

impl<S> Clone for SharedStream<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S, I> InspectedStream<S, I> {
    /// Puts `inspector` between `stream` and its user.
    pub fn new(stream: S, inspector: I) -> Self {
        Self { stream, inspector }
    }

    /// Gives the inspector back.
    pub fn into_inspector(self) -> I {
        self.inspector
    }
}

impl<S: AsyncRead + Unpin, G: Unpin> AsyncRead for PrefixedStream<S, G> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let take = self.prefix.len().min(buf.remaining());
        if take > 0 {
            buf.put_slice(&self.prefix[..take]);
            self.prefix.advance(take);
            // An empty buffer keeps its memory, which an idle connection would hold for nothing.
            if self.prefix.is_empty() {
                self.prefix = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, G: Unpin> AsyncWrite for PrefixedStream<S, G> {
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

impl<S: AsyncRead + Unpin> AsyncRead for SharedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SharedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)
    }
}

impl<S: Unpin, I: StreamInspector<S> + Unpin> AsyncRead for InspectedStream<S, I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, inspector } = &mut *self;
        inspector.poll_read(stream, cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, I: StreamInspector<S> + Unpin> AsyncWrite for InspectedStream<S, I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.inspector.inspect_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.inspector.inspect_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.inspector.inspect_flush(&flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, inspector } = &mut *self;
        inspector.poll_shutdown(stream, cx)
    }
}
