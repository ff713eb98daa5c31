//! Retries: a request goes to further endpoints while nothing was sent, and is sent again when a try has failed.
//!
//! A request is in one of three states after a try: it has ended; it was not sent, and goes to the next endpoint, which is
//! no retry; or it has failed, and is sent again when [`super::retry`] allows it. When no retry gets through, the client sees
//! the failure that says most: never "not executed" when an earlier try may have been.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::attempt::{Deadlines, TryTimeout};
use super::finish::finish;
use super::replay_body::{OutgoingBody, ReplayHandle};
use super::response::UpstreamResponse;
use super::response_body::Carrier;
use super::retry::{RetryReason, Tries};
use super::send_options::SendOptions;
use crate::endpoint::endpoints::InFlight;
use crate::error::{SendError, TimeoutKind};
use crate::pool::{AddressedRequest, Pool};
use crate::settings::Protocol;

/// Result of an exchange, or of a try that is its last one.
pub(crate) type Ended = Result<UpstreamResponse, SendError>;

/// State of a request after a try.
pub(crate) enum Tried {
    /// The exchange has a response, or has failed for good.
    Ended(Ended),
    /// Nothing was sent.
    Unsent(Unsent),
    /// The try has failed, and the request may be sent again.
    Failed(Box<FailedTry>),
}

/// Request that could not be sent to its endpoint: nothing of it was sent, and it may be sent to another one.
pub(crate) struct Unsent {
    pub(crate) addressed: AddressedRequest,
    /// True if connecting timed out; otherwise it failed at once.
    pub(crate) timed_out: bool,
    /// True if there was no room for a connection: the endpoint was not tried.
    pub(crate) is_full: bool,
}

/// Try that has failed.
pub(crate) struct FailedTry {
    pub(crate) again: SentAgain,
    /// Response or error that the client gets when the request is not sent again.
    pub(crate) answered: Result<(Carrier, Response<Incoming>), SendError>,
    pub(crate) in_flight: InFlight,
    pub(crate) deadlines: Deadlines,
}

/// Parts from which a request is made again.
pub(crate) struct SentAgain {
    pub(crate) reason: RetryReason,
    pub(crate) head: Request<()>,
    /// None of a request without a body.
    pub(crate) body: Option<ReplayHandle>,
}

/// Result of the decision about a failed request.
enum Retry {
    /// It is sent again: the request for another endpoint, if there is one, and the failure.
    Granted(Option<AddressedRequest>, Ended),
    /// It is not sent again: the failure.
    Refused(Ended),
}

impl Unsent {
    /// Request whose time for connecting is over: the endpoint was not tried.
    pub(crate) fn without_time(addressed: AddressedRequest) -> Self {
        Self { addressed, timed_out: true, is_full: false }
    }
}

impl Pool {
    /// Sends a request to its endpoint, and then to others.
    pub(crate) async fn send_anew(&self, addressed: AddressedRequest, options: SendOptions) -> Ended {
        let tried = self.try_endpoint(addressed, true, &options).await;
        self.retry_until_ended(tried, options).await
    }

    /// Sends a request again whose first try has failed.
    pub(crate) async fn send_again(&self, failed: Box<FailedTry>, options: SendOptions) -> Ended {
        self.retry_until_ended(Tried::Failed(failed), options).await
    }

    /// Retry loop: tries endpoints until a try ends the request, a retry is refused, or no endpoint is left.
    async fn retry_until_ended(&self, mut tried: Tried, mut options: SendOptions) -> Ended {
        let (mut failure, mut timed_out, mut may_share, mut needs_new) = (None, true, true, false);
        loop {
            let next = match tried {
                Tried::Ended(ended) => {
                    options.trace_result(status_of(&ended));
                    return worse(failure, ended);
                }
                // The connection that was there for it is gone, or taken: now it gets one of its own.
                Tried::Unsent(Unsent { addressed, is_full: true, .. }) => {
                    may_share = false;
                    Some(addressed)
                }
                Tried::Unsent(unsent) => {
                    timed_out = timed_out && unsent.timed_out;
                    self.address_unsent(unsent.addressed, &mut options)
                }
                Tried::Failed(failed) => {
                    needs_new = failed.again.reason.needs_new_connection();
                    match self.retry(*failed, &mut options) {
                        Retry::Granted(next, ended) => {
                            failure = Some(worse(failure, ended));
                            next
                        }
                        Retry::Refused(ended) => return worse(failure, ended),
                    }
                }
            };
            let Some(next) = next else { break };
            tried = match needs_new && self.protocol() == Protocol::Http1 {
                true => self.try_new(next, &options).await,
                false => self.try_endpoint(next, may_share, &options).await,
            };
        }
        // An endpoint that refuses connections is known to be down; one that does not answer may only be slow.
        let error = if timed_out { SendError::TimedOut(TimeoutKind::Connection) } else { SendError::Unavailable };
        worse(failure, Err(error))
    }

