//! Body of an upstream's response, and the connection that it comes over.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::deadlines::BodyDeadlines;
use super::tunnel::Tunnel;
use crate::connection::carrier::Carrier;
use crate::connection::http1::Connection;
use crate::connection::idle::IdleConnections;
use crate::endpoint::endpoints::{EndpointState, InFlight};
use crate::endpoint::failure::Failure;
use crate::endpoint::observed_try::BROKEN;
use crate::endpoint::record;
use crate::error::{ResponseError, TimeoutKind, is_closed_by_peer};
use domain::head_fields::FieldSet;

/// Guard of a connection in use.
///
/// - Released when its exchange has ended whole, the request's body included: the connection is pooled again.
/// - Dropped otherwise: the connection closes at once, so that the rest of a request that was answered early goes
///   nowhere.
pub(crate) struct ConnectionGuard {
    /// Dropped, it closes the connection, or cancels the stream.
    carrier: Carrier,
    /// Counts the request at its endpoint until it is dropped.
    in_flight: InFlight,
    /// True if the connection can carry another exchange, as far as the head of this response says.
    reusable: bool,
    /// True when the outcome of the exchange was recorded: its status said that the endpoint has failed.
    is_recorded: bool,
    /// True when the response began before the request was sent whole.
    is_early: bool,
}

impl ConnectionGuard {
    /// Guard of a connection that has brought the head of a response of this version.
    pub(crate) fn new(
        carrier: Carrier,
        in_flight: InFlight,
        version: Version,
        is_recorded: bool,
        is_early: bool,
    ) -> Self {
        // To a server of HTTP/1.0 the library would speak HTTP/1.0 from now on, in which no body can be chunked.
        Self { carrier, in_flight, reusable: version != Version::HTTP_10, is_recorded, is_early }
    }

    /// Records that the endpoint has failed, unless its status has said so already, and closes the connection.
    pub(crate) fn fail(mut self, failure: Failure) {
        if let Some(observed) = self.in_flight.observed() {
            observed.note_error(BROKEN);
        }
        self.record_failure(failure);
    }

    /// Closes a connection that broke. A server that refuses an upload early may close before its response has gone
    /// whole: that is no failure. On HTTP/2 a refusal ends a stream, and no connection.
    fn break_off(mut self, error: &hyper::Error) {
        self.carrier.note_end();
        let is_http1 = matches!(self.carrier, Carrier::Http1 { .. });
        self.is_recorded |= is_http1 && self.is_early && is_closed_by_peer(error);
        self.fail(Failure::GatewayError);
    }

    fn record_failure(&mut self, failure: Failure) {
        if !std::mem::replace(&mut self.is_recorded, true) {
            record::record_failure(&self.in_flight, failure);
        }
    }

    fn succeed(&self) {
        if !self.is_recorded {
            record::record_success(&self.in_flight);
        }
    }

    pub(crate) fn endpoint(&self) -> &EndpointState {
        self.in_flight.endpoint()
    }

    /// Fields of the response's head that are acted on; none when the head was not scanned, as on HTTP/2.
    pub(crate) fn fields(&self) -> Option<FieldSet> {
        match &self.carrier {
            Carrier::Http1 { connection, .. } => connection.state.fields(),
            Carrier::Http2(_) => None,
        }
    }

    /// Notes for how long the upstream keeps the connection, where it says so.
    pub(crate) fn note_keep_alive(&self, headers: &HeaderMap) {
        if let (Carrier::Http1 { connection, .. }, Some(value)) = (&self.carrier, headers.get("keep-alive")) {
            connection.lifetime.note_keep_alive(value.as_bytes());
        }
    }

    /// Turns a connection that has stopped speaking HTTP into a tunnel; none when it broke.
    async fn into_tunnel(self) -> Option<Tunnel> {
        self.succeed();
        let Carrier::Http1 { connection, .. } = self.carrier else { return None };
        let Connection { state, beyond, .. } = *connection;
        let ahead = beyond.await.ok()?;
        Some(Tunnel::new(ahead, state.stream(), self.in_flight))
    }

