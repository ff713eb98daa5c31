//! Gathers the writes of one poll of an HTTP/2 connection, so that they are made together.
//!
//! The HTTP library writes and flushes each piece of a response of some hundred bytes by itself. When several responses
//! are ready in one turn of the event loop, that would be a system call for each, and with TLS a record for each.
//!
//! - A flush of the library sends nothing. [`GatheredConnection`] sends at the end of each poll of the connection,
//!   whatever the poll has returned: nothing is left behind while its task sleeps, unless the client does not take it.
//!   Then the task is woken when the client does.
//! - At most [`MAX_GATHERED`] bytes are held. A write that does not fit goes to the stream behind what was gathered,
//!   without being copied; it is pending while the client takes nothing, as it is without this.
//! - The bytes keep their order, and their memory is given back when they are sent.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use platform::byte_stream::SharedStream;

/// Bytes that are held at most: a record of TLS, and some ten small responses. Larger pieces gain nothing by a copy.
const MAX_GATHERED: usize = 16 * 1024;
/// Room for the first writes: several small responses.
const FIRST_ROOM: usize = 4 * 1024;
/// Pieces of a write that go to the stream together with what was gathered. The library has two.
const MAX_PIECES: usize = 4;

/// A stream whose writes are held until they are sent.
pub(super) struct WriteGatherer<S> {
    stream: S,
    /// Bytes that were written to this, and not yet to the stream.
    gathered: Vec<u8>,
    /// The stream was written to, and not flushed since.
    needs_flush: bool,
}

