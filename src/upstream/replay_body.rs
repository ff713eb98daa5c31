//! Request bodies on their way to the upstream, which a retry can send again from the beginning.
//!
//! The body of a request is one of these:
//!
//! - *empty*: a retry needs nothing but the head;
//! - *whole*: it is sent once, over HTTP/1.1, and never again;
//! - *replayable*, over HTTP/2: a [`ReplayHandle`] and the [`ReplayBody`] of the current attempt share a [`ReplayState`],
//!   which keeps references to the frames that were sent, up to [`MAX_BUFFERED`] bytes. [`ReplayHandle::rewind`] makes the
//!   body of the next attempt: it sends the buffered frames first and then goes on reading.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};

use crate::request_body::RequestBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of a body that are buffered for a retry. Most calls of gRPC are smaller.
const MAX_BUFFERED: usize = 64 * 1024;

/// Request body as the HTTP library sends it. Boxed where there is one: most requests have none, and the library moves the
/// request several times.
pub(super) enum OutgoingBody {
    /// No body.
    Empty,
    /// Body that is sent once.
    Whole(Box<RequestBody>),
    /// Body that can be sent again.
    Replayable(Box<ReplayBody>),
}

/// Body of one attempt.
pub(super) struct ReplayBody {
    /// Frames that an earlier attempt has sent.
    buffered: VecDeque<Bytes>,
    state: Rc<RefCell<ReplayState>>,
}

/// Handle of a replayable body. Dropped, it takes the body away from the attempt that still reads it; that attempt ends
/// with an error.
pub(super) struct ReplayHandle(Rc<RefCell<ReplayState>>);

/// State that handle and attempt share.
struct ReplayState {
    /// None once the handle was dropped.
    body: Option<Box<RequestBody>>,
    /// Frames that were sent so far; none once they were too many, or no retry is possible any more.
    sent: Option<VecDeque<Bytes>>,
    buffered_bytes: usize,
    /// Task of the attempt that waits for the next frame.
    reader: Option<Waker>,
}

/// The exchange is over, and the rest of its request is not wanted any more.
#[derive(Debug, thiserror::Error)]
#[error("the request was cancelled")]
struct Cancelled;

impl OutgoingBody {
    pub(super) fn new(body: RequestBody) -> Self {
        if body.is_end_stream() { Self::Empty } else { Self::Whole(Box::new(body)) }
    }
}

/// Returns whether a request may be sent twice: its method is idempotent (RFC 9110, section 9.2.2) and its body empty.
pub(super) fn is_repeatable(request: &Request<OutgoingBody>) -> bool {
    request.method().is_idempotent() && matches!(request.body(), OutgoingBody::Empty)
}

/// Copies the head of a request. Extensions are not copied: there are none.
pub(super) fn copy_head<B>(request: &Request<B>) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

impl ReplayHandle {
    /// Handle of a body that has not been sent before.
    pub(super) fn new(body: OutgoingBody) -> Self {
        let body = match body {
            OutgoingBody::Whole(body) => Some(body),
            OutgoingBody::Empty | OutgoingBody::Replayable(_) => None,
        };
        let state = ReplayState { body, sent: Some(VecDeque::new()), buffered_bytes: 0, reader: None };
        Self(Rc::new(RefCell::new(state)))
    }

    /// Makes a body that begins from the beginning; none when too much was sent to be buffered.
    pub(super) fn rewind(&self) -> Option<OutgoingBody> {
        let state = self.0.borrow();
        let buffered = state.sent.clone()?;
        Some(match state.body {
            Some(_) => OutgoingBody::Replayable(Box::new(ReplayBody { buffered, state: Rc::clone(&self.0) })),
            None => OutgoingBody::Empty,
        })
    }

    /// Drops the buffer, and buffers no more: there will be no retry.
    pub(super) fn stop_buffering(&self) {
        self.0.borrow_mut().sent = None;
    }

    /// Takes the body back, of which nothing was sent.
    pub(super) fn into_body(self) -> OutgoingBody {
        self.0.borrow_mut().body.take().map_or(OutgoingBody::Empty, OutgoingBody::Whole)
    }
}

impl Drop for ReplayHandle {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        let (body, reader) = (state.body.take(), state.reader.take());
        // Neither the body's end nor the reader may find the state borrowed.
        drop(state);
        drop(body);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl ReplayState {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Some(Err(Cancelled.into()))) };
        let polled = Pin::new(body).poll_frame(cx);
        match &polled {
            // Trailers are buffered as no data: a retry sends the request without them.
            Poll::Ready(Some(Ok(frame))) => self.buffer(frame.data_ref().cloned().unwrap_or_default()),
            // The handle wakes the reader when it takes the body away.
            Poll::Pending => self.reader = Some(cx.waker().clone()),
            Poll::Ready(_) => {}
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn buffer(&mut self, data: Bytes) {
        self.buffered_bytes += data.len();
        if self.buffered_bytes > MAX_BUFFERED {
            self.sent = None;
        }
        if let Some(sent) = &mut self.sent {
            sent.push_back(data);
        }
    }
}

impl Unpin for OutgoingBody {}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(body) => {
                Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Replayable(replay) => match replay.buffered.pop_front() {
                Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                None => replay.state.borrow_mut().poll(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(body) => body.is_end_stream(),
            Self::Replayable(replay) => {
                replay.buffered.is_empty() && replay.state.borrow().body.as_ref().is_some_and(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(body) => body.size_hint(),
            // The hint of the rest does not include the buffered frames.
            Self::Replayable(replay) if !replay.buffered.is_empty() => SizeHint::default(),
            Self::Replayable(replay) => {
                replay.state.borrow().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
            }
        }
    }
}
