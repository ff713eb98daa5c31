//! Connection (HTTP/1.1) or stream (HTTP/2) that carries one exchange.
//!
//! For a retry, the request is made again from what its carrier has kept:
//!
//! - HTTP/1.1: the bytes of its head, as they were written ([`super::sent_head`]), and a body that is small, of a
//!   request that may be executed twice.
//! - HTTP/2: a copy of its head, and a body that is small, of every request. One that the upstream refuses to begin
//!   with (REFUSED_STREAM, or a GOAWAY that excludes its stream) may be sent again whatever its method: nothing was
//!   processed (RFC 9113, section 8.7). The copies are counts of references, and not of bytes.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use super::http1::Connection;
use super::http2::{Http2Stream, WaitingHead};
use super::http2_connections::{BrokenStream, Http2Connections, rewrite_head};
use super::idle::IdleConnections;
use super::sent_head::Kept;
use crate::endpoint::endpoints::EndpointState;
use crate::error::SendError;
use crate::exchange::replay_body::{OutgoingBody, ReplayHandle, copy_head};
use crate::exchange::retry::RetryReason;
use domain::field_lines::FieldLines;
use platform::timer::LazyTimer;

/// Future of the head of a response. Boxed: the library's has room for the whole request, which it returns when it
/// could not send it.
pub(crate) type ReceivedHead = Pin<Box<dyn Future<Output = Received>>>;

/// Head of a response, or the library's error.
pub(crate) type Received = Result<Response<Incoming>, TrySendError<Request<OutgoingBody>>>;

/// Connection or stream that carries an exchange. Dropped, it closes the connection, or cancels the stream.
pub(crate) enum Carrier {
    /// Connection of its own.
    Http1 {
        connection: Box<Connection>,
        /// Idle connections that it returns to, shared by this worker's exchanges with the endpoint.
        idle: Rc<RefCell<IdleConnections>>,
        /// True if it was made for this exchange.
        is_new: bool,
    },
    /// Stream of a connection that others share. Boxed, because it is large.
    Http2(Box<StreamCarrier>),
}

/// Stream, and what is kept of its request.
pub(crate) struct StreamCarrier {
    stream: Http2Stream,
    /// Copy of the request's head; taken when it is made again, or when the response has begun.
    head: Option<Request<()>>,
    /// Body of the request, if it has one. Dropped with the stream, it cancels what is left of the body.
    replay: Option<ReplayHandle>,
    /// Counts the request among those that wait for a head, while it does.
    waiting: Option<WaitingHead>,
    /// Answers on the connection, to any request, when this one was sent.
    answers: u64,
}

/// Head and body of a request that can be sent again. A request without a body has none.
pub(crate) type KeptRequest = (Request<()>, Option<ReplayHandle>);

impl Carrier {
    /// Connection that was idle.
    pub(crate) fn pooled(connection: Box<Connection>, idle: &Rc<RefCell<IdleConnections>>) -> Self {
        Self::Http1 { connection, idle: Rc::clone(idle), is_new: false }
    }

    pub(crate) fn of_stream(stream: Http2Stream) -> Self {
        Self::Http2(Box::new(StreamCarrier { stream, head: None, replay: None, waiting: None, answers: 0 }))
    }

    /// Returns whether the connection was made for this exchange.
    pub(crate) fn is_new(&self) -> bool {
        match self {
            Self::Http1 { is_new, .. } => *is_new,
            Self::Http2(carrier) => carrier.stream.is_first,
        }
    }

    /// Gives a request to the connection, and fields that are added to its head. `is_repeatable`: it may be executed
    /// twice. Up to `max_body` bytes of its body are kept.
    pub(crate) fn send(
        &mut self,
        mut request: Request<OutgoingBody>,
        added: FieldLines,
        endpoint: &EndpointState,
        is_repeatable: bool,
        max_body: usize,
    ) -> ReceivedHead {
        match self {
            Self::Http1 { connection, .. } => {
                connection.replay = if is_repeatable { request.body_mut().keep(max_body) } else { None };
                let keeps = match &connection.replay {
                    _ if !is_repeatable => Kept::Nothing,
                    None => Kept::All,
                    Some(_) => Kept::Head,
                };
                connection.state.begin_exchange(added, keeps);
                Box::pin(connection.sender.try_send_request(request))
            }
            Self::Http2(carrier) => {
                added.write_to(request.headers_mut());
                carrier.replay = request.body_mut().keep(max_body);
                carrier.head = Some(copy_head(&request));
                carrier.answers = carrier.stream.connection.answers.count();
                carrier.waiting = Some(WaitingHead::new(&carrier.stream));
                Box::pin(carrier.stream.sender().try_send_request(rewrite_head(request, endpoint)))
            }
        }
    }

