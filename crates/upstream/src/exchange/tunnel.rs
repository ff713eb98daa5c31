//! Upstream's end of a tunnel: a connection after its 101 response.
//!
//! It implements the traits itself, because it also holds the count of requests in flight until it is dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::scanned_stream::ScannedStream;
use crate::endpoint::endpoints::InFlight;

/// Byte stream of a connection after its 101 response. It is never pooled, and counts as in flight until it is dropped.
#[derive(Debug)]
pub struct Tunnel {
    /// Bytes that came along with the 101: the HTTP library has read them already.
    ahead: Bytes,
    stream: ScannedStream,
    _in_flight: InFlight,
}

impl Tunnel {
    pub(crate) fn new(ahead: Bytes, stream: ScannedStream, in_flight: InFlight) -> Self {
        Self { ahead, stream, _in_flight: in_flight }
    }

    /// Has the connection reset when it is closed: its end is then not taken for the end of what was sent.
    pub fn reset_on_close(&self) {
        if let Err(error) = self.stream.reset_on_close() {
            tracing::debug!(%error, "cannot set SO_LINGER: the connection to the upstream is closed without a reset");
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.has_remaining() {
            let take = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(take));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