    /// Tries the endpoint of a request, or another one that has room for a connection. `may_share`: it may use a connection
    /// that is being opened for another request.
    async fn try_endpoint(&self, addressed: AddressedRequest, may_share: bool, options: &SendOptions) -> Tried {
        let reserved = self.reserve(addressed, &options.tries.tried, options, may_share).await;
        match (reserved, self.protocol()) {
            (Err(refused), _) => Tried::Ended(Err(refused)),
            (Ok((addressed, reserved)), Protocol::Http1) => self.try_http1(addressed, reserved, options).await,
            (Ok((addressed, reserved)), Protocol::Http2) => self.try_http2(addressed, reserved, options).await,
        }
    }

    /// Tries an endpoint over a new connection of HTTP/1.1.
    async fn try_new(&self, addressed: AddressedRequest, options: &SendOptions) -> Tried {
        match self.wait_for_permit(addressed.in_flight.index(), options).await {
            Ok(permit) => self.try_new_http1(addressed, Some(permit), options).await,
            Err(refusal) => Tried::Ended(Err(SendError::NoConnection(refusal))),
        }
    }

    /// Addresses a request of which nothing was sent to another endpoint.
    fn address_unsent(&self, unsent: AddressedRequest, options: &mut SendOptions) -> Option<AddressedRequest> {
        options.tries.tried.insert(unsent.in_flight.index());
        options.trace_result(Err(&SendError::Unavailable));
        let endpoint = match self.connect_time(options) {
            Some(_) => self.next_endpoint(unsent.request.headers(), &mut options.tries)?,
            None => self.pooled_endpoint(unsent.request.headers(), &options.tries)?,
        };
        Some(self.readdress(unsent, endpoint, options))
    }

    /// Chooses an endpoint to which a connection is open, for a request whose time for connecting is over.
    fn pooled_endpoint(&self, headers: &HeaderMap, tries: &Tries) -> Option<usize> {
        let is_usable = |index: usize| !tries.tried.contains(index) && self.has_pooled(index);
        // A request that was sent already has a failure to return.
        let is_first = tries.failed == 0;
        is_first.then(|| self.endpoints().choose_in_traffic(self.balancer(), headers, is_usable)).flatten()
    }

    /// Addresses a failed request for its next try, if it is to have one.
    fn retry(&self, failed: FailedTry, options: &mut SendOptions) -> Retry {
        let FailedTry { again, answered, mut in_flight, deadlines } = failed;
        let SentAgain { reason, head, body } = again;
        let index = in_flight.index();
        options.trace_result(answered.as_ref().map(|(_, response)| response.status()));
        let is_granted = options.tries.is_granted.take() || self.grants_retry(reason, index, &deadlines, options);
        let took = time_of_try(&deadlines);
        let Some(body) = is_granted.then(|| rewind(body.as_ref())).flatten() else {
            return Retry::Refused(finish(answered, in_flight, deadlines));
        };
        reason.count(&self.endpoints().metrics.retries);
        options.tries.end_try(index, took, reason.allows_same_endpoint());
        let endpoint = self.next_endpoint(head.headers(), &mut options.tries);
        let permit = in_flight.take_permit();
        let ended = match answered {
            // A connection that is closed while it is idle is no failure of the endpoint, which proves itself now.
            Err(error) if endpoint == Some(index) => Err(error),
            answered => finish(answered, in_flight, deadlines),
        };
        let request = Box::new(head.map(|()| body));
        let deadlines = self.deadlines_of_retry(deadlines, options);
        Retry::Granted(endpoint.map(|endpoint| self.address(request, endpoint, permit, deadlines, options)), ended)
    }

