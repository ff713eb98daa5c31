//! Calls of gRPC: their messages in both directions, and the body of their responses.
//!
//! The conversation of a call is one future, which the body of the response polls. It puts messages into an outbox, and
//! ends with a status. So it needs no task of its own, and is dropped with the stream, wherever it waits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use envoy_wire::grpc::{self, Code, Message, MessageError, MessageReader};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

/// End of a call, with a message for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) Code, pub(super) &'static str);

/// Messages that are to be sent.
#[derive(Clone, Default)]
pub(super) struct Outbox(Rc<RefCell<VecDeque<Bytes>>>);

/// Messages that come.
pub(super) struct Inbox {
    body: Incoming,
    reader: MessageReader,
}

/// Reason why no message comes any more.
#[derive(Debug)]
pub(super) enum InboxError {
    /// The stream was reset, or its connection is lost.
    Lost,
    /// The bytes are no message.
    Invalid(MessageError),
}

/// Body of the response to a call.
pub struct CallBody {
    outbox: Outbox,
    /// None once the trailers were sent.
    conversation: Option<Conversation>,
}

/// Conversation of a call.
pub(super) type Conversation = Pin<Box<dyn Future<Output = Status>>>;

impl Status {
    /// The call went to its end.
    pub(super) const OK: Self = Self(Code::Ok, "");
}

impl Outbox {
    /// Sends a message.
    pub(super) fn send(&self, message: &impl Message) {
        self.0.borrow_mut().push_back(grpc::encode_message(message));
    }

    fn next(&self) -> Option<Frame<Bytes>> {
        self.0.borrow_mut().pop_front().map(Frame::data)
    }
}

impl Inbox {
    /// The messages of a body, of at most `limit` bytes each.
    pub(super) fn new(body: Incoming, limit: usize) -> Self {
        Self { body, reader: MessageReader::new(limit) }
    }

    /// The next message; none at the end of the stream.
    pub(super) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, InboxError> {
        loop {
            if let Some(message) = self.reader.next_message()? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return self.reader.finish().map(|()| None).map_err(InboxError::from),
                Some(Err(_)) => return Err(InboxError::Lost),
                Some(Ok(frame)) => frame.into_data().into_iter().for_each(|data| self.reader.push(data)),
            }
        }
    }

    /// The first message, within a time.
    ///
    /// # Errors
    /// Status with which the call ends without one.
    pub(super) async fn first<M: Message + Default>(&mut self, time: Duration) -> Result<M, Status> {
        match timeout(time, self.next()).await {
            Ok(Ok(Some(message))) => Ok(message),
            Ok(Ok(None)) => Err(Status(Code::InvalidArgument, "the call has no message")),
            Ok(Err(error)) => Err(error.status()),
            Err(_) => Err(Status(Code::Unavailable, "the message did not come in time")),
        }
    }

    /// The only message, within a time.
    ///
    /// # Errors
    /// Status with which the call ends, without one or with a second one.
    pub(super) async fn only<M: Message + Default>(&mut self, time: Duration) -> Result<M, Status> {
        let message = self.first(time).await?;
        match timeout(time, self.next::<M>()).await {
            Ok(Ok(None)) => Ok(message),
            Ok(Ok(Some(_))) => Err(Status(Code::InvalidArgument, "the call has more than one message")),
            Ok(Err(error)) => Err(error.status()),
            Err(_) => Err(Status(Code::Unavailable, "the end of the call did not come in time")),
        }
    }

    /// Waits until the peer has ended its side, at most for a time. A call that ends before is reset by the HTTP
    /// library, and what is on its way then counts as an error of the peer.
    pub(super) async fn end<M: Message + Default>(&mut self, time: Duration) {
        // Whatever comes, and however it ends: the call is over.
        let _ = timeout(time, async { while let Ok(Some(_)) = self.next::<M>().await {} }).await;
    }
}

impl InboxError {
    /// Status with which the call ends.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Lost => Status(Code::Unavailable, "the stream is lost"),
            Self::Invalid(error) => Status(error.code(), "the bytes are no message"),
        }
    }
}

impl From<MessageError> for InboxError {
    fn from(error: MessageError) -> Self {
        Self::Invalid(error)
    }
}

impl CallBody {
    /// The body of a call with this conversation, which sends its messages by the outbox.
    pub(super) fn new(outbox: Outbox, conversation: Conversation) -> Self {
        Self { outbox, conversation: Some(conversation) }
    }

    pub(in crate::gateway) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some(message) = self.outbox.next() {
            return Poll::Ready(Some(message));
        }
        let Some(conversation) = &mut self.conversation else { return Poll::Ready(None) };
        let ended = conversation.as_mut().poll(cx);
        if let Some(message) = self.outbox.next() {
            // Ended or not, it is polled again: the end is told behind the messages.
            if let Poll::Ready(status) = ended {
                self.conversation = Some(Box::pin(std::future::ready(status)));
            }
            return Poll::Ready(Some(message));
        }
        ended.map(|Status(code, message)| {
            self.conversation = None;
            Some(Frame::trailers(grpc::trailers(code, message)))
        })
    }

    pub(in crate::gateway) fn has_ended(&self) -> bool {
        self.conversation.is_none()
    }
}
