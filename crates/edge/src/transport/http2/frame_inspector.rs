//! Inspects the frames of an HTTP/2 connection on their way to the HTTP library: ends the connection when they are a
//! flood, and has the library refuse malformed heads that it would accept.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::state::Http2State;
use crate::transport::stream::SharedStream;
use http2_frames::FrameScanner;
use platform::byte_stream::StreamInspector;

/// Inspects what an HTTP/2 connection reads and writes.
pub(super) struct FrameInspector {
    state: Rc<Http2State>,
    frames: FrameScanner,
}

impl FrameInspector {
    pub(super) fn new(state: Rc<Http2State>, max_streams: u32) -> Self {
        Self { state, frames: FrameScanner::of_client(max_streams) }
    }
}

impl StreamInspector<SharedStream> for FrameInspector {
    fn poll_read(
        &mut self,
        stream: &mut SharedStream,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        // First the credit: the frames that have come may answer the pieces that were sent.
        self.frames.credit_pieces(self.state.take_uncredited_pieces());
        let bytes = &mut buf.filled_mut()[before..];
        if let Err(error) = self.frames.scan(bytes) {
            self.state.frame_error.set(Some(error));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        if !bytes.is_empty() {
            self.state.record_frames(self.frames.in_head(), self.frames.highest_stream());
        }
        read
    }

    fn inspect_write(&mut self, written: &Poll<io::Result<usize>>) {
        self.state.activity.record_write(written.is_ready());
        if let Poll::Ready(Ok(bytes)) = written {
            self.frames.credit_sent(*bytes);
        }
    }

    fn inspect_flush(&mut self, flushed: &Poll<io::Result<()>>) {
        self.state.activity.record_write(flushed.is_ready());
    }

    fn poll_shutdown(&mut self, stream: &mut SharedStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(stream).poll_shutdown(cx)
    }
}
