//! Sending requests over HTTP/2.
//!
//! A request that the upstream refuses to begin with (REFUSED_STREAM, or a GOAWAY that excludes its stream) may be sent
//! again whatever its method: nothing was processed (RFC 9113, section 8.7). One that an interim response (1xx) has
//! answered is not sent again, however the upstream ends it. For that its head is copied, and some bytes of its body
//! are buffered until the response begins, which costs reference counts and no copies of bytes.

use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::attempt::{Deadlines, TryTimeout, wait_for_head};
use super::finish::finish;
use super::replay_body::{OutgoingBody, ReplayHandle, copy_head};
use super::response_body::Carrier;
use super::retry::RetryReason;
use super::send_again::{FailedTry, SentAgain, Tried, Unsent};
use super::send_options::SendOptions;
use crate::connection::http2::{Http2Stream, WaitingHead};
use crate::connection::http2_connections::{self, BrokenStream, NoStream};
use crate::connection::reservation::Reserved;
use crate::endpoint::endpoints::InFlight;
use crate::endpoint::record;
use crate::error::{SendError, TimeoutKind};
use crate::pool::{AddressedRequest, Pool};

/// Result of an attempt on a stream.
enum Attempt {
    /// The head of a response came.
    Answered(Http2Stream, Response<Incoming>),
    /// No head came. The reason, if the request may be sent again.
    Failed(SendError, Option<RetryReason>),
}

impl Pool {
    /// Tries one endpoint over HTTP/2, over what is reserved there.
    pub(crate) async fn try_http2(
        &self,
        addressed: AddressedRequest,
        reserved: Reserved,
        options: &SendOptions,
    ) -> Tried {
        let needs_time = !matches!(reserved, Reserved::Stream(_));
        let timeout = self.connect_time(options);
        if needs_time && timeout.is_none() {
            return Tried::Unsent(Unsent::without_time(addressed));
        }
        let begun = Instant::now();
        let acquired = self.acquire_stream(&addressed.in_flight, reserved, timeout.unwrap_or_default()).await;
        options.connecting.spend_on_attempt(begun.elapsed());
        let stream = match acquired {
            Ok(stream) => stream,
            Err(NoStream::Full) => return Tried::Unsent(Unsent { addressed, timed_out: false, is_full: true }),
            Err(NoStream::Failed(error)) => {
                let timed_out = record::record_connect_error(&addressed.in_flight, &error);
                return Tried::Unsent(Unsent { addressed, timed_out, is_full: false });
            }
        };
        self.try_stream(stream, addressed, options).await
    }

    async fn try_stream(&self, stream: Http2Stream, addressed: AddressedRequest, options: &SendOptions) -> Tried {
        let AddressedRequest { mut request, in_flight, deadlines } = addressed;
        let mut deadlines = deadlines.sent_now();
        let body = request.body_mut().keep(self.retries().max_body);
        let head = copy_head(&request);
        let (answered, reason) =
            match self.attempt_http2(stream, (*request, body.as_ref()), &in_flight, &mut deadlines, options).await {
                Attempt::Answered(stream, response) => {
                    let reason = self.retry_reason_of(&response, options);
                    if let (Some(body), None) = (&body, reason) {
                        // The upstream has begun, and the body need not be kept.
                        body.stop_buffering();
                    }
                    (Ok((Carrier::Http2 { stream, _replay: body.clone() }, response)), reason)
                }
                Attempt::Failed(error, reason) => (Err(error), reason),
            };
        let is_kept = body.as_ref().is_none_or(ReplayHandle::is_kept);
        match reason {
            Some(reason) if is_kept => {
                let again = SentAgain { reason, head, body };
                Tried::Failed(Box::new(FailedTry { again, answered, in_flight, deadlines }))
            }
            _ => Tried::Ended(finish(answered, in_flight, deadlines)),
        }
    }

    /// Acquires a stream of a connection, which may have to be made within this time.
    async fn acquire_stream(
        &self,
        in_flight: &InFlight,
        reserved: Reserved,
        timeout: Duration,
    ) -> Result<Http2Stream, NoStream> {
        let permit = match reserved {
            Reserved::Stream(stream) => return Ok(stream),
            Reserved::Permit(permit) => Some(permit),
            Reserved::Pooled | Reserved::Connection(_) => None,
        };
        let limiter = self.link().limiter();
        let connections = self.http2_connections(in_flight.index());
        let acquired = connections.acquire(in_flight.endpoint(), limiter, permit, timeout, self.lifetimes()).await;
        if acquired.as_ref().is_ok_and(|stream| stream.is_first) {
            record::record_connected(in_flight);
        }
        acquired
    }

    /// Sends a request on a stream and waits for the head of the response.
    async fn attempt_http2(
        &self,
        mut stream: Http2Stream,
        (request, body): (Request<OutgoingBody>, Option<&ReplayHandle>),
        in_flight: &InFlight,
        deadlines: &mut Deadlines,
        options: &SendOptions,
    ) -> Attempt {
        let mut sender = stream.sender();
        let (answers, _waiting) = (stream.connection.answers.count(), WaitingHead::new(&stream));
        let response = pin!(sender.try_send_request(http2_connections::rewrite_head(request, in_flight.endpoint())));
        let extend = |timeout, deadlines: &Deadlines| {
            let is_kept = body.is_none_or(ReplayHandle::is_kept);
            let timeout = if is_kept { timeout } else { TryTimeout::Begun };
            self.extend_try(timeout, in_flight.index(), deadlines, options)
        };
        match wait_for_head(response, &mut stream.timer, deadlines, &options.upload, extend).await {
            Ok(Ok(response)) => Attempt::Answered(stream, response),
            Ok(Err(mut error)) => match (error.take_message(), error.into_error()) {
                // The connection had no stream left after all, or was closed: nothing was sent.
                (Some(_), error) => Attempt::Failed(SendError::Refused(error), Some(RetryReason::Refused)),
                (None, error) => classify(error, &stream, options),
            },
            Err(kind) => {
                // Nothing has come for any of its requests: it may be cut off, and others would wait in vain.
                if kind == TimeoutKind::Head && stream.connection.answers.count() == answers {
                    self.http2_connections(in_flight.index()).retire(&stream.connection);
                }
                let is_granted = options.tries.is_granted.get();
                Attempt::Failed(SendError::TimedOut(kind), is_granted.then_some(RetryReason::Timeout))
            }
        }
    }
}

/// Classifies a stream that has failed before the head of its response.
fn classify(error: hyper::Error, stream: &Http2Stream, options: &SendOptions) -> Attempt {
    let is_repeatable = options.tries.is_repeatable && !error.is_user() && options.upload.error().is_none();
    let reason = match BrokenStream::of(&error) {
        BrokenStream::Refused => return Attempt::Failed(SendError::Refused(error), Some(RetryReason::Refused)),
        BrokenStream::Reset => Some(RetryReason::Broken),
        // One of its streams has an answer, and which one is not known here.
        BrokenStream::Connection if stream.connection.answers.has_interim() => None,
        BrokenStream::Connection if stream.is_first => Some(RetryReason::Broken),
        BrokenStream::Connection => Some(RetryReason::Stale),
        BrokenStream::Answered | BrokenStream::Invalid => None,
    };
    Attempt::Failed(SendError::BadResponse(error), reason.filter(|_| is_repeatable))
}
