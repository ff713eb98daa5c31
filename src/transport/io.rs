//! The bytes of a downstream connection: what it is doing, since when, and its last words in place of the library's.
//!
//! The HTTP library answers a head that it cannot read by itself, with an empty response. [`Io`] recognizes these
//! answers and writes the caller's in their place, so that every refusal reads the same. It looks for them only where
//! the library speaks for itself: on HTTP/1 connections, between exchanges, when all of the last response is gone. So
//! no byte of a response's body is ever taken for one.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::connection::Unreadable;

/// No answer of the HTTP library's own is longer than this.
const CANNED_MAX: usize = 160;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between two exchanges, or before the first.
    Idle(Instant),
    /// Reading a head.
    Head(Instant),
    /// At least one exchange is going on.
    Exchange,
}

/// What a connection is doing, shared by its bytes, its service and its watchdog.
#[derive(Debug)]
pub(super) struct Progress {
    http2: bool,
    phase: Cell<Phase>,
    exchanges: Cell<u32>,
    /// Whether all of the last response is gone.
    flushed: Cell<bool>,
    /// Whether the last answer said that the connection closes: the rest of the request may still be on its way.
    closing: Cell<bool>,
    /// Whether the request line of the head being read has ended.
    line_ended: Cell<bool>,
}

impl Progress {
    pub(super) fn new(http2: bool) -> Self {
        Self {
            http2,
            flushed: Cell::new(true),
            closing: Cell::new(false),
            phase: Cell::new(Phase::Idle(Instant::now())),
            exchanges: Cell::new(0),
            line_ended: Cell::new(true),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// An exchange begins.
    pub(super) fn begin(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.phase.set(Phase::Exchange);
        self.flushed.set(false);
        self.line_ended.set(true);
    }

    /// An exchange ends; with the last one the connection is idle.
    pub(super) fn end(&self) {
        self.exchanges.set(self.exchanges.get() - 1);
        if self.exchanges.get() == 0 {
            self.phase.set(Phase::Idle(Instant::now()));
        }
    }

    /// The last answer says that the connection closes.
    pub(super) fn close(&self) {
        self.closing.set(true);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Whether every byte that was to be said has been said.
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.get()
    }

    /// Bytes have come. On HTTP/2 they may be anything, and only a stream is an exchange.
    fn received(&self, bytes: &[u8]) {
        if self.http2 || self.phase.get() == Phase::Exchange {
            return;
        }
        if let Phase::Idle(_) = self.phase.get() {
            self.phase.set(Phase::Head(Instant::now()));
            self.line_ended.set(false);
        }
        if !self.line_ended.get() {
            self.line_ended.set(bytes.contains(&b'\n'));
        }
    }
}

/// A downstream connection's bytes.
pub(super) struct Io {
    stream: TcpStream,
    /// What was read to find out the protocol.
    prefix: Bytes,
    progress: Rc<Progress>,
    answer: Rc<dyn Fn(Unreadable) -> Bytes>,
    /// What is left to write of our answer in place of the library's.
    answering: Option<Bytes>,
}

impl Io {
    pub(super) fn new(
        stream: TcpStream,
        prefix: Bytes,
        progress: Rc<Progress>,
        answer: Rc<dyn Fn(Unreadable) -> Bytes>,
    ) -> Self {
        progress.received(&prefix);
        Self { stream, prefix, progress, answer, answering: None }
    }

    /// The socket itself, for the last words of a connection.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Why the library gave up, when these bytes are its own answer.
    fn canned(&self, bytes: &[u8]) -> Option<Unreadable> {
        if self.progress.http2 || !self.progress.flushed.get() {
            return None;
        }
        if bytes.len() > CANNED_MAX || !bytes.starts_with(b"HTTP/1.1 4") || !is_canned(bytes) {
            return None;
        }
        match &bytes[9..12] {
            b"414" => Some(Unreadable::TargetTooLong),
            b"431" if !self.progress.line_ended.get() => Some(Unreadable::TargetTooLong),
            b"431" => Some(Unreadable::HeadTooLarge),
            _ => Some(Unreadable::Malformed),
        }
    }

    /// Writes all of our answer, then reports the library's as written.
    fn poll_answer(&mut self, cx: &mut Context<'_>, canned: usize) -> Poll<io::Result<usize>> {
        while let Some(rest) = self.answering.as_mut().filter(|rest| rest.has_remaining()) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
            rest.advance(written);
        }
        self.answering = None;
        Poll::Ready(Ok(canned))
    }
}

/// The library's own answers carry these three fields and nothing else; the heads of ours always carry more.
fn is_canned(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Some(head) = text.strip_suffix("\r\n\r\n") else { return false };
    let mut fields = head.split("\r\n").skip(1);
    let known = |line: &str| line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ");
    fields.clone().count() >= 2 && fields.all(known)
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.has_remaining() {
            let take = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix.split_to(take));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let received = &buf.filled()[before..];
        if !received.is_empty() {
            self.progress.received(received);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.answering.is_none() {
            let Some(why) = self.canned(buf) else { return Pin::new(&mut self.stream).poll_write(cx, buf) };
            self.answering = Some((self.answer)(why));
            self.progress.close();
        }
        self.poll_answer(cx, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The library flushes when its buffer is empty: then all that it had to say is gone.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.progress.exchanges.get() == 0 {
            self.progress.flushed.set(true);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_librarys_answers_from_others() {
        let canned = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        assert!(is_canned(canned.as_bytes()));
        let ours = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nx-request-id: 1\r\ndate: x\r\n\r\n";
        assert!(!is_canned(ours.as_bytes()));
        assert!(!is_canned(&canned.as_bytes()[..40]));
    }
}
