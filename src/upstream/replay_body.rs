//! Request bodies on their way to the upstream, which a retry can send again from the beginning.
//!
//! The body of a request is one of these:
//!
//! - *empty*: a retry needs nothing but the head;
//! - *whole*: it is sent once, over HTTP/1.1, and never again;
//! - *replayable*, over HTTP/2, and over HTTP/1.1 when the request may be sent again: a [`ReplayHandle`] owns a
//!   [`ReplayState`], which keeps references to the frames that were sent, up to a number of bytes. The [`ReplayBody`] of the
//!   current try reads through it. [`ReplayHandle::rewind`] makes the body of the next try: it sends the kept frames first
//!   and then goes on reading; the body of an earlier try ends with an error.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};

use crate::request_body::RequestBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

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

/// Body of one try.
pub(super) struct ReplayBody {
    /// Frames that an earlier try has read.
    buffered: VecDeque<Bytes>,
    state: Weak<RefCell<ReplayState>>,
    /// Handle of the body, until the try begins.
    handle: Option<ReplayHandle>,
    /// Number of the try.
    number: u32,
    /// Bytes that have passed in this try.
    passed: u64,
}

/// Handle of a replayable body. When the last one is dropped, the try that still reads the body ends with an error.
#[derive(Clone)]
pub(super) struct ReplayHandle(Rc<RefCell<ReplayState>>);

/// State of a replayable body.
struct ReplayState {
    body: Box<RequestBody>,
    /// Length of the whole body, if it is known.
    length: Option<u64>,
    /// Frames that were read so far; none once they were too many, or no retry is possible any more.
    sent: Option<VecDeque<Bytes>>,
    buffered_bytes: usize,
    /// Bytes that are kept at most.
    max_bytes: usize,
    /// Number of the try that reads.
    number: u32,
    /// Task of the try that waits for the next frame.
    reader: Option<Waker>,
}

/// The try is over, and the rest of its request is not wanted any more.
#[derive(Debug, thiserror::Error)]
#[error("the request was cancelled")]
struct Cancelled;

impl OutgoingBody {
    pub(super) fn new(body: RequestBody) -> Self {
        if body.is_end_stream() { Self::Empty } else { Self::Whole(Box::new(body)) }
    }

    /// Begins a try of which up to `max_bytes` are kept. Returns the handle of the body; none of an empty one.
    pub(super) fn keep(&mut self, max_bytes: usize) -> Option<ReplayHandle> {
        let body = match std::mem::replace(self, Self::Empty) {
            Self::Empty => return None,
            Self::Whole(body) => body,
            Self::Replayable(mut replay) => {
                let handle = replay.handle.take();
                *self = Self::Replayable(replay);
                return handle;
            }
        };
        let handle = ReplayHandle(Rc::new(RefCell::new(ReplayState {
            length: body.size_hint().exact(),
            body,
            sent: Some(VecDeque::new()),
            buffered_bytes: 0,
            max_bytes,
            number: 0,
            reader: None,
        })));
        let (state, buffered) = (Rc::downgrade(&handle.0), VecDeque::new());
        *self = Self::Replayable(Box::new(ReplayBody { buffered, state, handle: None, number: 0, passed: 0 }));
        Some(handle)
    }

    /// Ends a try that has not begun: the body owns itself again.
    pub(super) fn take_back(&mut self, handle: Option<ReplayHandle>) {
        if let Self::Replayable(replay) = self {
            replay.handle = handle;
        }
    }
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
    /// Makes a body that begins from the beginning, and ends that of the try before; none when too much was sent to be kept.
    pub(super) fn rewind(&self) -> Option<OutgoingBody> {
        let mut state = self.0.borrow_mut();
        let buffered = state.sent.clone()?;
        state.number += 1;
        let (number, reader) = (state.number, state.reader.take());
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        let (state, handle) = (Rc::downgrade(&self.0), Some(self.clone()));
        Some(OutgoingBody::Replayable(Box::new(ReplayBody { buffered, state, handle, number, passed: 0 })))
    }

    /// Returns whether all that was sent is kept.
    pub(super) fn is_kept(&self) -> bool {
        self.0.borrow().sent.is_some()
    }

    /// Drops the frames that were kept, and keeps no more: there will be no retry.
    pub(super) fn stop_buffering(&self) {
        let sent = self.0.borrow_mut().sent.take();
        drop(sent);
    }
}

impl Drop for ReplayState {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl ReplayState {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            // Trailers are buffered as no data: a retry sends the request without them.
            Poll::Ready(Some(Ok(frame))) => self.buffer(frame.data_ref().cloned().unwrap_or_default()),
            // The reader is woken when its try ends.
            Poll::Pending => self.reader = Some(cx.waker().clone()),
            Poll::Ready(_) => {}
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn buffer(&mut self, data: Bytes) {
        self.buffered_bytes += data.len();
        if self.buffered_bytes > self.max_bytes {
            self.sent = None;
        }
        if let Some(sent) = &mut self.sent {
            sent.push_back(data);
        }
    }
}

impl ReplayBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(state) = self.state.upgrade() else { return Poll::Ready(Some(Err(Cancelled.into()))) };
        let mut state = state.borrow_mut();
        if state.number != self.number {
            return Poll::Ready(Some(Err(Cancelled.into())));
        }
        let polled = match self.buffered.pop_front() {
            Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => state.poll(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.passed += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        polled
    }

    fn has_ended(&self) -> bool {
        self.buffered.is_empty() && self.state.upgrade().is_some_and(|state| state.borrow().body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.state.upgrade().and_then(|state| state.borrow().length);
        length.map_or_else(SizeHint::default, |length| SizeHint::with_exact(length.saturating_sub(self.passed)))
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
            Self::Replayable(replay) => replay.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(body) => body.is_end_stream(),
            Self::Replayable(replay) => replay.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(body) => body.size_hint(),
            Self::Replayable(replay) => replay.size_hint(),
        }
    }
}
