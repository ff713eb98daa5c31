//! The bytes of an upstream connection, and what they may be at a time.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head_scan::HeadScan;
use super::socket::Socket;

/// What the upstream may say at the moment.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// Nothing: no request is going on.
    Nothing,
    /// The heads of a response.
    Heads(HeadScan),
    /// What follows the last of them.
    Rest,
}

/// A connection's socket and state, shared by its task, which reads and writes, and its lease, which says what for.
///
/// - Bytes that come while no request is going on end the connection.
/// - Heads are scanned before the HTTP library sees them.
#[derive(Debug)]
pub(super) struct ConnectionState {
    stream: RefCell<Socket>,
    reading: Cell<Reading>,
    /// Whether a byte has come since the request began.
    answered: Cell<bool>,
}

/// The task's end of a [`ConnectionState`].
#[derive(Debug)]
pub(super) struct ScannedStream(Rc<ConnectionState>);

impl ConnectionState {
    pub(super) fn new(stream: Socket) -> Rc<Self> {
        Rc::new(Self { stream: RefCell::new(stream), reading: Cell::new(Reading::Nothing), answered: Cell::new(false) })
    }

    pub(super) fn wire(self: &Rc<Self>) -> ScannedStream {
        ScannedStream(Rc::clone(self))
    }

    /// Whether the socket is open and nothing waits to be read from it. Asks the kernel, one system call: what the
    /// runtime knows may be a turn of its loop old, and a byte that came in it would be taken for the next response. What
    /// came encrypted may have been read from the kernel already.
    pub(super) fn is_silent(&self) -> bool {
        let mut stream = self.stream.borrow_mut();
        let peeked = SockRef::from(stream.socket()).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) && !stream.has_read_ahead()
    }

    /// A request is about to be sent.
    pub(super) fn begin(&self) {
        self.reading.set(Reading::Heads(HeadScan::default()));
        self.answered.set(false);
    }

    /// The exchange has ended whole.
    pub(super) fn end(&self) {
        self.reading.set(Reading::Nothing);
    }

    /// Whether a byte has come since the request began.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.get()
    }

    fn received(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.answered.set(true);
        match self.reading.get() {
            Reading::Rest => Ok(()),
            Reading::Nothing => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes between two responses")),
            Reading::Heads(mut scan) => {
                let ended = scan.advance(bytes).map_err(|flaw| io::Error::new(io::ErrorKind::InvalidData, flaw))?;
                self.reading.set(if ended { Reading::Rest } else { Reading::Heads(scan) });
                Ok(())
            }
        }
    }
}

impl AsyncRead for ScannedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut *self.0.stream.borrow_mut()).poll_read(cx, buf))?;
        Poll::Ready(self.0.received(&buf.filled()[before..]))
    }
}

impl AsyncWrite for ScannedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.stream.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.stream.borrow_mut()).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.stream.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.stream.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.stream.borrow_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    use super::*;

    async fn link() -> (Rc<ConnectionState>, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (ConnectionState::new(Socket::Plain(stream)), listener.accept().unwrap().0)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_waits_in_the_kernel_is_known_at_once() {
        let (link, mut peer) = link().await;
        assert!(link.is_silent());
        peer.write_all(b"x").unwrap();
        assert!(!link.is_silent(), "the runtime has had no turn");
        let (link, peer) = self::link().await;
        drop(peer);
        assert!(!link.is_silent(), "closed");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_are_read_only_for_a_request() {
        let (link, mut peer) = link().await;
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(link.wire().read(&mut [0; 64]).await.is_err());
        let (link, mut peer) = self::link().await;
        link.begin();
        assert!(!link.is_answered());
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert_eq!(link.wire().read(&mut [0; 64]).await.unwrap(), 19);
        assert!(link.is_answered());
        link.end();
        peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(link.wire().read(&mut [0; 64]).await.is_err());
    }
}
