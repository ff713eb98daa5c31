//! Byte stream of an HTTP/1.1 connection, which scans what the upstream sends before the HTTP library reads it.
//!
//! It implements the traits itself instead of using [`platform::byte_stream`]: the pool and the stream share the
//! scanner's state, and an inspector of its own would cost each connection a second shared allocation.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::added_lines::AddedLines;
use super::head_scan::HeadScan;
use super::limits::ConnectionPermit;
use super::sent_head::{Kept, SentHead};
use super::socket::Socket;
use domain::field_lines::FieldLines;
use domain::head_fields::FieldSet;
use platform::large_reads::LargeReads;

/// Bytes that the upstream may send now.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// None: no exchange has begun.
    Nothing,
    /// None: the last exchange has ended, and the library waits for the next one.
    Silence,
    /// The heads of a response.
    Heads(HeadScan),
    /// Whatever follows the last head.
    Body,
}

/// Socket and state of a connection, shared by the library's task, which reads and writes, and by the guard of the
/// connection, which says when an exchange begins and ends.
///
/// - Bytes that come while no exchange is going on end the connection.
/// - Heads are scanned before the HTTP library sees them.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    socket: RefCell<Socket>,
    expected: Cell<Expected>,
    /// True if a byte has come since the exchange began.
    received: Cell<bool>,
    /// Fields of the last response's head, once it has been scanned to its end, if all were found.
    fields: Cell<Option<FieldSet>>,
    /// Lines that go into the head of the current request; none when they were written.
    added: RefCell<Option<AddedLines>>,
    large_reads: RefCell<LargeReads>,
    /// Head of the last request, if it may be sent again.
    sent_head: RefCell<SentHead>,
    /// Counts the connection. Dropped behind the socket, which is declared before it.
    permit: ConnectionPermit,
}

/// Byte stream over the socket of a [`ConnectionState`].
#[derive(Debug)]
pub(crate) struct ScannedStream(Rc<ConnectionState>);

impl ConnectionState {
    pub(crate) fn new(socket: Socket, permit: ConnectionPermit) -> Rc<Self> {
        Rc::new(Self {
            socket: RefCell::new(socket),
            expected: Cell::new(Expected::Nothing),
            received: Cell::new(false),
            fields: Cell::new(None),
            added: RefCell::default(),
            large_reads: RefCell::default(),
            sent_head: RefCell::default(),
            permit,
        })
    }

    /// The byte stream that scans.
    pub(crate) fn stream(self: &Rc<Self>) -> ScannedStream {
        ScannedStream(Rc::clone(self))
    }

    /// Marks a connection that is closed for a waiting request.
    pub(crate) fn mark_closing(&self) {
        self.permit.closing_mark().set();
    }

    /// Returns whether the socket is open and nothing waits to be read from it: see [`Socket::is_silent`].
    pub(crate) fn is_silent(&self, polled: bool) -> bool {
        self.socket.borrow_mut().is_silent(polled)
    }

    /// Begins an exchange: from now on the upstream may send the heads of a response. `added`: lines that go into the
    /// head of the request. `keeps`: the part of the request that is kept, as it may be sent again.
    pub(crate) fn begin_exchange(&self, added: FieldLines, keeps: Kept) {
        debug_assert!(
            matches!(self.expected.get(), Expected::Nothing | Expected::Silence),
            "a connection carries one exchange at a time"
        );
        self.sent_head.borrow_mut().begin(keeps);
        *self.added.borrow_mut() = (!added.is_empty()).then(|| AddedLines::new(added));
        self.large_reads().begin_exchange();
        self.expected.set(Expected::Heads(HeadScan::default()));
        self.fields.set(None);
        self.received.set(false);
    }

    /// Ends an exchange whose response came whole, and whose request went whole: the library is ready for another one.
    pub(crate) fn end_exchange(&self) {
        self.expected.set(Expected::Silence);
    }

    /// Returns whether the library, ready for another request, has got none, and nothing has come from the upstream.
    /// Then the task is woken when something comes.
    pub(crate) fn is_undisturbed(&self, cx: &mut Context<'_>) -> bool {
        matches!(self.expected.get(), Expected::Silence) && self.socket.borrow_mut().poll_readable(cx).is_pending()
    }

