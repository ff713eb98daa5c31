//! The body of an upstream's response, and the connection it comes over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::connection::Connection;
use super::endpoint::InFlight;
use super::pool::Idle;

/// A connection in use. Given back when its exchange has ended whole; dropped, and so closed, otherwise.
pub(super) struct Lease<B> {
    connection: Connection<B>,
    idle: Idle<B>,
    max_idle: usize,
    _in_flight: InFlight,
}

impl<B> Lease<B> {
    pub(super) fn new(connection: Connection<B>, idle: Idle<B>, max_idle: usize, in_flight: InFlight) -> Self {
        Self { connection, idle, max_idle, _in_flight: in_flight }
    }

    fn give_back(self) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.max_idle && !self.connection.sender.is_closed() {
            idle.push((self.connection, Instant::now()));
        }
    }
}

/// Why a response body ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// The connection broke.
    #[error("the upstream broke off its response")]
    Broken(#[source] hyper::Error),
    /// Nothing came for too long.
    #[error("the upstream's response stalled")]
    TooSlow,
}

/// A response body that keeps its connection and gives it back at its end.
pub struct ResponseBody<B> {
    body: Incoming,
    lease: Option<Lease<B>>,
    idle: Duration,
    /// Until when the upstream is waited for, while it is; not while the client is.
    deadline: Option<Instant>,
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: Incoming, lease: Lease<B>, idle: Duration) -> Self {
        let mut this = Self { body, lease: Some(lease), idle, deadline: None };
        this.give_back_at_end();
        this
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + self.idle);
        match &mut self.lease {
            Some(lease) => lease.connection.patience.poll(cx, deadline),
            // Without a connection there is nothing to wait for: the end has come, or is about to be seen.
            None => Poll::Pending,
        }
    }
}

impl<B> Unpin for ResponseBody<B> {}

impl<B> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.deadline = None;
                match &frame {
                    Some(Err(_)) => drop(self.lease.take()),
                    // Trailers are the last frame (RFC 9110, section 6.5).
                    Some(Ok(frame)) if frame.is_trailers() => self.lease.take().into_iter().for_each(Lease::give_back),
                    Some(Ok(_)) => self.give_back_at_end(),
                    None => self.lease.take().into_iter().for_each(Lease::give_back),
                }
                Poll::Ready(frame.map(|frame| frame.map_err(ResponseError::Broken)))
            }
            Poll::Pending => self.poll_idle(cx).map(|()| {
                drop(self.lease.take());
                Some(Err(ResponseError::TooSlow))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
