//! The body of a request on its way to the upstream: counted, with limits on its size and on the time that it takes:
//! an idle time-out, and a lowest rate.

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

/// Time that every body has before its average rate counts: the first pieces wait for the network to find its pace.
pub const BODY_GRACE: Duration = Duration::from_secs(5);

/// The reason why a request body failed. It is always the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// The idle time-out expired, or the average rate fell below `min_rate`.
    #[error("the request body came too slowly")]
    TooSlow,
    /// It is malformed, or the client went away.
    #[error("the request body broke off")]
    Broken,
}

/// Limits of a request body.
#[derive(Clone, Debug)]
pub struct BodyLimits {
    /// Bytes of the body.
    pub max_bytes: u64,
    /// Time between two pieces.
    pub idle_timeout: Duration,
    /// Bytes per second, on average over the time spent waiting for the client, after [`BODY_GRACE`]; 0 for any.
    pub min_rate: u64,
    /// Counters of time-outs.
    pub timeouts: TimeoutMetrics,
}

/// Progress of a request body, shared by the body and the exchange that it belongs to. Most requests have no body,
/// whose progress is finished from the beginning and needs no memory.
#[derive(Clone, Debug, Default)]
pub struct UploadProgress(Option<Rc<Progress>>);

#[derive(Debug, Default)]
struct Progress {
    received_bytes: Cell<u64>,
    /// Time at which the whole body had come and had been taken; none before.
    finished: Cell<Option<Instant>>,
    error: Cell<Option<BodyError>>,
}

impl UploadProgress {
    /// Bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |progress| progress.received_bytes.get())
    }

    /// True if the whole body has come and has been taken.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(|progress| progress.finished.get().is_some())
    }

    /// Time at which a request that was sent at `sent` had gone whole; none while its body comes.
    pub fn request_end(&self, sent: Instant) -> Option<Instant> {
        match &self.0 {
            // There is no body.
            None => Some(sent),
            // A body that is sent again had come before.
            Some(progress) => progress.finished.get().map(|finished| finished.max(sent)),
        }
    }

    /// The error by which the body has failed.
    pub fn error(&self) -> Option<BodyError> {
        self.0.as_ref().and_then(|progress| progress.error.get())
    }

    /// Progress of a body of which nothing has come.
    fn of(body: &Incoming) -> Self {
        Self((!body.is_end_stream()).then(Rc::default))
    }

    fn receive(&self, bytes: u64) {
        if let Some(progress) = &self.0 {
            progress.received_bytes.set(progress.received_bytes.get() + bytes);
        }
    }

    fn finish(&self) {
        if let Some(progress) = &self.0 {
            // The end of a body can be seen twice: with its last piece, and behind that.
            progress.finished.set(progress.finished.get().or_else(|| Some(Instant::now())));
        }
    }

    fn fail(&self, error: BodyError) {
        if let Some(progress) = &self.0 {
            progress.error.set(Some(error));
        }
    }
}

/// A request body as it goes to the upstream.
///
/// - Only data passes: trailers are dropped, because no server may merge them into the head (RFC 9110, section 6.5.1).
/// - It ends with an error when it exceeds a limit. [`UploadProgress`] keeps the error. Time for which the upstream is
///   waited for does not count.
pub struct RequestBody {
    body: Incoming,
    /// Piece that was read before the body was sent on; none of nearly all bodies.
    piece: Option<Box<Result<Frame<Bytes>, BodyError>>>,
    limits: Rc<BodyLimits>,
    timer: LazyTimer,
    /// Start of the current wait for the client; `None` while the upstream is waited for.
    waiting_since: Option<Instant>,
    /// Time spent in earlier waits for the client.
    waited: Duration,
    /// True while the client may wait for a 100 that it does not get: this time is not its own.
    awaits_continue: bool,
    progress: UploadProgress,
}

impl RequestBody {
    /// A body within these limits.
    pub fn new(body: Incoming, limits: Rc<BodyLimits>) -> Self {
        let progress = UploadProgress::of(&body);
        Self {
            body,
            piece: None,
            limits,
            timer: LazyTimer::default(),
            waiting_since: None,
            waited: Duration::ZERO,
            awaits_continue: false,
            progress,
        }
    }

    /// Notes that the client waits with the body for a 100 (Continue), which is not sent over HTTP/2. Such clients send
    /// the body after a moment all the same; the wait does not count in the average rate.
    pub fn note_expectation(&mut self) {
        self.awaits_continue = true;
    }

    /// The same body within other limits.
    pub fn set_limits(&mut self, limits: &Rc<BodyLimits>) {
        self.limits = Rc::clone(limits);
    }

    /// Waits for the first piece that is not empty, or for the end, so that it is known whether there is a body.
    pub async fn read_ahead(&mut self) {
        loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
            match frame {
                Some(Ok(frame)) if is_empty(&frame) => {}
                piece => return self.piece = piece.map(Box::new),
            }
        }
    }

    /// The body's progress.
    pub fn upload(&self) -> UploadProgress {
        self.progress.clone()
    }

    fn fail(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.progress.fail(error);
        Poll::Ready(Some(Err(error)))
    }

    /// Counts a piece, which ends the wait for the client.
    fn receive(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.progress.receive(data.len() as u64);
        if self.progress.received_bytes() > self.limits.max_bytes {
            return self.fail(BodyError::TooLarge);
        }
        if let Some(since) = self.waiting_since.take().filter(|_| !self.awaits_continue) {
            self.waited += since.elapsed();
        }
        self.awaits_continue = false;
        if self.body.is_end_stream() {
            self.progress.finish();
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    /// Completes when the client has been waited for too long.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let idle = since + self.limits.idle_timeout;
        let rate = self.rate_allowance().map(|allowance| since + allowance.saturating_sub(self.waited));
        // The earlier of the two, which is also the one that is counted.
        let (deadline, counter) = match rate {
            Some(rate) if rate < idle => (rate, &self.limits.timeouts.body_rate),
            _ => (idle, &self.limits.timeouts.body_idle),
        };
        ready!(self.timer.poll(cx, deadline));
        counter.inc();
        Poll::Ready(())
    }

    /// Time for which the client may be waited for in all, given the bytes that have come; `None` without a least rate.
    fn rate_allowance(&self) -> Option<Duration> {
        let rate = self.limits.min_rate;
        let received = self.progress.received_bytes();
        (rate > 0 && !self.awaits_continue)
            .then(|| BODY_GRACE + Duration::from_millis(received.saturating_mul(1000) / rate))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(piece) = self.piece.take() {
            return Poll::Ready(Some(*piece));
        }
        loop {
            return match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(None) => {
                    self.progress.finish();
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Err(_))) => self.fail(BodyError::Broken),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.receive(data),
                    // The end of the body follows.
                    Err(_trailers) => continue,
                },
                Poll::Pending => match self.poll_timeout(cx) {
                    Poll::Ready(()) => self.fail(BodyError::TooSlow),
                    Poll::Pending => Poll::Pending,
                },
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.piece, self.is_end_stream()) {
            (Some(_), _) => SizeHint::default(),
            (None, true) => SizeHint::with_exact(0),
            (None, false) => self.body.size_hint(),
        }
    }
}
