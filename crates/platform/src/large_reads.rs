//! Bound on large reads: how many connections may have grown buffers.
//!
//! The HTTP library doubles its buffer for as long as reads fill it: a body of 1 MiB then takes five reads instead of
//! 34. A slow client holds two or three pieces of that size, so a thousand of them would hold a gigabyte. A connection
//! may read up to `SMALL` bytes at a time as it likes; beyond, it needs one of `MAX_LARGE` permits. Without one
//! it goes on in small pieces.
//!
//! The library does not shrink a buffer. A permit is given back with the buffer: when the library's instance is
//! dropped.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Largest buffer of the HTTP library, for a connection's `max_buf_size`.
pub const MAX_BUFFER: usize = 256 * 1024;
/// Bytes that are read at a time without a permit: less than a power of two, which the library would grow at.
const SMALL: usize = 32 * 1024 - 1;
/// Connections of the process that may read more at a time. Three pieces each are 48 MiB.
const MAX_LARGE: usize = 64;

/// Permits that were acquired, and for a moment those that are about to be refused.
static ACQUIRED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Room for the reads of connections that have a grown buffer to read into, and no permit.
    static PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads of one connection, over one instance of the HTTP library.
#[derive(Debug, Default)]
pub struct LargeReads {
    permit: Option<Permit>,
    /// True if the current exchange has had a large read.
    is_used: bool,
}

/// Permit for large reads, given back on drop.
#[derive(Debug)]
struct Permit;

impl LargeReads {
    /// Reads from `stream` into the library's buffer: all of it, if it is small or there is a permit.
    pub fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() <= SMALL {
            return Pin::new(stream).poll_read(cx, buf);
        }
        if self.permit.is_none() {
            self.permit = Permit::acquire();
        }
        if self.permit.is_none() {
            return read_small(stream, cx, buf);
        }
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        self.is_used |= buf.filled().len() - before > SMALL;
        read
    }

    /// Begins an exchange.
    pub fn begin_exchange(&mut self) {
        self.is_used = false;
    }

    /// Returns whether the library's buffer may have grown.
    pub fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    /// Returns whether the library's buffer may have grown, and the current exchange had no use for that.
    pub fn is_unused(&self) -> bool {
        self.permit.is_some() && !self.is_used
    }
}

impl Permit {
    fn acquire() -> Option<Self> {
        let is_free = ACQUIRED.fetch_add(1, Relaxed) < MAX_LARGE;
        // Dropped, a refused one gives its count back.
        Some(Self).filter(|_| is_free)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        ACQUIRED.fetch_sub(1, Relaxed);
    }
}

/// Reads a small piece of what there is room for. By way of another buffer: a part of one that is not initialized can
/// be read into only once it is, and that costs even where nothing has come.
fn read_small(
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    PIECE.with_borrow_mut(|piece| {
        piece.resize(SMALL, 0);
        let mut small = ReadBuf::new(piece);
        ready!(Pin::new(stream).poll_read(cx, &mut small))?;
        buf.put_slice(small.filled());
        Poll::Ready(Ok(()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that one read into a buffer of this size brings.
    fn read(reads: &mut LargeReads, room: usize) -> usize {
        let mut buffer = vec![0; room];
        let mut buf = ReadBuf::new(&mut buffer);
        let endless = vec![7; room];
        let poll =
            reads.poll_read(&mut endless.as_slice(), &mut Context::from_waker(std::task::Waker::noop()), &mut buf);
        assert!(matches!(poll, Poll::Ready(Ok(()))));
        assert!(buf.filled().iter().all(|byte| *byte == 7));
        buf.filled().len()
    }

    /// One test: all tests of this process share the permits.
    #[test]
    fn connections_beyond_the_bound_read_small_pieces() {
        let mut large: Vec<_> = (0..MAX_LARGE).map(|_| LargeReads::default()).collect();
        assert!(large.iter_mut().all(|reads| read(reads, SMALL) == SMALL && !reads.has_permit()));
        assert!(large.iter_mut().all(|reads| read(reads, MAX_BUFFER) == MAX_BUFFER && reads.has_permit()));
        let mut another = LargeReads::default();
        assert_eq!(read(&mut another, MAX_BUFFER), SMALL);
        assert!(!another.has_permit());
        assert!(!large[0].is_unused());
        large[0].begin_exchange();
        read(&mut large[0], SMALL);
        assert!(large[0].is_unused() && large[0].has_permit());
        large.pop();
        assert_eq!(read(&mut another, MAX_BUFFER), MAX_BUFFER);
    }
}
