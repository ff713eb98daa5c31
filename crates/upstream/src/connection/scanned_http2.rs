//! Byte stream of an HTTP/2 connection, whose frames are scanned before the HTTP library reads them: an upstream may
//! flood the connection, send interim responses without bound, or switch protocols, as a client may not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::head_scan::MAX_INTERIM;
use http2_frames::FrameScanner;

/// State of what has passed on a connection to an upstream, written by its stream and read by its requests.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Frames of responses.
    frames: AtomicU64,
    /// True while some response has begun with an interim one and has no final one.
    has_interim: AtomicBool,
    /// Resets that were sent.
    resets: AtomicUsize,
}

/// Byte stream that scans what it reads and writes.
#[derive(Debug)]
pub(crate) struct ScannedHttp2Stream<S> {
    stream: S,
    scanner: FrameScanner,
    answers: Arc<Answers>,
}

impl Answers {
    /// Number of frames of responses so far.
    pub(crate) fn count(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    /// Returns whether some response has begun with an interim one and has no final one.
    pub(crate) fn has_interim(&self) -> bool {
        self.has_interim.load(Relaxed)
    }

    /// Number of resets that were sent so far.
    pub(crate) fn resets(&self) -> usize {
        self.resets.load(Relaxed)
    }
}

impl<S> ScannedHttp2Stream<S> {
    pub(crate) fn new(stream: S, answers: Arc<Answers>) -> Self {
        Self { stream, scanner: FrameScanner::of_upstream(MAX_INTERIM), answers }
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        let resets = self.scanner.note_sent(bytes);
        if resets > 0 {
            self.answers.resets.fetch_add(resets, Relaxed);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ScannedHttp2Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let scanned = self.scanner.scan(&mut buf.filled_mut()[before..]);
        self.answers.frames.store(self.scanner.answers(), Relaxed);
        self.answers.has_interim.store(self.scanner.has_interim(), Relaxed);
        Poll::Ready(scanned.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ScannedHttp2Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.note_sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces))?;
        let mut left = written;
        for piece in pieces {
            let taken = left.min(piece.len());
            self.note_sent(&piece[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(written))
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
