//! The body of an upstream's response, and the connection it comes over.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use tokio::time::{Instant, Sleep, sleep_until};

use super::endpoint::InFlight;
use super::pool::Idle;

/// A connection in use. Given back when its exchange has ended whole; dropped, and so closed, otherwise.
pub(super) struct Lease<B> {
    sender: SendRequest<B>,
    idle: Idle<B>,
    max_idle: usize,
    _in_flight: InFlight,
}

impl<B> Lease<B> {
    pub(super) fn new(sender: SendRequest<B>, idle: Idle<B>, max_idle: usize, in_flight: InFlight) -> Self {
        Self { sender, idle, max_idle, _in_flight: in_flight }
    }

    fn give_back(self) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < self.max_idle && !self.sender.is_closed() {
            idle.push((self.sender, std::time::Instant::now()));
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
    /// Made when the upstream is first waited for.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the upstream is being waited for. While the client is, the timer does not count.
    waiting: bool,
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: Incoming, lease: Lease<B>, idle: Duration) -> Self {
        let mut this = Self { body, lease: Some(lease), idle, timer: None, waiting: false };
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
        let deadline = Instant::now() + self.idle;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if !self.waiting {
            timer.as_mut().reset(deadline);
            self.waiting = true;
        }
        timer.as_mut().poll(cx)
    }
}

impl<B> Unpin for ResponseBody<B> {}

impl<B> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.waiting = false;
                match &frame {
                    Some(Err(_)) => drop(self.lease.take()),
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
