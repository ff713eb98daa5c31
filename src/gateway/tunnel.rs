//! Tunnel behind a 101 response: bytes in both directions, until both sides have ended.
//!
//! | event | then |
//! |---|---|
//! | one side ends its half | the end is passed on; the other half goes on |
//! | both halves have ended | the outcome is `completed` |
//! | the client's side fails | the outcome is `aborted` |
//! | the upstream's side fails | the outcome is `upstream_error` |
//! | nothing goes through for the idle time | the outcome is `aborted`, and the time-out is counted |
//! | the credential is revoked | both sides are reset; the outcome is `terminated` |
//! | the connection is dropped, as at the end of a drain | the outcome is `aborted` |
//!
//! - It runs in the task of the client's connection and holds the exchange: permit, in-flight count and audit entry,
//!   whose bytes are those of both directions.
//! - It holds no more than one buffer in each direction.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::{Instant, sleep_until};

use super::exchange::Exchange;
use journal::audit::Outcome;
use upstream::Tunnel;

/// Bytes of the buffer in each direction: some messages of a WebSocket.
const BUFFER: usize = 16 * 1024;

/// Exchange of a tunnel, and its traffic.
///
/// - Dropped anywhere, before the 101 was sent or in the middle of a copy, it hands the bytes that went through to the
///   exchange, which is dropped next and ends the audit record with them.
pub(super) struct TunnelExchange {
    /// Owned: slot, audit entry and registration among the open exchanges live as long as the tunnel.
    exchange: Box<Exchange>,
    /// Shared with the client's side, which counts.
    traffic: Rc<Traffic>,
}

/// Traffic of a tunnel, as seen at the client's side.
#[derive(Debug)]
struct Traffic {
    /// Bytes from the client.
    received: Cell<u64>,
    /// Bytes to the client.
    sent: Cell<u64>,
    /// Time of the last byte in either direction.
    last: Cell<Instant>,
    /// True if the client's side failed, rather than the upstream's.
    client_failed: Cell<bool>,
}

impl TunnelExchange {
    pub(super) fn new(exchange: Box<Exchange>) -> Self {
        let traffic = Traffic {
            received: Cell::new(0),
            sent: Cell::new(0),
            last: Cell::new(Instant::now()),
            client_failed: Cell::new(false),
        };
        Self { exchange, traffic: Rc::new(traffic) }
    }

    /// Passes bytes both ways, until both sides have ended, one fails, the credential is revoked, or nothing goes
    /// through for the idle time. Counts the latter in `timeouts`.
    pub(super) async fn run<C>(mut self, client: C, mut upstream: Tunnel, idle: Duration, timeouts: IntCounter)
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        // The 101 may have waited for a slow client since the exchange was made.
        self.traffic.last.set(Instant::now());
        let mut client = MeteredStream { stream: client, traffic: Rc::clone(&self.traffic) };
        let outcome = tokio::select! {
            // First, so that nothing passes any more.
            biased;
            () = self.wait_until_terminated() => Outcome::Terminated,
            copied = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER) => match copied {
                Ok(_) => Outcome::Completed,
                Err(error) => self.classify_error(&error),
            },
            () = wait_until_idle(&self.traffic, idle) => {
                timeouts.inc();
                Outcome::Aborted
            }
        };
        if outcome == Outcome::Terminated {
            upstream.reset_on_close();
        }
        self.exchange.end(outcome);
    }

    /// Completes when the credential is revoked. Resetting the exchange wakes the task.
    async fn wait_until_terminated(&self) {
        poll_fn(|_| if self.exchange.is_terminated() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn classify_error(&self, error: &io::Error) -> Outcome {
        tracing::debug!(%error, "a tunnel ended early");
        if self.traffic.client_failed.get() { Outcome::Aborted } else { Outcome::UpstreamError }
    }
}

impl Drop for TunnelExchange {
    fn drop(&mut self) {
        self.exchange.sent = self.traffic.sent.get();
        self.exchange.tunnelled = self.traffic.received.get();
    }
}

/// Completes when no byte has gone through for the idle time.
async fn wait_until_idle(traffic: &Traffic, idle: Duration) {
    loop {
        let deadline = traffic.last.get() + idle;
        if Instant::now() >= deadline {
            return;
        }
        sleep_until(deadline).await;
    }
}

/// Client's side of a tunnel. The bytes of both directions go through it and are counted.
struct MeteredStream<S> {
    stream: S,
    traffic: Rc<Traffic>,
}

impl Traffic {
    fn record<T>(&self, result: io::Result<T>, counter: &Cell<u64>, bytes: impl FnOnce(&T) -> usize) -> io::Result<T> {
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

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let length = buf.filled().len() - before;
        Poll::Ready(self.traffic.record(read, &self.traffic.received, |()| length))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.traffic.record(written, &self.traffic.sent, |written| *written))
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