    /// Gives the connection back after a whole response, which has ended now.
    fn release(self, now: Instant) {
        self.succeed();
        self.carrier.note_end();
        match self.carrier {
            // The library is ready for the next request only when this request's body has gone whole, too.
            Carrier::Http1 { mut connection, idle, .. } if self.reusable && connection.sender.is_ready() => {
                connection.replay = None;
                connection.state.end_exchange();
                IdleConnections::take_back(&idle, connection, now);
            }
            Carrier::Http1 { .. } | Carrier::Http2(_) => {}
        }
    }
}

/// Response body that holds its connection and releases it at its end.
pub struct ResponseBody {
    body: Incoming,
    guard: Option<ConnectionGuard>,
    deadlines: BodyDeadlines,
    /// Deadline of the next piece, while the upstream is waited for; none while the client is.
    due: Option<Instant>,
}

impl ResponseBody {
    pub(crate) fn new(body: Incoming, guard: ConnectionGuard, deadlines: BodyDeadlines) -> Self {
        let mut this = Self { body, guard: Some(guard), deadlines, due: None };
        if this.body.is_end_stream() {
            this.release(Instant::now());
        }
        this
    }

    /// Body of a 101 response: it has none, and the connection behind it speaks another protocol.
    pub(crate) fn switched(body: Incoming, guard: ConnectionGuard, deadlines: BodyDeadlines) -> Self {
        Self { body, guard: Some(guard), deadlines, due: None }
    }

    /// Takes the connection behind a 101; none when it broke meanwhile, or when the response is no 101.
    pub async fn into_tunnel(mut self) -> Option<Tunnel> {
        self.guard.take()?.into_tunnel().await
    }

    fn release(&mut self, now: Instant) {
        if let Some(guard) = self.guard.take() {
            guard.release(now);
        }
    }

    /// Releases the connection behind trailers, which may say that the exchange has failed.
    fn release_behind(&mut self, trailers: &Frame<Bytes>, now: Instant) {
        let failure = trailers.trailers_ref().and_then(Failure::of_grpc);
        if let (Some(guard), Some(failure)) = (&mut self.guard, failure) {
            guard.record_failure(failure);
        }
        self.release(now);
    }

    /// Passes on a frame, or the end, unless the exchange has taken too long as a whole.
    fn accept_frame(
        &mut self,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Option<Result<Frame<Bytes>, ResponseError>> {
        self.due = None;
        let now = Instant::now();
        if frame.is_some() && self.deadlines.has_ended(now) {
            return Some(Err(self.time_out(TimeoutKind::Exchange)));
        }
        match &frame {
            Some(Err(error)) => self.record_broken(error),
            // Trailers are the last frame (RFC 9110, section 6.5): nothing is polled after them.
            Some(Ok(frame)) if frame.is_trailers() => self.release_behind(frame, now),
            Some(Ok(_)) if self.body.is_end_stream() => self.release(now),
            Some(Ok(_)) => {}
            None => self.release(now),
        }
        frame.map(|frame| frame.map_err(ResponseError::Broken))
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<TimeoutKind> {
        let due = *self.due.get_or_insert_with(|| self.deadlines.next_piece(Instant::now()));
        match &mut self.guard {
            Some(guard) => guard.carrier.timer().poll(cx, due).map(|()| {
                let has_ended = self.deadlines.has_ended(Instant::now());
                if has_ended { TimeoutKind::Exchange } else { TimeoutKind::Body }
            }),
            // Without a connection there is nothing to wait for: the end has come, or is about to be seen.
            None => Poll::Pending,
        }
    }

    /// Closes a connection that broke. An error of this side, such as a request body that the client did not finish,
    /// says nothing about the endpoint.
    fn record_broken(&mut self, error: &hyper::Error) {
        if let Some(guard) = self.guard.take().filter(|_| !error.is_user()) {
            guard.break_off(error);
        }
    }

    /// Closes the connection and counts the time-out.
    fn time_out(&mut self, kind: TimeoutKind) -> ResponseError {
        if let Some(guard) = self.guard.take() {
            kind.count(&guard.endpoint().metrics.timeouts);
            // A slow client can use up the time of the exchange as a whole.
            if kind != TimeoutKind::Exchange {
                guard.fail(Failure::Timeout);
            }
        }
        ResponseError::TimedOut(kind)
    }
}

impl Unpin for ResponseBody {}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(self.accept_frame(frame)),
            Poll::Pending => self.poll_timeout(cx).map(|kind| Some(Err(self.time_out(kind)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
