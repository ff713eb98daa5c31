//! Request bodies on their way to the upstream, which a retry can send again from the beginning.
//!
//! The body of a request is one of these:
//!
//! - *empty*: a retry needs nothing but the head;
//! - *whole*: it is sent once, over HTTP/1.1, and never again;
//! - *replayable*, over HTTP/2, and over HTTP/1.1 when the request may be sent again: a [`ReplayHandle`] owns a
//!   [`ReplayState`], which keeps references to the frames that were sent, up to a number of bytes. The [`ReplayBody`]
//!   of the current try reads through it. [`ReplayHandle::rewind`] makes the body of the next try: it sends the kept
//!   frames first and then goes on reading; the body of an earlier try ends with an error.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};

use platform::request_body::RequestBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Request body as the HTTP library sends it. Boxed where there is one: most requests have none, and the library moves
/// the request several times.
pub(crate) enum OutgoingBody {
    /// No body.
    Empty,
    /// Body that is sent once.
    Whole(Box<RequestBody>),
    /// Body that can be sent again.
    Replayable(Box<ReplayBody>),
}

/// Body of one try.
pub(crate) struct ReplayBody {
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
pub(crate) struct ReplayHandle(Rc<RefCell<ReplayState>>);

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
    pub(crate) fn new(body: RequestBody) -> Self {
        if body.is_end_stream() { Self::Empty } else { Self::Whole(Box::new(body)) }
    }

    /// Begins a try of which up to `max_bytes` are kept. Returns the handle of the body; none of an empty one.
    pub(crate) fn keep(&mut self, max_bytes: usize) -> Option<ReplayHandle> {
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
        let state = Rc::downgrade(&handle.0);
        let buffered = VecDeque::new();
        *self = Self::Replayable(Box::new(ReplayBody { buffered, state, handle: None, number: 0, passed: 0 }));
        Some(handle)
    }

    /// Ends a try that has not begun: the body owns itself again.
    pub(crate) fn take_back(&mut self, handle: Option<ReplayHandle>) {
        if let Self::Replayable(replay) = self {
            replay.handle = handle;
        }
    }
}

