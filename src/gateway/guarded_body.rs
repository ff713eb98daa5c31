//! Response bodies that hold the exchange until their last frame.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::exchange::Exchange;
use crate::audit::Outcome;
use crate::forward;
use crate::upstream::{ResponseBody, ResponseError};

/// Body of a response to a client.
pub enum GuardedBody {
    /// Body that the gateway wrote itself.
    Own(Full<Bytes>),
    /// Body of the upstream's response.
    Upstream {
        /// Frames of the upstream.
        body: ResponseBody,
        /// True if there is no body, but a `Content-Length` of the body that a GET would bring. On HTTP/1 the library
        /// sends such a length only when it takes the body for one that may still come.
        length_only: bool,
        /// Exchange that ends with the body. Boxed: it moves with every response, and is larger than the body itself.
        exchange: Box<Exchange>,
    },
}

type PolledFrame = Option<Result<Frame<Bytes>, ResponseError>>;

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PolledFrame> {
        match &mut *self {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream { body, exchange, .. } => {
                let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
                exchange.record_frame(frame.as_ref());
                Poll::Ready(exchange.filter_trailers(frame))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Upstream { body, length_only, .. } => !length_only && body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Upstream { length_only: true, .. } => SizeHint::default(),
            Self::Upstream { body, .. } => body.size_hint(),
        }
    }
}

impl Exchange {
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
        if let Self::Upstream { body, exchange, .. } = self
            && body.is_end_stream()
        {
            exchange.end(Outcome::Completed);
        }
    }
}
