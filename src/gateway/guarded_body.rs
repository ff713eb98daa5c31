//! Response bodies that hold the exchange until their last frame.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::decisions::CallBody;
use super::exchange::{Exchange, ForwardedBody};
use edge::forward;
use journal::audit::Outcome;
use platform::telemetry::{COMPLETED, ObservedRequest};
use upstream::ResponseError;

/// Body of a response to a client.
pub enum GuardedBody {
    /// Body that the gateway wrote itself.
    Own(OwnBody),
    /// Exchange, which holds the body of the upstream's response and ends with it. Boxed: it moves with every response.
    Upstream(Box<Exchange>),
    /// Messages of a call of gRPC.
    Call(Box<CallBody>),
}

/// Body that the gateway wrote itself.
#[derive(Default)]
pub struct OwnBody {
    pub(super) body: Full<Bytes>,
    /// The request, which ends with the body, and is completed unless it has another outcome; none when it is not
    /// observed.
    pub(super) observed: Option<Rc<ObservedRequest>>,
}

type PolledFrame = Option<Result<Frame<Bytes>, ResponseError>>;

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        match &mut *self {
            Self::Own(own) => Pin::new(&mut own.body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream(exchange) => exchange.poll_frame(cx),
            Self::Call(call) => call.poll_frame(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(own) => own.body.is_end_stream(),
            Self::Upstream(exchange) => exchange.body.as_ref().is_none_or(|body| !body.length_only && body.has_ended()),
            Self::Call(call) => call.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(own) => own.body.size_hint(),
            Self::Upstream(exchange) => match &exchange.body {
                Some(body) if !body.length_only => body.frames.size_hint(),
                _ => SizeHint::default(),
            },
            Self::Call(_) => SizeHint::default(),
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
            Some(Ok(frame)) if frame.is_trailers() => {
                if let (Some(metering), Some(trailers)) = (&mut self.metering, frame.trailers_ref()) {
                    metering.read(trailers);
                }
                self.end(Outcome::Completed);
            }
            Some(Ok(frame)) => {
                let data = frame.data_ref().map_or(&[][..], |data| data);
                self.sent += data.len() as u64;
                if let Some(metering) = &mut self.metering {
                    metering.read_body(data);
                }
            }
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
        match self {
            Self::Own(OwnBody { body, observed: Some(observed) }) if body.is_end_stream() => {
                observed.note(|facts| _ = facts.outcome.get_or_insert(COMPLETED));
            }
            Self::Upstream(exchange) if exchange.body.as_ref().is_some_and(ForwardedBody::has_ended) => {
                exchange.end(Outcome::Completed);
            }
            _ => {}
        }
    }
}
