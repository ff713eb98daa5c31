//! One attempt to send a request over HTTP/1.1, and the deadlines of an exchange.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::error::{SendError, TimeoutKind};
use super::http1_connection::Connection;
use super::replay_body::OutgoingBody;
use super::settings::Timeouts;
use crate::request_body::UploadProgress;
use crate::timer::LazyTimer;

/// Request that was given to a connection, and the future of its response.
pub(super) struct SentRequest {
    connection: Box<Connection>,
    /// Boxed: the library's future has room for the whole request, which it returns when it could not send it.
    response: Pin<Box<dyn Future<Output = Received>>>,
}

/// Head of a response, or the library's error.
pub(super) type Received = Result<Response<Incoming>, TrySendError<Request<OutgoingBody>>>;

/// Result of an attempt.
pub(super) enum Attempt {
    /// The head of a response came.
    Answered(Box<Connection>, Response<Incoming>),
    /// No head came, and a part of the request may have been sent.
    Failed(Box<Connection>, SendError),
    /// Nothing was sent: the request is unchanged. Boxed, because it is large and rare.
    Unsent(Box<Request<OutgoingBody>>),
}

/// Deadlines of an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Time at which the request was given to a connection.
    pub(super) sent: Instant,
    /// End of the request's body, from which the latency of the response counts: a slow upload is not the endpoint's. None
    /// when the response began before that.
    pub(super) request_end: Option<Instant>,
    /// Time of the last byte of the response; none for a long-lived exchange.
    end: Option<Instant>,
    /// Time from the request being sent to the head of the response.
    response: Duration,
    /// Time between two pieces of the response's body.
    pub(super) idle: Duration,
}

impl Deadlines {
    /// Deadlines of an exchange that begins when its request is `sent`. A long-lived one only has a time in which something
    /// must come.
    pub(super) fn new(timeouts: &Timeouts, long_lived: Option<Duration>, sent: Instant) -> Self {
        match long_lived {
            Some(idle) => Self { sent, request_end: None, end: None, response: idle, idle },
            None => Self {
                sent,
                request_end: None,
                end: Some(sent + timeouts.exchange),
                response: timeouts.response,
                idle: timeouts.response_idle,
            },
        }
    }

    /// The same for a request that is given to a connection only now.
    pub(super) fn sent_now(self) -> Self {
        Self { sent: Instant::now(), ..self }
    }

    /// The earlier deadline: of the next piece, or of the exchange as a whole.
    pub(super) fn earlier(&self, piece: Instant) -> Instant {
        self.end.map_or(piece, |end| end.min(piece))
    }

    /// Returns whether the deadline of the exchange as a whole has passed.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| now >= end)
    }
}

impl SentRequest {
    /// Gives a request to a connection. `keeps_head`: it has no body, and may be sent again.
    pub(super) fn send(mut connection: Box<Connection>, request: Box<Request<OutgoingBody>>, keeps_head: bool) -> Self {
        connection.state.begin_exchange(keeps_head);
        let response = Box::pin(connection.sender.try_send_request(*request));
        Self { connection, response }
    }

    /// Waits for the head of the response.
    pub(super) async fn wait(
        &mut self,
        deadlines: &mut Deadlines,
        upload: &UploadProgress,
    ) -> Result<Received, TimeoutKind> {
        wait_for_head(self.response.as_mut(), &mut self.connection.timer, deadlines, upload).await
    }

    /// Ends the attempt with what was waited for.
    pub(super) fn end(self, received: Result<Received, TimeoutKind>) -> Attempt {
        match received {
            Ok(Ok(response)) => Attempt::Answered(self.connection, response),
            Ok(Err(mut error)) => match error.take_message() {
                // The library gives the request back when the connection was closed before it wrote anything.
                Some(unsent) => Attempt::Unsent(Box::new(unsent)),
                None => Attempt::Failed(self.connection, SendError::BadResponse(error.into_error())),
            },
            Err(kind) => Attempt::Failed(self.connection, SendError::TimedOut(kind)),
        }
    }
}

/// Waits for the head of a response, and notes the end of the request. While the request's body advances, the upstream is
/// not late with the response.
pub(super) async fn wait_for_head<T>(
    mut response: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    timer: &mut LazyTimer,
    deadlines: &mut Deadlines,
    upload: &UploadProgress,
) -> Result<T, TimeoutKind> {
    let mut due = deadlines.sent + deadlines.response;
    let mut uploaded = upload.received_bytes();
    let received = poll_fn(|cx| {
        loop {
            if let Poll::Ready(received) = response.as_mut().poll(cx) {
                return Poll::Ready(Ok(received));
            }
            ready!(timer.poll(cx, deadlines.earlier(due)));
            if deadlines.has_ended(Instant::now()) {
                return Poll::Ready(Err(TimeoutKind::Exchange));
            }
            if upload.received_bytes() == uploaded {
                let is_whole = upload.is_finished();
                return Poll::Ready(Err(if is_whole { TimeoutKind::Head } else { TimeoutKind::Upload }));
            }
            // The client still sends: the upstream may wait for the rest of the request, and gets the whole time again.
            (uploaded, due) = (upload.received_bytes(), Instant::now() + deadlines.response);
        }
    })
    .await;
    deadlines.request_end = upload.request_end(deadlines.sent);
    received
}
