//! The body of an upstream's response, and the connection it comes over.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::attempt::Deadlines;
use super::endpoint::InFlight;
use super::error::{ResponseError, TimeoutKind};
use super::http1_connection::Connection;
use super::http2_connections::Http2Stream;
use super::pool::PoolState;
use super::replay_body::ReplayHandle;
use super::tunnel::Tunnel;
use crate::timer::LazyTimer;

/// A connection in use.
///
/// - Given back when its exchange has ended whole, the request's body included.
/// - Dropped otherwise, and so closed at once: the rest of a request that was answered early goes nowhere.
pub(super) struct ConnectionGuard {
    carrier: Carrier,
    pool: Rc<PoolState>,
    in_flight: InFlight,
    reusable: bool,
}

/// What an exchange goes over.
pub(super) enum Carrier {
    /// A connection of its own.
    Http1(Connection),
    /// A stream, and the replay of the request that it carries: dropped, it takes back what is left of it.
    Http2 { stream: Http2Stream, _replay: ReplayHandle },
}

impl ConnectionGuard {
    pub(super) fn new(carrier: Carrier, pool: Rc<PoolState>, in_flight: InFlight, reusable: bool) -> Self {
        Self { carrier, pool, in_flight, reusable }
    }

    fn timer(&mut self) -> &mut LazyTimer {
        match &mut self.carrier {
            Carrier::Http1(connection) => &mut connection.timer,
            Carrier::Http2 { stream, .. } => &mut stream.timer,
        }
    }

    /// The connection itself, when it has stopped speaking HTTP.
    async fn tunnel(self) -> Option<Tunnel> {
        let Carrier::Http1(Connection { link, beyond, .. }) = self.carrier else { return None };
        let ahead = beyond.await.ok()?;
        Some(Tunnel::new(ahead, link.wire(), self.in_flight))
    }

    fn give_back(self) {
        // The library is ready for the next request when this one's body has gone whole, too.
        match self.carrier {
            Carrier::Http1(connection) if self.reusable && connection.sender.is_ready() => {
                connection.link.end();
                self.pool.keep(self.in_flight.index(), connection);
            }
            Carrier::Http1(_) | Carrier::Http2 { .. } => {}
        }
    }
}

/// A response body that keeps its connection and gives it back at its end.
pub struct ResponseBody {
    body: Incoming,
    guard: Option<ConnectionGuard>,
    /// How long a piece may take.
    deadlines: Deadlines,
    /// Until when the upstream is waited for, while it is; not while the client is.
    due: Option<Instant>,
}

impl ResponseBody {
    pub(super) fn new(body: Incoming, guard: ConnectionGuard, deadlines: Deadlines) -> Self {
        let mut this = Self { body, guard: Some(guard), deadlines, due: None };
        this.give_back_at_end();
        this
    }

    /// A body that is none: the connection behind it speaks another protocol.
    pub(super) fn switched(body: Incoming, guard: ConnectionGuard, deadlines: Deadlines) -> Self {
        Self { body, guard: Some(guard), deadlines, due: None }
    }

    /// The connection behind a 101; none when it broke meanwhile, or when this is no 101.
    pub async fn into_tunnel(mut self) -> Option<Tunnel> {
        self.guard.take()?.tunnel().await
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(guard) = self.guard.take()
        {
            guard.give_back();
        }
    }

    /// What has come in time, or the end of our timeouts.
    fn arrived(
        &mut self,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Option<Result<Frame<Bytes>, ResponseError>> {
        self.due = None;
        if frame.is_some() && self.deadlines.is_over() {
            return Some(Err(self.give_up(TimeoutKind::Whole)));
        }
        match &frame {
            Some(Err(_)) => drop(self.guard.take()),
            // Trailers are the last frame (RFC 9110, section 6.5).
            Some(Ok(frame)) if frame.is_trailers() => {
                self.guard.take().into_iter().for_each(ConnectionGuard::give_back)
            }
            Some(Ok(_)) => self.give_back_at_end(),
            None => self.guard.take().into_iter().for_each(ConnectionGuard::give_back),
        }
        frame.map(|frame| frame.map_err(ResponseError::Broken))
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<TimeoutKind> {
        let due = *self.due.get_or_insert_with(|| self.deadlines.first(Instant::now() + self.deadlines.idle));
        match &mut self.guard {
            Some(guard) => guard.timer().poll(cx, due).map(|()| match self.deadlines.is_over() {
                true => TimeoutKind::Whole,
                false => TimeoutKind::Piece,
            }),
            // Without a connection there is nothing to wait for: the end has come, or is about to be seen.
            None => Poll::Pending,
        }
    }

    fn give_up(&mut self, late: TimeoutKind) -> ResponseError {
        if let Some(guard) = self.guard.take() {
            late.count(&guard.in_flight.shared().metrics.timeouts);
        }
        ResponseError::TimedOut(late)
    }
}

impl Unpin for ResponseBody {}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(self.arrived(frame)),
            Poll::Pending => self.poll_late(cx).map(|late| Some(Err(self.give_up(late)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
