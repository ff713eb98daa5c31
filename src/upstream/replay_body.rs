//! The body of a request on its way out, which may stand aside for a second try.

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

/// Bytes of a body that are remembered for a second try; most calls of gRPC are smaller.
const MAX_REMEMBERED: usize = 64 * 1024;

/// A request body.
pub(super) enum OutgoingBody {
    /// There is none.
    Empty,
    /// The body itself.
    Whole(RequestBody),
    /// One that can be taken away again, and sent once more.
    ReplayBody(ReplayBody),
}

/// A body that is lent to a stream, after what was sent of it on another one.
pub(super) struct ReplayBody {
    again: VecDeque<Bytes>,
    loan: Rc<Loan>,
}

/// What replay and stream share.
struct Loan(RefCell<State>);

/// The replay of a body. Dropped, it takes the body away from whoever still reads it, who learns that the request is
/// cancelled.
pub(super) struct ReplayHandle(Rc<Loan>);

struct State {
    /// None once it was taken away.
    body: Option<RequestBody>,
    /// What was sent so far; none once that was too much to remember.
    sent: Option<VecDeque<Bytes>>,
    remembered: usize,
    /// Who reads it.
    reader: Option<Waker>,
}

/// The request is not wanted any more.
#[derive(Debug, thiserror::Error)]
#[error("the request was cancelled")]
struct Cancelled;

impl OutgoingBody {
    pub(super) fn new(body: RequestBody) -> Self {
        if body.is_end_stream() { Self::Empty } else { Self::Whole(body) }
    }
}

/// A copy of a request that may be sent twice: its method is idempotent (RFC 9110, section 9.2.2) and its body empty.
pub(super) fn copy(request: &Request<OutgoingBody>) -> Option<Request<OutgoingBody>> {
    let repeatable = request.method().is_idempotent() && matches!(request.body(), OutgoingBody::Empty);
    repeatable.then(|| copy_head(request).map(|()| OutgoingBody::Empty))
}

/// A copy of a request's head.
pub(super) fn copy_head<B>(request: &Request<B>) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

impl ReplayHandle {
    /// Lends a body that has not been sent before.
    pub(super) fn new(body: OutgoingBody) -> Self {
        let body = match body {
            OutgoingBody::Whole(body) => Some(body),
            OutgoingBody::Empty | OutgoingBody::ReplayBody(_) => None,
        };
        let state = State { body, sent: Some(VecDeque::new()), remembered: 0, reader: None };
        Self(Rc::new(Loan(RefCell::new(state))))
    }

    /// The body, from its beginning; none when too much of it has gone to remember.
    pub(super) fn lend(&self) -> Option<OutgoingBody> {
        let state = self.0.0.borrow();
        let again = state.sent.clone()?;
        Some(match state.body {
            Some(_) => OutgoingBody::ReplayBody(ReplayBody { again, loan: Rc::clone(&self.0) }),
            None => OutgoingBody::Empty,
        })
    }

    /// Nothing needs to be remembered any more: it will not be sent again.
    pub(super) fn forget(&self) {
        self.0.0.borrow_mut().sent = None;
    }

    /// The body itself, of which nothing was sent.
    pub(super) fn into_body(self) -> OutgoingBody {
        self.0.0.borrow_mut().body.take().map_or(OutgoingBody::Empty, OutgoingBody::Whole)
    }
}

impl Drop for ReplayHandle {
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        let (body, reader) = (state.body.take(), state.reader.take());
        drop(state);
        drop(body);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl State {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Some(Err(Cancelled.into()))) };
        let polled = Pin::new(body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.remember(frame.data_ref().cloned().unwrap_or_default()),
            Poll::Pending => self.reader = Some(cx.waker().clone()),
            Poll::Ready(_) => {}
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn remember(&mut self, data: Bytes) {
        self.remembered += data.len();
        if self.remembered > MAX_REMEMBERED {
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
            Self::ReplayBody(lent) => match lent.again.pop_front() {
                Some(data) => Poll::Ready(Some(Ok(Frame::data(data)))),
                None => lent.loan.0.borrow_mut().poll(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(body) => body.is_end_stream(),
            Self::ReplayBody(lent) => {
                lent.again.is_empty() && lent.loan.0.borrow().body.as_ref().is_some_and(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(body) => body.size_hint(),
            // What was sent before is not in the hint of the rest.
            Self::ReplayBody(lent) if !lent.again.is_empty() => SizeHint::default(),
            Self::ReplayBody(lent) => {
                lent.loan.0.borrow().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
            }
        }
    }
}
