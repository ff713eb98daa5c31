//! One attempt of an exchange: a request on a connection, until the head of its response has come or the attempt has
//! failed.

use std::future::poll_fn;
use std::task::{Poll, ready};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::decision::most_informative;
use super::replay_body::OutgoingBody;
use super::response::UpstreamResponse;
use super::response_body::ConnectionGuard;
use super::retry::RetryReason;
use super::tries::Tries;
use crate::connection::carrier::{Carrier, KeptRequest, Received, ReceivedHead};
use crate::connection::head_scan::MAX_FIELDS;
use crate::connection::reservation::Unsent;
use crate::endpoint::endpoints::InFlight;
use crate::endpoint::failure::Failure;
use crate::endpoint::record;
use crate::error::{SendError, TimeoutKind};
use platform::request_body::UploadProgress;

/// Request that is addressed to an endpoint, and of which nothing was sent.
pub(super) struct AddressedRequest {
    pub(super) request: Box<Request<OutgoingBody>>,
    /// Counts the request at its endpoint until it is dropped.
    pub(super) in_flight: InFlight,
    pub(super) deadlines: Deadlines,
}

/// Request that was given to a connection. Dropped, it closes the connection, or cancels the stream.
pub(super) struct Attempt {
    pub(super) carrier: Carrier,
    pub(super) head: ReceivedHead,
    /// Counts the request at its endpoint until it is dropped.
    pub(super) in_flight: InFlight,
    pub(super) deadlines: Deadlines,
}

/// Outcome of an attempt.
pub(super) enum Outcome {
    /// The exchange has a response, or has failed for good.
    Ended(Ended),
    /// Nothing was sent.
    Unsent(AddressedRequest, Unsent),
    /// The attempt has failed, and the request may be sent again.
    Failed(Box<FailedAttempt>),
}

/// Result of an exchange.
pub(super) type Ended = Result<UpstreamResponse, SendError>;

/// Attempt that has failed, with what the request is made again from.
pub(super) struct FailedAttempt {
    pub(super) reason: RetryReason,
    pub(super) kept: KeptRequest,
    /// Result for the client when the request is not sent again.
    pub(super) ended: EndedAttempt,
}

/// Attempt that has ended, before it is counted.
pub(super) struct EndedAttempt {
    pub(super) answered: Result<(Carrier, Response<Incoming>), SendError>,
    pub(super) in_flight: InFlight,
    pub(super) deadlines: Deadlines,
}

impl Attempt {
    /// Waits for the head of the response, and notes the end of the request. While the request's body advances, the
    /// upstream is not late with the response. When time is up, the attempt is extended once, if it has any left.
    pub(super) async fn wait(
        &mut self,
        tries: &mut Tries<'_>,
        upload: &UploadProgress,
    ) -> Result<Received, TimeoutKind> {
        let Self { carrier, head, in_flight, deadlines } = self;
        debug_assert!(deadlines.request_end.is_none(), "an attempt is waited for once");
        let mut due = deadlines.sent + deadlines.response;
        let mut uploaded = upload.received_bytes();
        let mut is_extended = false;
        let received = poll_fn(|cx| {
            loop {
                if let Poll::Ready(received) = head.as_mut().poll(cx) {
                    return Poll::Ready(Ok(received));
                }
                ready!(carrier.timer().poll(cx, deadlines.body.earlier(due)));
                if deadlines.body.has_ended(Instant::now()) {
                    return Poll::Ready(Err(TimeoutKind::Exchange));
                }
                if upload.received_bytes() != uploaded {
                    // The client still sends: the upstream may wait for the rest, and gets the whole time again.
                    uploaded = upload.received_bytes();
                    due = Instant::now() + deadlines.response;
                    continue;
                }
                let kind = if upload.is_finished() { TimeoutKind::Head } else { TimeoutKind::Upload };
                if std::mem::replace(&mut is_extended, true) {
                    return Poll::Ready(Err(kind));
                }
                let may_give_up = kind == TimeoutKind::Head && carrier.can_give_up();
                match tries.extend(may_give_up, in_flight.index(), deadlines) {
                    Some(longer) => due += longer,
                    None => return Poll::Ready(Err(kind)),
                }
            }
        })
        .await;
        deadlines.request_end = upload.request_end(deadlines.sent);
        received
    }