    /// Deadlines of the next try of an exchange: it ends as it would have, and has the rest of the time for the head.
    fn deadlines_of_retry(&self, deadlines: Deadlines, options: &SendOptions) -> Deadlines {
        self.limit_try(deadlines.sent_now().with_response(self.rest_of_response(options)), options)
    }

    /// Time for the head of the response that is left at the beginning of the current try.
    fn rest_of_response(&self, options: &SendOptions) -> Duration {
        let whole = options.long_lived.unwrap_or(self.timeouts().response);
        whole.saturating_sub(options.tries.spent)
    }

    /// Limits a try to `per_try_timeout` when another one could follow.
    pub(crate) fn limit_try(&self, deadlines: Deadlines, options: &SendOptions) -> Deadlines {
        let Some(limit) = self.retries().per_try_timeout else { return deadlines };
        let is_last = !options.tries.is_repeatable || !options.tries.is_one_left(self.retries().attempts);
        if is_last || options.long_lived.is_some() || !self.endpoints().has_choice() {
            return deadlines;
        }
        deadlines.with_response(deadlines.response.min(limit))
    }

    /// Time for which a try goes on that has reached its limit; none when its time is over, or it is given up for a retry.
    pub(crate) fn extend_try(
        &self,
        timeout: TryTimeout,
        index: usize,
        deadlines: &Deadlines,
        options: &SendOptions,
    ) -> Option<Duration> {
        let rest = self.rest_of_response(options).saturating_sub(deadlines.response);
        if rest.is_zero() {
            return None;
        }
        let gives_up =
            timeout == TryTimeout::Silent && self.grants_retry(RetryReason::Timeout, index, deadlines, options);
        options.tries.is_granted.set(gives_up);
        (!gives_up).then_some(rest)
    }

    /// Reason to send a request again that has this response.
    pub(crate) fn retry_reason_of(&self, response: &Response<Incoming>, options: &SendOptions) -> Option<RetryReason> {
        let is_retried = options.tries.is_repeatable && self.retries().statuses.contains(response.status());
        is_retried.then_some(RetryReason::Status)
    }

    /// Returns whether a request may be sent again after the current try at an endpoint. If so, it has taken a retry from the
    /// budget.
    fn grants_retry(&self, reason: RetryReason, index: usize, deadlines: &Deadlines, options: &SendOptions) -> bool {
        let (settings, tries) = (self.retries(), &options.tries);
        let is_possible =
            settings.is_on() && tries.is_one_left(settings.attempts) && !deadlines.has_ended(Instant::now());
        if !is_possible || !self.endpoints().has_target(index, &tries.tried, reason.allows_same_endpoint()) {
            return false;
        }
        let is_granted = self.withdraw_retry();
        if !is_granted {
            self.endpoints().metrics.retries_refused.inc();
        }
        is_granted
    }

    /// Chooses the endpoint of the next try.
    fn next_endpoint(&self, headers: &HeaderMap, tries: &mut Tries) -> Option<usize> {
        let endpoints = self.endpoints();
        match tries.failed {
            0 => endpoints.choose(self.balancer(), headers, tries),
            _ => endpoints.choose_for_retry(self.balancer(), headers, &tries.tried).or_else(|| tries.fallback.take()),
        }
    }
}

/// Status of the response of a try, or its error.
pub(crate) fn status_of(ended: &Ended) -> Result<StatusCode, &SendError> {
    ended.as_ref().map(|response| response.head.status)
}

/// Makes the body of the next try; none when it is not kept.
fn rewind(body: Option<&ReplayHandle>) -> Option<OutgoingBody> {
    body.map_or(Some(OutgoingBody::Empty), ReplayHandle::rewind)
}

/// Part of the time for the head that a try has taken: it begins when the request has gone whole.
fn time_of_try(deadlines: &Deadlines) -> Duration {
    deadlines.request_end.map_or(Duration::ZERO, |end| end.elapsed())
}

/// The one of two results of tries that the client sees: the last one, unless it is an error that says less.
fn worse(before: Option<Ended>, last: Ended) -> Ended {
    match (before, last) {
        // That nothing was executed would not be true of an earlier try.
        (Some(Ok(response)), Err(error)) if error.is_unprocessed() => Ok(response),
        (Some(Err(before)), Err(last)) if last.is_unprocessed() && !before.is_unprocessed() => Err(before),
        (Some(Ok(response)), last) => {
            response.discard();
            last
        }
        (_, last) => last,
    }
}