impl<S: AsyncWrite + Unpin> WriteGatherer<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, gathered: Vec::new(), needs_flush: false }
    }

    /// Sends what was gathered. Ready when the stream has taken everything.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            ready!(self.poll_write_through(cx, &[]))?;
        }
        // An idle connection holds no memory for writes.
        self.gathered = Vec::new();
        if self.needs_flush {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what was gathered, and these pieces behind it. Returns the bytes of the pieces that the stream has taken.
    fn poll_write_through(&mut self, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut all = [IoSlice::new(&self.gathered); MAX_PIECES];
        let count = pieces.len().min(MAX_PIECES - 1);
        all[1..=count].copy_from_slice(&pieces[..count]);
        self.needs_flush = true;
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &all[..=count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let from_gathered = written.min(self.gathered.len());
        self.gathered.drain(..from_gathered);
        Poll::Ready(Ok(written - from_gathered))
    }

    fn gather(&mut self, pieces: &[IoSlice<'_>]) {
        if self.gathered.capacity() == 0 {
            self.gathered.reserve(FIRST_ROOM);
        }
        pieces.iter().for_each(|piece| self.gathered.extend_from_slice(piece));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteGatherer<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteGatherer<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if self.gathered.len() + length <= MAX_GATHERED {
            self.gather(pieces);
            return Poll::Ready(Ok(length));
        }
        // The stream may take all that was gathered and nothing of the pieces.
        loop {
            let written = ready!(self.poll_write_through(cx, pieces))?;
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Sends nothing; see the module.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

pin_project! {
    /// A connection that writes through a [`WriteGatherer`], which is sent at the end of each of its polls.
    pub(super) struct GatheredConnection<C, S> {
        #[pin]
        pub(super) connection: C,
        pub(super) stream: SharedStream<WriteGatherer<S>>,
    }
}

impl<C, S> GatheredConnection<C, S> {
    /// The connection itself.
    pub(super) fn connection(self: Pin<&mut Self>) -> Pin<&mut C> {
        self.project().connection
    }
}

impl<C: Future<Output = hyper::Result<()>>, S: AsyncWrite + Unpin> Future for GatheredConnection<C, S> {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = this.connection.poll(cx);
        match this.stream.borrow_mut().poll_send(cx) {
            Poll::Ready(Err(error)) if result.is_pending() => {
                tracing::debug!(%error, "a downstream connection ended with an error");
                Poll::Ready(Ok(()))
            }
            _ => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    /// A client that takes as many bytes as it has room for.
    #[derive(Default)]
    struct Client {
        room: usize,
        taken: Vec<u8>,
        writes: usize,
        flushes: usize,
    }

    impl AsyncWrite for Client {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(buf)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            let written = all.len().min(self.room);
            if written == 0 {
                return Poll::Pending;
            }
            self.room -= written;
            self.taken.extend_from_slice(&all[..written]);
            self.writes += 1;
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Tested {
        gatherer: WriteGatherer<Client>,
        written: Vec<u8>,
    }

    impl Tested {
        fn new(room: usize) -> Self {
            Self { gatherer: WriteGatherer::new(Client { room, ..Client::default() }), written: Vec::new() }
        }

        /// Writes this many bytes, all different from their neighbours, as a head and a rest; true when it was ready.
        fn write(&mut self, length: usize) -> bool {
            let first = self.written.len();
            let bytes: Vec<u8> = (first..first + length).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let (head, rest) = bytes.split_at(length / 3);
            let pieces = [IoSlice::new(head), IoSlice::new(rest)];
            let written = Pin::new(&mut self.gatherer).poll_write_vectored(&mut noop(), &pieces);
            let Poll::Ready(written) = written else { return false };
            self.written.extend_from_slice(&bytes[..written.unwrap()]);
            true
        }

        fn flush(&mut self) {
            assert!(Pin::new(&mut self.gatherer).poll_flush(&mut noop()).is_ready());
        }

        fn send(&mut self) -> bool {
            self.gatherer.poll_send(&mut noop()).map(Result::unwrap).is_ready()
        }

        fn client(&mut self) -> &mut Client {
            &mut self.gatherer.stream
        }
    }

    fn noop() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn writes_of_one_poll_are_one() {
        let mut tested = Tested::new(usize::MAX);
        for _ in 0..4 {
            assert!(tested.write(1200));
            tested.flush();
        }
        assert_eq!(tested.client().writes, 0, "nothing is sent before the end of the poll");
        assert!(tested.send());
        assert_eq!((tested.client().writes, tested.client().flushes), (1, 1));
        assert_eq!(tested.gatherer.stream.taken, tested.written);
        assert_eq!(tested.gatherer.gathered.capacity(), 0, "an idle connection holds no memory");
        assert!(tested.send());
        assert_eq!((tested.client().writes, tested.client().flushes), (1, 1), "there is nothing to send");
    }

    #[test]
    fn large_write_goes_together_with_what_was_gathered() {
        let mut tested = Tested::new(usize::MAX);
        assert!(tested.write(100));
        assert!(tested.write(MAX_GATHERED));
        assert_eq!(tested.client().writes, 1);
        assert_eq!(tested.gatherer.stream.taken, tested.written);
        assert_eq!(tested.client().flushes, 0);
        assert!(tested.send());
        assert_eq!(tested.client().flushes, 1, "what a stream like TLS holds is sent as well");
    }

    #[test]
    fn client_that_takes_nothing_stops_the_library() {
        let mut tested = Tested::new(0);
        let mut writes = 0;
        while tested.write(1000) {
            writes += 1;
        }
        assert_eq!(writes, MAX_GATHERED / 1000);
        assert!(!tested.send());
        tested.client().room = 1500;
        assert!(!tested.send(), "a part was taken");
        tested.client().room = usize::MAX;
        assert!(tested.send() && tested.write(1000) && tested.send());
        assert_eq!(tested.gatherer.stream.taken, tested.written);
    }

    proptest! {
        #[test]
        fn bytes_keep_their_order_and_none_is_left(
            steps in prop::collection::vec((0_usize..3, 0_usize..20_000, prop::option::of(0_usize..9_000)), 1..40),
        ) {
            let mut tested = Tested::new(0);
            for (kind, length, room) in steps {
                tested.client().room = room.unwrap_or(tested.client().room);
                match kind {
                    0 => drop(tested.write(length)),
                    1 => drop(tested.write(length / 30)),
                    _ => drop(tested.send()),
                }
                tested.flush();
                prop_assert!(tested.gatherer.gathered.len() <= MAX_GATHERED);
            }
            tested.client().room = usize::MAX;
            prop_assert!(tested.send());
            let Tested { gatherer, written } = tested;
            prop_assert_eq!(gatherer.stream.taken, written);
        }
    }
}