    /// Ends the attempt with the result of the wait.
    pub(super) fn end(
        self,
        received: Result<Received, TimeoutKind>,
        tries: &Tries<'_>,
        upload: &UploadProgress,
    ) -> Outcome {
        let Self { mut carrier, in_flight, mut deadlines, .. } = self;
        carrier.end_wait();
        let (answered, reason) = match received {
            Ok(Ok(response)) => {
                let reason = tries.reason_of(&response);
                (Ok(response), reason)
            }
            Ok(Err(mut error)) => {
                if let Some(request) = carrier.take_unsent(&mut error) {
                    let cause = Unsent::of_closed(carrier.is_new());
                    return Outcome::Unsent(AddressedRequest { request, in_flight, deadlines }, cause);
                }
                let (error, reason) = carrier.classify(error);
                let reason = reason.filter(|_| may_send_again(&error, tries, upload));
                (Err(error), reason)
            }
            Err(kind) => {
                if kind == TimeoutKind::Head {
                    carrier.retire_if_silent(&tries.pool.connections[in_flight.index()].http2);
                }
                (Err(SendError::TimedOut(kind)), tries.is_granted.then_some(RetryReason::Timeout))
            }
        };
        if answered.is_err() && carrier.has_failed_write() {
            // The body had come whole, and could not be sent.
            deadlines.request_end = None;
        }
        let kept = reason.and_then(|reason| Some((reason, carrier.take_kept()?)));
        if kept.is_none() {
            carrier.stop_keeping();
        }
        // Behind an error the connection is closed, or the stream given back, at once.
        EndedAttempt { answered: answered.map(|response| (carrier, response)), in_flight, deadlines }.into_outcome(kept)
    }
}

/// Returns whether a request may be sent again after an error: the upstream has not begun with it, or it may be
/// executed twice and the error is not the client's.
fn may_send_again(error: &SendError, tries: &Tries<'_>, upload: &UploadProgress) -> bool {
    match error {
        SendError::BadResponse(error) => tries.is_repeatable && !error.is_user() && upload.error().is_none(),
        _ => true,
    }
}

impl EndedAttempt {
    /// Ends the exchange, unless the request was kept, and may be sent again for this reason.
    fn into_outcome(self, kept: Option<(RetryReason, KeptRequest)>) -> Outcome {
        match kept {
            Some((reason, kept)) => Outcome::Failed(Box::new(FailedAttempt { reason, kept, ended: self })),
            None => Outcome::Ended(self.finish()),
        }
    }

    /// Counts a failed attempt, or makes a response of the answer. The response counts itself when its head is
    /// accepted.
    pub(super) fn finish(self) -> Ended {
        let Self { answered, in_flight, deadlines } = self;
        let error = match answered {
            // On HTTP/1 the library has this limit itself, on HTTP/2 none.
            Ok((_, ref response)) if response.headers().len() > MAX_FIELDS => SendError::TooManyFields,
            Ok((carrier, response)) => return Ok(respond(carrier, response, in_flight, deadlines)),
            Err(error) => error,
        };
        record::record_error(&in_flight, &error, deadlines.request_end);
        Err(error)
    }
}

/// Records the head of a response, and makes a response of it that holds its connection.
fn respond(
    carrier: Carrier,
    response: Response<Incoming>,
    in_flight: InFlight,
    deadlines: Deadlines,
) -> UpstreamResponse {
    let failure = Failure::of_head(&response);
    if let Some(observed) = in_flight.observed() {
        observed.note_status(response.status());
    }
    record::record_head(&in_flight, failure, deadlines.request_end);
    record::record_retry_after(&in_flight, &response);
    let is_early = deadlines.request_end.is_none();
    let guard = ConnectionGuard::new(carrier, in_flight, response.version(), failure.is_some(), is_early);
    UpstreamResponse::new(response, guard, deadlines.body)
}

/// Chooses the result that the client sees, of an earlier attempt and a later one.
pub(super) fn conclude(earlier: Option<Ended>, later: Ended) -> Ended {
    let (shown, dropped) = most_informative(earlier, later);
    if let Some(response) = dropped {
        response.discard();
    }
    shown
}
