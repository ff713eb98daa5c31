//! Bound on large reads: how many connections of a worker may have grown buffers.
//!
//! The HTTP library doubles its buffer for as long as reads fill it: a body of 1 MiB then takes five reads instead of
//! 34. A slow client holds two or three pieces of that size, so a thousand of them would hold a gigabyte. A connection
//! may read up to [`SMALL`] bytes at a time as it likes; beyond, it needs one of the [`MAX_LARGE`] permits of its
//! thread. Without one it goes on in small pieces.
//!
//! The library does not shrink a buffer. A permit is given back with the buffer: when the library's instance is dropped.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Largest buffer of the HTTP library, for a connection's `max_buf_size`.
pub const MAX_BUFFER: usize = 256 * 1024;
/// Bytes that are read at a time without a permit: less than a power of two, which the library would grow at.
const SMALL: usize = 64 * 1024 - 1;
/// Connections of a thread that may read more at a time. Three pieces each are 24 MiB.
const MAX_LARGE: usize = 32;

thread_local! {
    /// Permits that were acquired. A worker's connections stay on its thread.
    static ACQUIRED: Cell<usize> = const { Cell::new(0) };
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

/// Permit for large reads, given back on drop. Not to be sent to another thread.
#[derive(Debug)]
struct Permit(std::marker::PhantomData<*const ()>);

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
        let acquired = ACQUIRED.get();
        (acquired < MAX_LARGE).then(|| {
            ACQUIRED.set(acquired + 1);
            Self(std::marker::PhantomData)
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        ACQUIRED.set(ACQUIRED.get() - 1);
    }
}

/// Reads a small piece of what there is room for. By way of another buffer: a part of one that is not initialized can be
/// read into only once it is, and that costs even where nothing has come.
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

    #[test]
    fn connections_beyond_the_bound_read_small_pieces() {
        let mut large: Vec<_> = (0..MAX_LARGE).map(|_| LargeReads::default()).collect();
        assert!(large.iter_mut().all(|reads| read(reads, MAX_BUFFER) == MAX_BUFFER));
        let mut another = LargeReads::default();
        assert_eq!(read(&mut another, MAX_BUFFER), SMALL);
        assert!(!another.has_permit());
        large.pop();
        assert_eq!(read(&mut another, MAX_BUFFER), MAX_BUFFER);
    }

    #[test]
    fn small_buffers_need_no_permit() {
        let mut reads = LargeReads::default();
        assert_eq!(read(&mut reads, SMALL), SMALL);
        assert!(!reads.has_permit());
    }

    #[test]
    fn permit_is_unused_in_an_exchange_with_small_reads_alone() {
        let mut reads = LargeReads::default();
        read(&mut reads, MAX_BUFFER);
        assert!(!reads.is_unused());
        reads.begin_exchange();
        read(&mut reads, SMALL);
        assert!(reads.is_unused() && reads.has_permit());
    }
}
