//! One attempt to send a request over HTTP/1.1, and the deadlines of an exchange.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::replay_body::{OutgoingBody, ReplayHandle};
use crate::connection::http1::Connection;
use crate::connection::sent_head::Kept;
use crate::error::{SendError, TimeoutKind};
use crate::settings::Timeouts;
use platform::request_body::UploadProgress;
use platform::timer::LazyTimer;

/// Request that was given to a connection, and the future of its response.
pub(crate) struct SentRequest {
    connection: Box<Connection>,
    /// Boxed: the library's future has room for the whole request, which it returns when it could not send it.
    response: Pin<Box<dyn Future<Output = Received>>>,
}

/// Head of a response, or the library's error.
pub(crate) type Received = Result<Response<Incoming>, TrySendError<Request<OutgoingBody>>>;

/// Result of an attempt.
pub(crate) enum Attempt {
    /// The head of a response came.
    Answered(Box<Connection>, Response<Incoming>),
    /// No head came, and a part of the request may have been sent.
    Failed(Box<Connection>, SendError),
    /// Nothing was sent: the request is unchanged. Boxed, because it is large and rare.
    Unsent(Box<Request<OutgoingBody>>),
}

/// State of a try whose time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryTimeout {
    /// The request has gone whole, and no byte of a response has come.
    Silent,
    /// A part of a head has come, or the request cannot be made again.
    Begun,
    /// The client has not sent its request whole, and its body does not advance.
    Stalled,
}

impl TryTimeout {
    fn kind(self) -> TimeoutKind {
        match self {
            Self::Silent | Self::Begun => TimeoutKind::Head,
            Self::Stalled => TimeoutKind::Upload,
        }
    }
}

/// Deadlines of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Time at which the request was given to a connection.
    pub(crate) sent: Instant,
    /// End of the request's body, from which the latency of the response counts: a slow upload is not the endpoint's. None
    /// when the response began before that, or the request was not sent whole.
    pub(crate) request_end: Option<Instant>,
    /// Time from the request being sent to the head of the response, in this try.
    pub(crate) response: Duration,
    body: BodyDeadlines,
}

/// Deadlines of the body of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyDeadlines {
    /// Time of the last byte of the response; none for a long-lived exchange.
    end: Option<Instant>,
    /// Time between two pieces of the response's body.
    idle: Duration,
}

impl Deadlines {
    /// Deadlines of an exchange that begins when its request is `sent`. A long-lived one only has a time in which something
    /// must come.
    pub(crate) fn new(timeouts: &Timeouts, long_lived: Option<Duration>, sent: Instant) -> Self {
        match long_lived {
            Some(idle) => Self { sent, request_end: None, response: idle, body: BodyDeadlines { end: None, idle } },
            None => {
                let body = BodyDeadlines { end: Some(sent + timeouts.exchange), idle: timeouts.response_idle };
                Self { sent, request_end: None, response: timeouts.response, body }
            }
        }
    }

    /// The same for a request that is given to a connection only now.
    pub(crate) fn sent_now(self) -> Self {
        Self { sent: Instant::now(), ..self }
    }

    /// The same with another time to the head of the response.
    pub(crate) fn with_response(self, response: Duration) -> Self {
        Self { response, ..self }
    }

    /// Deadlines of the response's body.
    pub(crate) fn of_body(&self) -> BodyDeadlines {
        self.body
    }

    /// Returns whether the deadline of the exchange as a whole has passed.
    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        self.body.has_ended(now)
    }
}

impl BodyDeadlines {
    /// Deadline of the next piece, which is waited for from now on.
    pub(crate) fn next_piece(&self, now: Instant) -> Instant {
        self.earlier(now + self.idle)
    }

    /// The earlier deadline: of the next piece, or of the exchange as a whole.
    fn earlier(&self, piece: Instant) -> Instant {
        self.end.map_or(piece, |end| end.min(piece))
    }

