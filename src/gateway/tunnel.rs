//! What goes on behind a 101: bytes in both directions, until both sides have ended.
//!
//! - It runs in the client's connection, and holds what the request held: permit, in-flight count and audit entry, whose
//!   bytes are those of both directions. Dropped with the connection, when the grace period of a drain ends, say, it
//!   gives all that back.
//! - A side that ends its half has its end passed on, while the other half goes on.
//! - No more than one buffer in each direction is held.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::{Instant, sleep_until};

use super::guarded_body::Exchange;
use crate::audit::Outcome;

/// Bytes held in each direction: some messages of a WebSocket.
const BUFFER: usize = 16 * 1024;

/// What a tunnel holds on to, and what has gone through it.
pub(super) struct Tunnelling {
    exchange: Exchange,
    traffic: Rc<Traffic>,
}

/// What has gone through a tunnel, seen from the client's side.
#[derive(Debug)]
struct Traffic {
    up: Cell<u64>,
    down: Cell<u64>,
    last: Cell<Instant>,
    /// Whether it was the client's side that failed.
    client_failed: Cell<bool>,
}

impl Tunnelling {
    pub(super) fn new(exchange: Exchange) -> Self {
        let traffic = Traffic {
            up: Cell::new(0),
            down: Cell::new(0),
            last: Cell::new(Instant::now()),
            client_failed: Cell::new(false),
        };
        Self { exchange, traffic: Rc::new(traffic) }
    }

    /// Passes bytes both ways, until both sides have ended, one fails, or nothing goes for too long.
    pub(super) async fn run<C, U>(mut self, client: C, mut upstream: U, idle: Duration, idled: IntCounter)
    where
        C: AsyncRead + AsyncWrite + Unpin,
        U: AsyncRead + AsyncWrite + Unpin,
    {
        self.traffic.last.set(Instant::now());
        let mut client = Watched { stream: client, traffic: Rc::clone(&self.traffic) };
        let outcome = tokio::select! {
            copied = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER) => match copied {
                Ok(_) => Outcome::Completed,
                Err(error) => self.broken(&error),
            },
            () = silence(&self.traffic, idle) => {
                idled.inc();
                Outcome::Aborted
            }
        };
        self.exchange.end(outcome);
    }

    fn broken(&self, error: &io::Error) -> Outcome {
        tracing::debug!(%error, "a tunnel broke");
        if self.traffic.client_failed.get() { Outcome::Aborted } else { Outcome::UpstreamError }
    }
}

impl Drop for Tunnelling {
    fn drop(&mut self) {
        self.exchange.sent = self.traffic.down.get();
        self.exchange.tunnelled = self.traffic.up.get();
    }
}

/// Completes when nothing has gone for as long as this.
async fn silence(traffic: &Traffic, idle: Duration) {
    loop {
        let deadline = traffic.last.get() + idle;
        if Instant::now() >= deadline {
            return;
        }
        sleep_until(deadline).await;
    }
}

/// The client's side, through which all bytes of both directions go.
struct Watched<S> {
    stream: S,
    traffic: Rc<Traffic>,
}

impl Traffic {
    fn note<T>(&self, result: io::Result<T>, counter: &Cell<u64>, bytes: impl FnOnce(&T) -> usize) -> io::Result<T> {
        match &result {
            Ok(done) => {
                counter.set(counter.get() + bytes(done) as u64);
                self.last.set(Instant::now());
            }
            Err(_) => self.client_failed.set(true),
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let length = buf.filled().len() - before;
        Poll::Ready(self.traffic.note(read, &self.traffic.up, |()| length))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.traffic.note(written, &self.traffic.down, |written| *written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(flushed.inspect_err(|_| self.traffic.client_failed.set(true)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
        Poll::Ready(shut.inspect_err(|_| self.traffic.client_failed.set(true)))
    }
}
