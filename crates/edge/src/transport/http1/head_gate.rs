//! The gate between an HTTP/1 connection's bytes and the HTTP library.
//!
//! - A head passes when all of it has come and has been found valid ([`super::head`]), and when the exchange before it
//!   has ended. So the library reads nothing that another server could read differently, and every refusal is answered
//!   in the caller's words, after all responses that were due before.
//! - A head that arrives whole, as nearly all do, is checked in the library's own buffer and not copied.
//! - Bytes behind a request wait until its exchange has ended.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncWrite as _, ReadBuf};

use super::chunked::ChunkedScanner;
use super::head::{BodyFraming, HeadLimits, HeadScanner};
use super::state::Http1State;
use crate::transport::stream::SharedStream;
use domain::head_fields::CredentialFields;
use platform::byte_stream::StreamInspector;

/// Bytes read at a time of a head that does not arrive whole; more than most heads.
const PIECE: usize = 4096;

/// The part of a request that the next byte belongs to.
///
/// ```text
/// Head ──no body──▶ Head        Head ──Content-Length──▶ Length ──end──▶ Head
///                               Head ──chunked──▶ Chunked ──end──▶ Head, or ──invalid──▶ Invalid
/// ```
#[derive(Debug)]
enum Part {
    /// A head, or the time before one.
    Head(HeadScanner),
    /// A body of which this many bytes are left.
    Length(u64),
    /// A chunked body.
    Chunked(ChunkedScanner),
    /// A chunked body with invalid framing. Nothing is read after it.
    Invalid,
}

/// Inspects what an HTTP/1 connection reads, and holds back what the library may not see yet.
pub(super) struct HeadGate {
    state: Rc<Http1State>,
    limits: HeadLimits,
    credentials: CredentialFields,
    part: Part,
    /// Bytes that have come and have not gone to the library. The first `released` of them may go.
    held: BytesMut,
    released: usize,
}

impl HeadGate {
    pub(super) fn new(state: Rc<Http1State>, limits: HeadLimits, credentials: CredentialFields) -> Self {
        Self { state, limits, credentials, part: Part::head(), held: BytesMut::new(), released: 0 }
    }

    /// The bytes that have come and have not gone to the library: those behind the request of an upgrade.
    pub(super) fn into_held(self) -> BytesMut {
        self.held
    }

    /// Scans `bytes`, which follow on those that were released. Returns how many of them may go to the library now.
    fn scan(&mut self, bytes: &[u8]) -> usize {
        let mut released = 0;
        while released < bytes.len() {
            let (length, next) = self.scan_part(&bytes[released..]);
            // The part cannot go on with what has come.
            if length == 0 && next.is_none() {
                break;
            }
            released += length;
            if let Some(next) = next {
                self.part = next;
            }
        }
        released
    }