/// Copies the head of a request. Extensions are not copied: there are none.
pub(crate) fn copy_head<B>(request: &Request<B>) -> Request<()> {
    let mut copy = Request::new(());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

impl ReplayHandle {
    /// Makes a body that begins from the beginning, and ends that of the try before; none when too much was sent to be
    /// kept.
    pub(crate) fn rewind(&self) -> Option<OutgoingBody> {
        let mut state = self.0.borrow_mut();
        let buffered = state.sent.clone()?;
        state.number += 1;
        let number = state.number;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        let state = Rc::downgrade(&self.0);
        let handle = Some(self.clone());
        Some(OutgoingBody::Replayable(Box::new(ReplayBody { buffered, state, handle, number, passed: 0 })))
    }

    /// Returns whether all that was sent is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.borrow().sent.is_some()
    }

    /// Drops the frames that were kept, and keeps no more: there will be no retry.
    pub(crate) fn stop_buffering(&self) {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;
    use std::time::Duration;

    use http::Response;
    use http_body_util::BodyExt as _;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncWriteExt as _, DuplexStream};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use platform::metrics::Metrics;
    use platform::request_body::BodyLimits;

    /// Body of a request that says this length, and the client's end of its connection.
    async fn body(length: usize) -> (OutgoingBody, DuplexStream) {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (send, mut received) = unbounded_channel();
        let service = service_fn(move |request: Request<Incoming>| {
            send.send(request.into_body()).ok();
            std::future::pending::<Result<Response<String>, Infallible>>()
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(server), service));
        let head = format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        let idle_timeout = Duration::from_secs(60);
        let timeouts = Metrics::new().timeouts;
        let limits = Rc::new(BodyLimits { max_bytes: 1 << 20, idle_timeout, min_rate: 0, timeouts });
        (OutgoingBody::new(RequestBody::new(received.recv().await.unwrap(), limits)), client)
    }

    async fn next(body: &mut OutgoingBody) -> Option<Result<Bytes, String>> {
        let frame = body.frame().await?;
        Some(frame.map(|frame| frame.into_data().unwrap()).map_err(|error| error.to_string()))
    }

    /// Sends a piece, and reads it.
    async fn pass(client: &mut DuplexStream, body: &mut OutgoingBody, piece: &'static str) {
        client.write_all(piece.as_bytes()).await.unwrap();
        assert_eq!(next(body).await, Some(Ok(Bytes::from_static(piece.as_bytes()))));
    }

    fn cancelled() -> Option<Result<Bytes, String>> {
        Some(Err(Cancelled.to_string()))
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Polls a body for which nothing has come.
    fn poll_pending(body: &mut OutgoingBody) -> Arc<Woken> {
        let woken = Arc::<Woken>::default();
        assert!(Pin::new(body).poll_frame(&mut Context::from_waker(&Arc::clone(&woken).into())).is_pending());
        woken
    }

    #[tokio::test(flavor = "current_thread")]
    async fn frames_are_kept_up_to_the_limit() {
        for (max_bytes, is_kept) in [(10, true), (9, false)] {
            let (mut body, mut client) = body(10).await;
            let handle = body.keep(max_bytes).expect("there is a body");
            pass(&mut client, &mut body, "first").await;
            assert!(handle.is_kept());
            pass(&mut client, &mut body, "later").await;
            assert_eq!((handle.is_kept(), handle.rewind().is_some()), (is_kept, is_kept), "{max_bytes}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn rewound_body_begins_from_the_beginning_and_ends_the_one_before() {
        let (mut body, mut client) = body(10).await;
        let handle = body.keep(100).expect("there is a body");
        assert_eq!(body.size_hint().exact(), Some(10));
        pass(&mut client, &mut body, "first").await;
        assert_eq!(body.size_hint().exact(), Some(5), "what is left");
        let mut again = handle.rewind().expect("all is kept");
        assert_eq!(next(&mut body).await, cancelled());
        assert_eq!(again.size_hint().exact(), Some(10));
        assert_eq!(next(&mut again).await, Some(Ok("first".into())));
        pass(&mut client, &mut again, "later").await;
        assert!(again.is_end_stream());
        // The whole body has come.
        let mut third = handle.rewind().expect("all is kept");
        for piece in ["first", "later"] {
            assert!(!third.is_end_stream());
            assert_eq!(next(&mut third).await, Some(Ok(piece.into())));
        }
        assert!(third.is_end_stream());
        assert_eq!((next(&mut third).await, next(&mut again).await), (None, cancelled()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn reader_that_waits_is_woken_when_its_try_ends() {
        let (mut body, _client) = body(10).await;
        let handle = body.keep(100).expect("there is a body");
        let first = poll_pending(&mut body);
        let mut again = handle.rewind().expect("all is kept");
        assert_eq!(first.0.load(Relaxed), 1, "another try reads");
        let own = again.keep(100).expect("there is a body");
        let second = poll_pending(&mut again);
        drop((handle, own));
        assert_eq!(second.0.load(Relaxed), 1, "the exchange has ended");
        assert_eq!(next(&mut again).await, cancelled());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn body_that_was_not_sent_owns_itself_again() {
        let (mut body, mut client) = body(5).await;
        let handle = body.keep(100);
        body.take_back(handle);
        let _handle = body.keep(100).expect("it is the same");
        pass(&mut client, &mut body, "first").await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn body_without_a_retry_is_not_kept() {
        let (mut body, mut client) = body(10).await;
        let handle = body.keep(100).expect("there is a body");
        pass(&mut client, &mut body, "first").await;
        handle.stop_buffering();
        pass(&mut client, &mut body, "later").await;
        assert!(!handle.is_kept() && handle.rewind().is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn empty_body_needs_no_handle() {
        let (mut body, _client) = body(0).await;
        assert!(matches!(body, OutgoingBody::Empty) && body.keep(100).is_none());
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
    }
}
