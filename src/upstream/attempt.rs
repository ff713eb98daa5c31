//! One request on one connection, until its response's head is there.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::error::{SendError, TimeoutKind};
use super::http1_connection::Connection;
use super::replay_body::OutgoingBody;
use super::settings::Timeouts;
use crate::timer::LazyTimer;

/// How an attempt ended.
pub(super) enum Attempt {
    /// With a response's head.
    Answered(Connection, Response<Incoming>),
    /// Without one, though something may have been sent.
    Failed(Connection, SendError),
    /// Nothing was sent: the request is as it was. Boxed, as it is large and rare.
    Unsent(Box<Request<OutgoingBody>>),
}

/// By when what must have come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// The last byte of the response; none: whenever it comes.
    pub(super) end: Option<Instant>,
    /// From the request being sent to the response's head.
    response: Duration,
    /// Between two pieces of the response's body.
    pub(super) idle: Duration,
}

impl Deadlines {
    /// Those of an exchange that begins now; one that may go on for ever has only a time in which something must come.
    pub(super) fn from_now(timeouts: &Timeouts, long_lived: Option<Duration>) -> Self {
        match long_lived {
            Some(idle) => Self { end: None, response: idle, idle },
            None => Self {
                end: Some(Instant::now() + timeouts.exchange),
                response: timeouts.response,
                idle: timeouts.response_idle,
            },
        }
    }

    /// What is late first: a piece that is due then, or the whole.
    pub(super) fn first(self, piece: Instant) -> Instant {
        self.end.map_or(piece, |end| end.min(piece))
    }

    /// Whether the whole is late.
    pub(super) fn is_over(self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// Sends a request over a connection of its own and waits for the head.
pub(super) async fn exchange(
    mut connection: Connection,
    request: Request<OutgoingBody>,
    deadlines: Deadlines,
    uploaded: &dyn Fn() -> u64,
) -> Attempt {
    let Connection { sender, timer, link, .. } = &mut connection;
    link.begin();
    match head(sender.try_send_request(request), timer, deadlines, uploaded).await {
        Ok(Ok(response)) => Attempt::Answered(connection, response),
        Ok(Err(mut error)) => match error.take_message() {
            Some(unsent) => Attempt::Unsent(Box::new(unsent)),
            None => Attempt::Failed(connection, SendError::BadResponse(error.into_error())),
        },
        Err(late) => Attempt::Failed(connection, SendError::TimedOut(late)),
    }
}

/// Waits for the head. While the request's body goes, the upstream is not late with it.
pub(super) async fn head<T>(
    response: impl Future<Output = T>,
    timer: &mut LazyTimer,
    deadlines: Deadlines,
    uploaded: &dyn Fn() -> u64,
) -> Result<T, TimeoutKind> {
    let mut response = pin!(response);
    let mut due = Instant::now() + deadlines.response;
    let mut before = uploaded();
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(sent) = response.as_mut().poll(cx) {
                return Poll::Ready(Ok(sent));
            }
            ready!(timer.poll(cx, deadlines.first(due)));
            if deadlines.is_over() {
                return Poll::Ready(Err(TimeoutKind::Whole));
            }
            if uploaded() == before {
                return Poll::Ready(Err(TimeoutKind::FirstByte));
            }
            (before, due) = (uploaded(), Instant::now() + deadlines.response);
        }
    })
    .await
}
