//! The bytes of an HTTP/1 connection on their way to and from the HTTP library.
//!
//! - No head reaches the library before all of it has come and has been found sound ([`super::head`]), and none before
//!   the exchange before it has ended. So the library reads nothing that another server could read otherwise, and every
//!   refusal is in the caller's words, said when all that was to be said before has been.
//! - Heads that arrive whole, as nearly all do, are checked where they lie, and not copied.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::chunks::Chunks;
use super::head::{BodyFraming, HeadLimits, HeadScanner};
use crate::transport::activity::Progress;
use crate::transport::stream::SharedStream;

/// More than most heads, for those that do not arrive whole.
const PIECE: usize = 4096;

/// Where in the sequence of requests the bytes are.
#[derive(Debug)]
enum At {
    /// In a head, or before one.
    Head(HeadScanner),
    /// In a body with this many bytes left.
    Length(u64),
    /// In a chunked body.
    Chunks(Chunks),
    /// In a body whose framing is broken.
    Broken,
}

/// A downstream HTTP/1 connection's bytes.
pub(super) struct Io {
    stream: SharedStream,
    progress: Rc<Progress>,
    limits: HeadLimits,
    at: At,
    /// What has come and is not for the library yet, after what is.
    held: BytesMut,
    /// Bytes of `held` that are for the library.
    released: usize,
}

impl Io {
    pub(super) fn new(stream: SharedStream, progress: Rc<Progress>, limits: HeadLimits) -> Self {
        Self { stream, progress, limits, at: At::Head(HeadScanner::default()), held: BytesMut::new(), released: 0 }
    }

    /// What has come and was not handed on: what follows the request of an upgrade.
    pub(super) fn into_held(self) -> BytesMut {
        self.held
    }

    /// How many of the bytes, which follow on what was handed on, may be handed on now.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            let (here, next) = match &mut self.at {
                At::Head(_) if !self.progress.wants_head() || self.progress.refusal().is_some() => break,
                At::Head(scanner) => match scanner.scan(rest, &self.limits) {
                    Ok(Some(head)) => {
                        self.progress.head_ends();
                        (head.length, Some(At::body(head.framing)))
                    }
                    Ok(None) => {
                        self.progress.head_begins();
                        break;
                    }
                    Err(why) => {
                        self.progress.refuse(why);
                        break;
                    }
                },
                At::Length(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= here as u64;
                    (here, (*left == 0).then(At::head))
                }
                At::Chunks(chunks) => match chunks.follow(rest) {
                    Ok((here, ended)) => (here, ended.then(At::head)),
                    Err(_) => (0, Some(At::Broken)),
                },
                At::Broken => break,
            };
            taken += here;
            if let Some(next) = next {
                self.at = next;
            }
        }
        taken
    }

    /// Looks at what is held; says whether there is nothing to be done but to wait for the exchange to end, or to give up.
    fn look(&mut self, cx: &Context<'_>) -> Option<Poll<io::Result<()>>> {
        let held = std::mem::take(&mut self.held);
        self.released = self.follow(&held);
        self.held = held;
        if self.released > 0 {
            return None;
        }
        self.stuck(cx)
    }

    /// Whether reading more would be of no use now.
    fn stuck(&self, cx: &Context<'_>) -> Option<Poll<io::Result<()>>> {
        match self.at {
            At::Broken => Some(Poll::Ready(Err(io::ErrorKind::InvalidData.into()))),
            // The end, to the library: it says what it has to say, and closes.
            At::Head(_) if self.progress.refusal().is_some() => Some(Poll::Ready(Ok(()))),
            At::Head(_) if !self.progress.wants_head() => {
                self.progress.wait_for_end(cx.waker());
                Some(Poll::Pending)
            }
            _ => None,
        }
    }

    /// Reads into the library's buffer what may be handed on at once, and holds the rest.
    fn read_through(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        let taken = self.follow(&buf.filled()[before..]);
        self.held.extend_from_slice(&buf.filled()[before + taken..]);
        buf.set_filled(before + taken);
        Poll::Ready(Ok(read))
    }

    /// Tells whether the library has the whole request.
    fn tell(&self) {
        self.progress.note_unread(self.released > 0 || !matches!(self.at, At::Head(_)));
    }

    /// Reads more of a head that did not arrive whole.
    fn read_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.held.reserve(PIECE);
        tokio_util::io::poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.held)
    }
}

impl At {
    fn head() -> Self {
        Self::Head(HeadScanner::default())
    }

    fn body(framing: BodyFraming) -> Self {
        match framing {
            BodyFraming::Length(0) => Self::head(),
            BodyFraming::Length(length) => Self::Length(length),
            BodyFraming::Chunked => Self::Chunks(Chunks::new()),
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        loop {
            if this.released > 0 {
                let take = this.released.min(buf.remaining());
                buf.put_slice(&this.held[..take]);
                this.held.advance(take);
                this.released -= take;
                this.tell();
                return Poll::Ready(Ok(()));
            }
            let read = if this.held.is_empty() {
                ready!(this.read_through(cx, buf))?
            } else if let Some(stuck) = this.look(cx) {
                return stuck;
            } else if this.released > 0 {
                continue;
            } else {
                ready!(this.read_more(cx))?
            };
            if read == 0 || buf.filled().len() > before {
                this.tell();
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.progress.written(written.is_ready());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.progress.written(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.progress.written(flushed.is_ready());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The refusal has still to be said.
        if self.progress.refusal().is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
