//! The body of a request on its way to the upstream: counted, bounded, and not waited for forever.

use std::cell::Cell;
use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep_until};

/// What is wrong with a request body. Every one of these is the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// Nothing came for too long.
    #[error("the request body came too slowly")]
    TooSlow,
    /// It is malformed, or the client went away.
    #[error("the request body broke off")]
    Broken,
}

/// How far a request body has come; shared by the body and whoever accounts for it.
#[derive(Clone, Debug, Default)]
pub struct Upload(Rc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    received: Cell<u64>,
    error: Cell<Option<BodyError>>,
}

impl Upload {
    /// Bytes received so far.
    pub fn received(&self) -> u64 {
        self.0.received.get()
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<BodyError> {
        self.0.error.get()
    }
}

/// A request body as it goes to the upstream.
///
/// - Only data passes: trailers are dropped, as no server may merge them into the head (RFC 9110, section 6.5.1).
/// - More than the allowed bytes, or too long a silence, ends it with an error, which [`Upload`] remembers.
pub struct RequestBody {
    body: Incoming,
    left: u64,
    idle: Duration,
    /// Made when the client is first waited for; never for bodies that arrive with their heads.
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the client is being waited for. While the upstream is, the timer does not count.
    waiting: bool,
    upload: Upload,
}

impl RequestBody {
    /// A body of at most `max` bytes, with at most `idle` between two pieces.
    pub fn new(body: Incoming, max: u64, idle: Duration) -> Self {
        Self { body, left: max, idle, timer: None, waiting: false, upload: Upload::default() }
    }

    /// Its progress.
    pub fn upload(&self) -> Upload {
        self.upload.clone()
    }

    fn fail(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.upload.0.error.set(Some(error));
        Poll::Ready(Some(Err(error)))
    }

    fn take(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let length = data.len() as u64;
        self.upload.0.received.set(self.upload.received() + length);
        let Some(left) = self.left.checked_sub(length) else { return self.fail(BodyError::TooLarge) };
        self.left = left;
        self.waiting = false;
        Poll::Ready(Some(Ok(Frame::data(data))))
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

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            return match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Ready(Some(Err(_))) => self.fail(BodyError::Broken),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.take(data),
                    Err(_trailers) => continue,
                },
                Poll::Pending => match self.poll_idle(cx) {
                    Poll::Ready(()) => self.fail(BodyError::TooSlow),
                    Poll::Pending => Poll::Pending,
                },
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
