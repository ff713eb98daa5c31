//! Response bodies that hold the exchange until their last frame.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::exchange::{Exchange, ForwardedBody};
use super::observer::ObservedRequest;
use edge::forward;
use journal::audit::Outcome;
use upstream::ResponseError;

/// Body of a response to a client.
pub enum GuardedBody {
    /// Body that the gateway wrote itself.
    Own(Full<Bytes>),
    /// The same, with the request that is observed. Boxed, because it is rare.
    Observed(Box<ObservedBody>),
    /// Exchange, which holds the body of the upstream's response and ends with it. Boxed: it moves with every response.
    Upstream(Box<Exchange>),
}

/// Body that the gateway wrote itself, which holds the observed request to its end.
pub struct ObservedBody {
    pub(super) body: Full<Bytes>,
    pub(super) observed: Rc<ObservedRequest>,
}

impl Drop for ObservedBody {
    fn drop(&mut self) {
        if self.body.is_end_stream() {
            self.observed.note_sent();
        }
    }
}

type PolledFrame = Option<Result<Frame<Bytes>, ResponseError>>;

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        match &mut *self {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Observed(own) => Pin::new(&mut own.body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream(exchange) => exchange.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Observed(own) => own.body.is_end_stream(),
            Self::Upstream(exchange) => exchange.body.as_ref().is_none_or(|body| !body.length_only && body.has_ended()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Observed(own) => own.body.size_hint(),
            Self::Upstream(exchange) => match &exchange.body {
                Some(body) if !body.length_only => body.frames.size_hint(),
                _ => SizeHint::default(),
            },
        }
    }
}

impl Exchange {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = std::task::ready!(Pin::new(&mut body.frames).poll_frame(cx));
        self.record_frame(frame.as_ref());
        Poll::Ready(self.filter_trailers(frame))
    }

    /// Counts the bytes of a frame, or sets the outcome at the end.
    fn record_frame(&mut self, frame: Option<&Result<Frame<Bytes>, ResponseError>>) {
        match frame {
            // Trailers are the last frame: nothing is polled after them.
            Some(Ok(frame)) if frame.is_trailers() => self.end(Outcome::Completed),
            Some(Ok(frame)) => self.sent += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => {
                tracing::debug!(%error, "a response from the upstream ended early");
                let is_uploaded = self.upload.error().is_none();
                self.end(if is_uploaded { Outcome::UpstreamError } else { Outcome::ClientError });
            }
            None => self.end(Outcome::Completed),
        }
    }

    /// Passes trailers on only to a client that reads them, and of those only what may come after the head.
    fn filter_trailers(&self, frame: PolledFrame) -> PolledFrame {
        match frame?.map(Frame::into_trailers) {
            Ok(Ok(mut trailers)) => {
                self.trailers.as_ref()?.inc_by(forward::rewrite_trailers(&mut trailers));
                Some(Ok(Frame::trailers(trailers)))
            }
            Ok(Err(data)) => Some(Ok(data)),
            Err(error) => Some(Err(error)),
        }
    }
}

impl Drop for GuardedBody {
    /// A body without a frame left is complete, also when the server has not polled for the end, which it could see.
    fn drop(&mut self) {
        if let Self::Upstream(exchange) = self
            && exchange.body.as_ref().is_some_and(ForwardedBody::has_ended)
        {
            exchange.end(Outcome::Completed);
        }
    }
}
