//! The response body that keeps what a request holds until its last frame.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use prometheus::{Histogram, IntCounter, IntGauge};

use crate::audit::{AuditEntry, Outcome, UseEnd};
use crate::clock::{self, Micros};
use crate::forward;
use crate::request_body::UploadProgress;
use crate::state::Permit;
use crate::upstream::{ResponseBody, ResponseError};

/// What an admitted request holds: its slot and its open audit entry.
///
/// - Dropped anywhere, it gives the slot back and closes the entry; as `aborted` unless it was told otherwise.
pub(super) struct Exchange {
    pub(super) _permit: Permit,
    pub(super) entry: Option<AuditEntry>,
    pub(super) arrived: Micros,
    pub(super) upload: UploadProgress,
    pub(super) status: Option<StatusCode>,
    pub(super) sent: u64,
    /// Bytes that the client sent behind a 101.
    pub(super) tunnelled: u64,
    /// For clients that read trailers: where the fields are counted that do not pass.
    pub(super) trailers: Option<IntCounter>,
    /// How it ended, once that is known.
    pub(super) outcome: Option<Outcome>,
    pub(super) in_flight: IntGauge,
    pub(super) duration: Histogram,
}

impl Exchange {
    /// It ended; the first to say how is right.
    pub(super) fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let duration_us = clock::now().since(self.arrived);
        self.in_flight.dec();
        #[allow(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        self.duration.observe(duration_us as f64 / 1e6);
        if let Some(entry) = self.entry.take() {
            // What a panic drops is no fault of the client's, who is answered 500 if not answered yet.
            let failed = std::thread::panicking();
            let unsaid = if failed { Outcome::InternalError } else { Outcome::Aborted };
            let status = self.status.or(failed.then_some(StatusCode::INTERNAL_SERVER_ERROR));
            entry.close(UseEnd {
                outcome: self.outcome.unwrap_or(unsaid),
                status: status.map(|status| status.as_u16()),
                duration_us,
                request_bytes: self.upload.received_bytes() + self.tunnelled,
                response_bytes: self.sent,
            });
        }
    }
}

/// The body of a response to a client.
pub enum GuardedBody {
    /// The gateway's own words.
    Own(Full<Bytes>),
    /// The upstream's, with what the request holds.
    Upstream {
        /// The upstream's body.
        body: ResponseBody,
        /// Whether there is no body, and a length of the one that is not there. On HTTP/1 the library says such a length
        /// only when it takes the body for one that may still come.
        length_only: bool,
        /// What is held until it ends. Boxed: it is moved with every response, and larger than the body itself.
        exchange: Box<Held>,
    },
}

/// What a response body holds on to until it is dropped.
pub struct Held(pub(super) Exchange);

impl Body for GuardedBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match &mut *self {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream { body, exchange, .. } => {
                let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
                exchange.0.note(frame.as_ref());
                Poll::Ready(exchange.0.shown(frame))
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
    fn note(&mut self, frame: Option<&Result<Frame<Bytes>, ResponseError>>) {
        match frame {
            // Trailers are the last frame, after which nobody asks for more.
            Some(Ok(frame)) if frame.is_trailers() => self.end(Outcome::Completed),
            Some(Ok(frame)) => self.sent += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => {
                tracing::debug!(%error, "a response broke off");
                let uploaded = self.upload.error().is_none();
                self.end(if uploaded { Outcome::UpstreamError } else { Outcome::ClientError });
            }
            None => self.end(Outcome::Completed),
        }
    }
}

impl Exchange {
    /// What is shown of a frame: trailers only where they were asked for, and of those only what may come so late.
    fn shown(&self, frame: Option<Result<Frame<Bytes>, ResponseError>>) -> Option<Result<Frame<Bytes>, ResponseError>> {
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
    /// A body without a frame left is complete, also when nobody asked for the end that was plain to see.
    fn drop(&mut self) {
        if let Self::Upstream { body, exchange, .. } = self
            && body.is_end_stream()
        {
            exchange.0.end(Outcome::Completed);
        }
    }
}
