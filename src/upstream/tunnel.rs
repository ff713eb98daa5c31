//! A connection behind a 101: the upstream's end of a tunnel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::endpoint::InFlight;
use super::scanned_stream::ScannedStream;

/// The upstream's bytes behind its 101. The connection is never pooled, and counts as in flight until it is dropped.
#[derive(Debug)]
pub struct Tunnel {
    /// What came along with the 101.
    ahead: Bytes,
    wire: ScannedStream,
    _in_flight: InFlight,
}

impl Tunnel {
    pub(super) fn new(ahead: Bytes, wire: ScannedStream, in_flight: InFlight) -> Self {
        Self { ahead, wire, _in_flight: in_flight }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.has_remaining() {
            let take = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(take));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.wire).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}