    /// Returns whether the deadline of the exchange as a whole has passed.
    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

impl SentRequest {
    /// Gives a request to a connection. `keeps`: the request may be sent again, and so many bytes of its body are kept.
    pub(crate) fn send(
        mut connection: Box<Connection>,
        mut request: Request<OutgoingBody>,
        keeps: Option<usize>,
    ) -> Self {
        connection.replay = keeps.and_then(|max_bytes| request.body_mut().keep(max_bytes));
        connection.state.begin_exchange(match (keeps, &connection.replay) {
            (None, _) => Kept::Nothing,
            (Some(_), None) => Kept::All,
            (Some(_), Some(_)) => Kept::Head,
        });
        let response = Box::pin(connection.sender.try_send_request(request));
        Self { connection, response }
    }

    /// Waits for the head of the response. `extend` is asked when the try reaches its limit: see [`wait_for_head`].
    pub(crate) async fn wait(
        &mut self,
        deadlines: &mut Deadlines,
        upload: &UploadProgress,
        extend: impl FnOnce(TryTimeout, &Deadlines) -> Option<Duration>,
    ) -> Result<Received, TimeoutKind> {
        let Connection { timer, state, replay, .. } = &mut *self.connection;
        let extend = |timeout, deadlines: &Deadlines| {
            let is_kept = replay.as_ref().is_none_or(ReplayHandle::is_kept);
            extend(if state.has_received() || !is_kept { TryTimeout::Begun } else { timeout }, deadlines)
        };
        wait_for_head(self.response.as_mut(), timer, deadlines, upload, extend).await
    }

    /// Ends the attempt with the result of the wait.
    pub(crate) fn end(mut self, received: Result<Received, TimeoutKind>) -> Attempt {
        match received {
            Ok(Ok(response)) => Attempt::Answered(self.connection, response),
            Ok(Err(mut error)) => match error.take_message() {
                // The library gives the request back when the connection was closed before it wrote anything.
                Some(mut unsent) => {
                    unsent.body_mut().take_back(self.connection.replay.take());
                    Attempt::Unsent(Box::new(unsent))
                }
                None => Attempt::Failed(self.connection, SendError::BadResponse(error.into_error())),
            },
            Err(kind) => Attempt::Failed(self.connection, SendError::TimedOut(kind)),
        }
    }
}

/// Waits for the head of a response, and notes the end of the request. While the request's body advances, the upstream is
/// not late with the response.
///
/// `extend` is asked once when time is up: it returns the time for which the try goes on; none to end it.
pub(crate) async fn wait_for_head<T>(
    mut response: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    timer: &mut LazyTimer,
    deadlines: &mut Deadlines,
    upload: &UploadProgress,
    extend: impl FnOnce(TryTimeout, &Deadlines) -> Option<Duration>,
) -> Result<T, TimeoutKind> {
    let mut due = deadlines.sent + deadlines.response;
    let mut uploaded = upload.received_bytes();
    let mut extend = Some(extend);
    let received = poll_fn(|cx| {
        loop {
            if let Poll::Ready(received) = response.as_mut().poll(cx) {
                return Poll::Ready(Ok(received));
            }
            ready!(timer.poll(cx, deadlines.body.earlier(due)));
            if deadlines.has_ended(Instant::now()) {
                return Poll::Ready(Err(TimeoutKind::Exchange));
            }
            if upload.received_bytes() == uploaded {
                let timeout = if upload.is_finished() { TryTimeout::Silent } else { TryTimeout::Stalled };
                match extend.take().and_then(|extend| extend(timeout, deadlines)) {
                    Some(longer) => due += longer,
                    None => return Poll::Ready(Err(timeout.kind())),
                }
                continue;
            }
            // The client still sends: the upstream may wait for the rest of the request, and gets the whole time again.
            (uploaded, due) = (upload.received_bytes(), Instant::now() + deadlines.response);
        }
    })
    .await;
    deadlines.request_end = upload.request_end(deadlines.sent);
    received
}