    /// Takes the lines for a request of which nothing was written.
    pub(crate) fn take_unsent_lines(&self) -> Option<FieldLines> {
        self.added.take().and_then(AddedLines::into_unsent)
    }

    /// Makes the head of the exchange's request again; none when it was not kept.
    pub(crate) fn sent_head(&self) -> Option<Request<()>> {
        self.sent_head.borrow().request()
    }

    /// Returns whether a byte has come since the exchange began.
    pub(crate) fn has_received(&self) -> bool {
        self.received.get()
    }

    /// Begins with a new instance of the HTTP library, whose buffer is small. It is not ready for a request yet.
    pub(crate) fn begin_instance(&self) {
        let is_idle = matches!(self.expected.replace(Expected::Nothing), Expected::Nothing | Expected::Silence);
        debug_assert!(is_idle, "an exchange belongs to one instance");
        self.large_reads.take();
    }

    /// Bound on the reads of the HTTP library's instance.
    pub(crate) fn large_reads(&self) -> RefMut<'_, LargeReads> {
        self.large_reads.borrow_mut()
    }

    /// Returns whether the upstream has closed the connection before the request was sent whole.
    pub(crate) fn has_failed_write(&self) -> bool {
        self.socket.borrow().has_failed_write()
    }

    /// Fields of the response's head that are acted on; none when some of them may have been missed.
    pub(crate) fn fields(&self) -> Option<FieldSet> {
        self.fields.get()
    }

    /// Writes what the library offers, with the lines that go into its head.
    fn poll_write(&self, cx: &mut Context<'_>, offered: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut socket = self.socket.borrow_mut();
        let mut added = self.added.borrow_mut();
        let Some(lines) = &mut *added else {
            self.sent_head.borrow_mut().record(offered.iter().map(Deref::deref));
            return Pin::new(&mut *socket).poll_write_vectored(cx, offered);
        };
        if let Some(head) = lines.begin(offered)? {
            self.sent_head.borrow_mut().record_with(head);
        }
        let written = lines.poll_write(offered, |pieces| Pin::new(&mut *socket).poll_write_vectored(cx, pieces));
        if lines.is_done() {
            *added = None;
        }
        written
    }

    fn scan(&self, bytes: &[u8]) -> io::Result<()> {
        // The end of the stream, which the library judges.
        if bytes.is_empty() {
            return Ok(());
        }
        self.received.set(true);
        match self.expected.get() {
            Expected::Body => Ok(()),
            // The library would take these bytes for the response to the next request.
            Expected::Nothing | Expected::Silence => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "bytes between two responses"))
            }
            Expected::Heads(mut scan) => {
                let ended = scan.advance(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                if ended {
                    self.fields.set(scan.fields());
                }
                self.expected.set(if ended { Expected::Body } else { Expected::Heads(scan) });
                Ok(())
            }
        }
    }
}

impl ScannedStream {
    /// Has the kernel reset the connection when it is closed (`SO_LINGER` 0).
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        self.0.socket.borrow().set_zero_linger()
    }
}

impl AsyncRead for ScannedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.0.large_reads().poll_read(&mut *self.0.socket.borrow_mut(), cx, buf))?;
        Poll::Ready(self.0.scan(&buf.filled()[before..]))
    }
}

impl AsyncWrite for ScannedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.socket.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.socket.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.socket.borrow_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    use super::*;

    async fn connect() -> (Rc<ConnectionState>, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ConnectionState::new(stream.into(), ConnectionPermit::unbounded()), listener.accept().unwrap().0)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_in_the_kernel_are_seen_at_once() {
        let (state, mut peer) = connect().await;
        assert!(state.is_silent(false));
        peer.write_all(b"x").unwrap();
        assert!(!state.is_silent(false), "the runtime has had no turn to read it");
        let (state, peer) = connect().await;
        drop(peer);
        assert!(!state.is_silent(false), "closed");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_are_accepted_only_within_an_exchange() {
        let (state, mut peer) = connect().await;
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(state.stream().read(&mut [0; 64]).await.is_err());
        let (state, mut peer) = connect().await;
        state.begin_exchange(FieldLines::default(), Kept::Nothing);
        assert!(!state.has_received());
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert_eq!(state.stream().read(&mut [0; 64]).await.unwrap(), 19);
        assert!(state.has_received());
        state.end_exchange();
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(state.stream().read(&mut [0; 64]).await.is_err());
    }
}