    /// Scans bytes of the current part. Returns how many of them belong to it and may go to the library, and the part
    /// that follows if it ends with them.
    fn scan_part(&mut self, bytes: &[u8]) -> (usize, Option<Part>) {
        match &mut self.part {
            Part::Head(_) if !self.state.may_read_head() => (0, None),
            Part::Head(scanner) => match scanner.scan(bytes, &self.limits, &self.credentials) {
                Ok(Some(head)) => {
                    self.state.pass_head(head.fields);
                    (head.length, Some(Part::body(head.framing)))
                }
                Ok(None) => {
                    // The time-out for heads begins with the first byte.
                    self.state.activity.begin_head();
                    (0, None)
                }
                Err(error) => {
                    self.state.refuse_head(error);
                    (0, None)
                }
            },
            Part::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= length as u64;
                (length, (*left == 0).then(Part::head))
            }
            Part::Chunked(scanner) => match scanner.scan(bytes) {
                Ok((length, has_ended)) => (length, has_ended.then(Part::head)),
                Err(_) => (0, Some(Part::Invalid)),
            },
            Part::Invalid => (0, None),
        }
    }

    /// Scans the held bytes. Returns what the library is to get if none of them is released and more would not help.
    fn release_held(&mut self, cx: &Context<'_>) -> Option<Poll<io::Result<()>>> {
        // Taken out for the scan, which changes the rest of the gate.
        let held = std::mem::take(&mut self.held);
        self.released = self.scan(&held);
        self.held = held;
        if self.released > 0 {
            return None;
        }
        self.block_reading(cx)
    }

    /// The result of reading when no more bytes are wanted now.
    fn block_reading(&self, cx: &Context<'_>) -> Option<Poll<io::Result<()>>> {
        match self.part {
            Part::Invalid => Some(Poll::Ready(Err(io::ErrorKind::InvalidData.into()))),
            // To the library the connection has ended: it sends the responses that are due, and closes.
            Part::Head(_) if self.state.head_error.get().is_some() => Some(Poll::Ready(Ok(()))),
            // A pipelined request stays unread, so that the client cannot fill our memory.
            Part::Head(_) if !self.state.may_read_head() => {
                self.state.wait_for_exchange_end(cx);
                Some(Poll::Pending)
            }
            _ => None,
        }
    }

    /// Reads into the library's buffer, leaves there what is released, and holds the rest. Returns the bytes read.
    fn read_through(
        &mut self,
        stream: &mut SharedStream,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        ready!(self.state.large_reads.borrow_mut().poll_read(stream, cx, buf))?;
        let read = buf.filled().len() - before;
        let released = self.scan(&buf.filled()[before..]);
        self.held.extend_from_slice(&buf.filled()[before + released..]);
        buf.set_filled(before + released);
        Poll::Ready(Ok(read))
    }

    /// Reads more of a head that did not arrive whole, behind what is held. Returns the bytes read.
    fn read_more(&mut self, stream: &mut SharedStream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.held.reserve(PIECE);
        tokio_util::io::poll_read_buf(Pin::new(stream), cx, &mut self.held)
    }

    /// Gives the library what is released.
    fn hand_over(&mut self, buf: &mut ReadBuf<'_>) {
        let take = self.released.min(buf.remaining());
        buf.put_slice(&self.held[..take]);
        self.held.advance(take);
        self.released -= take;
        self.note_unread_body();
    }

    /// Notes whether the library has the whole request. A response that comes before that is the connection's last.
    fn note_unread_body(&self) {
        self.state.has_unread_body.set(self.released > 0 || !matches!(self.part, Part::Head(_)));
    }
}

impl Part {
    fn head() -> Self {
        Self::Head(HeadScanner::default())
    }

    /// The part that follows a head.
    fn body(framing: BodyFraming) -> Self {
        match framing {
            BodyFraming::Length(0) => Self::head(),
            BodyFraming::Length(length) => Self::Length(length),
            BodyFraming::Chunked => Self::Chunked(ChunkedScanner::new()),
        }
    }
}

impl StreamInspector<SharedStream> for HeadGate {
    fn poll_read(
        &mut self,
        stream: &mut SharedStream,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            if self.released > 0 {
                self.hand_over(buf);
                return Poll::Ready(Ok(()));
            }
            let read = if self.held.is_empty() {
                let read = self.read_through(stream, cx, buf);
                self.state.awaits_head.set(read.is_pending() && matches!(self.part, Part::Head(_)));
                ready!(read)?
            } else if let Some(blocked) = self.release_held(cx) {
                return blocked;
            } else if self.released > 0 {
                continue;
            } else {
                ready!(self.read_more(stream, cx))?
            };
            // The client has closed its half, or some bytes were released at once. Otherwise all that was read is held:
            // it is looked at again, or more of it is read.
            if read == 0 || buf.filled().len() > before {
                self.note_unread_body();
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn inspect_write(&mut self, written: &Poll<io::Result<usize>>) {
        self.state.record_write(written.is_ready());
    }

    fn inspect_flush(&mut self, flushed: &Poll<io::Result<()>>) {
        self.state.record_write(flushed.is_ready());
    }

    fn poll_shutdown(&mut self, stream: &mut SharedStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The response to a refused head is still to be written, when the library has ended.
        if self.state.head_error.get().is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(stream).poll_shutdown(cx)
    }
}
