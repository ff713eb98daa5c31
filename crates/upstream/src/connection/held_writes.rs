//! Writes of a connection whose errors are held back until everything that the peer sent was read.
//!
//! A server that refuses an upload early sends its response, and closes without reading the rest. Its kernel then
//! resets the connection, and the next write fails while the response still waits in the receive queue (RFC 9112,
//! section 9.6). The HTTP library gives an exchange up with the first error of a write. So a write that fails because
//! the peer has closed stays pending until a read has brought the end, or an error: a response that has come is found
//! before.

use std::io::{self, ErrorKind};
use std::task::{Context, Poll, Waker};

/// Writes of one connection.
#[derive(Debug, Default)]
pub(crate) struct HeldWrites {
    /// True once a write has failed because the peer has closed.
    has_failed: bool,
    /// True once a read has brought the end, or an error.
    has_read_all: bool,
    /// Task whose write is held back.
    writer: Option<Waker>,
}

impl HeldWrites {
    /// Returns whether a write has failed because the peer has closed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Writes, and holds back the error of a closed connection while there may be something to read.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.has_failed && !self.has_read_all {
            return self.hold(cx);
        }
        let written = write(cx);
        match &written {
            Poll::Ready(Err(error)) if is_closed(error.kind()) => self.has_failed = true,
            _ => return written,
        }
        if self.has_read_all { written } else { self.hold(cx) }
    }

    /// Sees the result of a read that had room for bytes, and returned so many.
    pub(crate) fn note_read(&mut self, read: &Poll<io::Result<()>>, bytes: usize) {
        let is_end = match read {
            Poll::Ready(Ok(())) => bytes == 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_end {
            self.has_read_all = true;
            self.writer.take().into_iter().for_each(Waker::wake);
        }
    }

    fn hold<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Returns whether the error of a socket says that its peer has closed the connection.
pub(crate) fn is_closed(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    matches!(kind, ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_error_is_seen_behind_the_end_of_what_was_read() {
        let mut writes = HeldWrites::default();
        let mut cx = Context::from_waker(Waker::noop());
        let failing = |_: &mut Context<'_>| Poll::Ready(Err::<(), _>(ErrorKind::BrokenPipe.into()));
        assert!(writes.poll(&mut cx, |_| Poll::Ready(Ok(()))).is_ready() && !writes.has_failed());
        assert!(writes.poll(&mut cx, failing).is_pending() && writes.has_failed());
        writes.note_read(&Poll::Ready(Ok(())), 10);
        assert!(writes.poll(&mut cx, |_| -> Poll<io::Result<()>> { unreachable!("it has failed") }).is_pending());
        writes.note_read(&Poll::Ready(Ok(())), 0);
        assert!(writes.writer.is_none(), "it was woken");
        assert!(matches!(writes.poll(&mut cx, failing), Poll::Ready(Err(_))));
    }

    #[test]
    fn other_errors_of_writes_are_seen_at_once() {
        let mut writes = HeldWrites::default();
        let mut cx = Context::from_waker(Waker::noop());
        let failing = |_: &mut Context<'_>| Poll::Ready(Err::<(), _>(ErrorKind::InvalidData.into()));
        assert!(writes.poll(&mut cx, failing).is_ready() && !writes.has_failed());
    }
}
