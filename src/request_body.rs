//! The body of a request on its way to the upstream: counted, bounded, and not waited for forever.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::metrics::TimeoutMetrics;
use crate::timer::LazyTimer;

/// What is wrong with a request body. Every one of these is the client's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// Nothing came for too long, or too little.
    #[error("the request body came too slowly")]
    TooSlow,
    /// It is malformed, or the client went away.
    #[error("the request body broke off")]
    Broken,
}

/// How far a request body has come; shared by the body and whoever accounts for it.
#[derive(Clone, Debug, Default)]
pub struct UploadProgress(Rc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    received: Cell<u64>,
    finished: Cell<bool>,
    error: Cell<Option<BodyError>>,
}

impl UploadProgress {
    /// Bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.0.received.get()
    }

    /// Whether all of it has come, and has been taken.
    pub fn is_finished(&self) -> bool {
        self.0.finished.get()
    }

    /// Why it failed, if it did.
    pub fn error(&self) -> Option<BodyError> {
        self.0.error.get()
    }
}

/// How slowly a body may come before its rate counts: the first pieces wait for the network to find its pace.
pub const BODY_GRACE: Duration = Duration::from_secs(5);

/// What a request body may be like.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    /// Bytes at most.
    pub max_bytes: u64,
    /// Between two pieces.
    pub idle_timeout: Duration,
    /// Bytes per second, on average over the time that the client was waited for; 0 for any.
    pub min_rate: u64,
    /// Where bodies that are too slow are counted.
    pub timeouts: TimeoutMetrics,
}

/// A request body as it goes to the upstream.
///
/// - Only data passes: trailers are dropped, as no server may merge them into the head (RFC 9110, section 6.5.1).
/// - More than the allowed bytes, too long a silence, or too little in too much time, ends it with an error, which
///   [`UploadProgress`] remembers. Time in which the upstream is waited for does not count.
pub struct RequestBody {
    body: Incoming,
    limits: Rc<BodyLimits>,
    /// Made when the client is first waited for; never for bodies that arrive with their heads.
    timer: LazyTimer,
    /// Since when the client is being waited for. While the upstream is, nothing counts.
    waiting: Option<Instant>,
    /// How long it was waited for before.
    waited: Duration,
    upload: UploadProgress,
}

impl RequestBody {
    /// A body within these limits.
    pub fn new(body: Incoming, limits: Rc<BodyLimits>) -> Self {
        let upload = UploadProgress::default();
        upload.0.finished.set(body.is_end_stream());
        Self { body, limits, timer: LazyTimer::default(), waiting: None, waited: Duration::ZERO, upload }
    }

    /// Its progress.
    pub fn upload(&self) -> UploadProgress {
        self.upload.clone()
    }

    fn fail(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.upload.0.error.set(Some(error));
        Poll::Ready(Some(Err(error)))
    }

    fn take(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let received = self.upload.received_bytes() + data.len() as u64;
        self.upload.0.received.set(received);
        if received > self.limits.max_bytes {
            return self.fail(BodyError::TooLarge);
        }
        if let Some(since) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        self.upload.0.finished.set(self.body.is_end_stream());
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    /// Waits for the client, until it is too late.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting.get_or_insert_with(Instant::now);
        let idle = since + self.limits.idle_timeout;
        let rate = self.allowed().map(|allowed| since + allowed.saturating_sub(self.waited));
        let (deadline, counter) = match rate {
            Some(rate) if rate < idle => (rate, &self.limits.timeouts.body_rate),
            _ => (idle, &self.limits.timeouts.body_idle),
        };
        ready!(self.timer.poll(cx, deadline));
        counter.inc();
        Poll::Ready(())
    }

    /// How long the client may be waited for, for as much as has come.
    fn allowed(&self) -> Option<Duration> {
        let rate = self.limits.min_rate;
        (rate > 0).then(|| BODY_GRACE + Duration::from_millis(self.upload.received_bytes().saturating_mul(1000) / rate))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            return match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => {
                    self.upload.0.finished.set(true);
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Err(_))) => self.fail(BodyError::Broken),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.take(data),
                    Err(_trailers) => continue,
                },
                Poll::Pending => match self.poll_late(cx) {
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