    pub(crate) fn timer(&mut self) -> &mut LazyTimer {
        match self {
            Self::Http1 { connection, .. } => &mut connection.timer,
            Self::Http2(carrier) => &mut carrier.stream.timer,
        }
    }

    /// Body of the request that it carries, if that has one that is kept.
    fn replay(&self) -> Option<&ReplayHandle> {
        match self {
            Self::Http1 { connection, .. } => connection.replay.as_ref(),
            Self::Http2(carrier) => carrier.replay.as_ref(),
        }
    }

    fn is_body_kept(&self) -> bool {
        self.replay().is_none_or(ReplayHandle::is_kept)
    }

    /// Returns whether the exchange can be given up for a retry: no byte of a response has come (HTTP/1.1), and the
    /// request's body can be sent again.
    pub(crate) fn can_give_up(&self) -> bool {
        let has_received = matches!(self, Self::Http1 { connection, .. } if connection.state.has_received());
        !has_received && self.is_body_kept()
    }

    /// Returns whether the upstream has closed the connection before the request was sent whole.
    pub(crate) fn has_failed_write(&self) -> bool {
        matches!(self, Self::Http1 { connection, .. } if connection.state.has_failed_write())
    }

    /// Notes that the response has ended, or that the library has given it up: a stream's drop resets nothing any more.
    pub(crate) fn note_end(&self) {
        if let Self::Http2(carrier) = self {
            carrier.stream.note_end();
        }
    }

    /// Ends the wait for the head of a response.
    pub(crate) fn end_wait(&mut self) {
        if let Self::Http2(carrier) = self {
            carrier.waiting = None;
        }
    }

    /// Keeps the connection from further requests when nothing has come for any of its requests: it may be cut off, and
    /// others would wait in vain. To be called when no head has come in time.
    pub(crate) fn retire_if_silent(&self, connections: &Http2Connections) {
        if let Self::Http2(carrier) = self
            && carrier.stream.connection.answers.count() == carrier.answers
        {
            connections.retire(&carrier.stream.connection);
        }
    }

    /// Takes back a request of which nothing was sent, from the library's error; none when a part may have been sent,
    /// and over HTTP/2, where it is made again from its copy.
    pub(crate) fn take_unsent(
        &mut self,
        error: &mut TrySendError<Request<OutgoingBody>>,
    ) -> Option<Box<Request<OutgoingBody>>> {
        let Self::Http1 { connection, .. } = self else { return None };
        // The library gives the request back when the connection was closed before it wrote anything.
        let mut unsent = error.take_message()?;
        unsent.body_mut().take_back(connection.replay.take());
        if let Some(added) = connection.state.take_unsent_lines() {
            added.write_to(unsent.headers_mut());
        }
        Some(Box::new(unsent))
    }

    /// Classifies the library's error. The reason is that for sending the request again; none when it must not be, for
    /// what the upstream has done.
    pub(crate) fn classify(&self, mut error: TrySendError<Request<OutgoingBody>>) -> (SendError, Option<RetryReason>) {
        let Self::Http2(carrier) = self else {
            let broken = if self.is_new() { RetryReason::Broken } else { RetryReason::Stale };
            return (SendError::BadResponse(error.into_error()), self.can_give_up().then_some(broken));
        };
        self.note_end();
        // The connection had no stream left after all, or was closed: nothing was sent.
        let is_unsent = error.take_message().is_some();
        let error = error.into_error();
        let reason = match BrokenStream::of(&error) {
            BrokenStream::Refused => return (SendError::Refused(error), Some(RetryReason::Refused)),
            _ if is_unsent => return (SendError::Refused(error), Some(RetryReason::Refused)),
            BrokenStream::Reset => Some(RetryReason::Broken),
            // One of its streams has an answer, and which one is not known here.
            BrokenStream::Connection if carrier.stream.connection.answers.has_interim() => None,
            BrokenStream::Connection if self.is_new() => Some(RetryReason::Broken),
            BrokenStream::Connection => Some(RetryReason::Stale),
            BrokenStream::Answered | BrokenStream::Invalid => None,
        };
        (SendError::BadResponse(error), reason)
    }

    /// Takes what the request is made again from; none when that is not the whole request.
    pub(crate) fn take_kept(&mut self) -> Option<KeptRequest> {
        if !self.is_body_kept() {
            return None;
        }
        let body = self.replay().cloned();
        let head = match self {
            Self::Http1 { connection, .. } => connection.state.sent_head(),
            Self::Http2(carrier) => carrier.head.take(),
        };
        Some((head?, body))
    }

    /// Drops what is kept of the request: its response is the client's.
    pub(crate) fn stop_keeping(&mut self) {
        if let Some(body) = self.replay() {
            body.stop_buffering();
        }
        if let Self::Http2(carrier) = self {
            carrier.head = None;
        }
    }
}
