//! Tries of one request: which endpoint it goes to next, how long it waits there, and whether it may be sent again.

use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::retry::RetryReason;
use crate::connection::pool_state::PoolState;
use crate::endpoint::endpoint_set::TriedEndpoints;
use platform::request_body::RequestBody;
use platform::telemetry::ObservedRequest;

/// Terms of one exchange.
#[derive(Debug, Default)]
pub struct SendTerms {
    /// For an exchange without a time limit as a whole: the time in which something must come.
    pub long_lived: Option<Duration>,
    /// True if the route declares that its requests may be executed twice.
    pub is_idempotent: bool,
    /// Trace of the request, which gets a span for each try; none when traces are off.
    pub trace: Option<Rc<ObservedRequest>>,
}

/// Tries of one request. Owned by its exchange.
pub(super) struct Tries<'p> {
    pub(super) pool: &'p PoolState,
    /// True if the request may be executed twice, and its body, if any, is kept.
    pub(super) is_repeatable: bool,
    /// Time in which something must come, of an exchange without a time limit as a whole.
    long_lived: Option<Duration>,
    /// Tries before the current one in which something was sent.
    failed: u8,
    /// Time of `timeouts.response` that these took.
    spent: Duration,
    /// Endpoints that were tried.
    pub(super) endpoints: TriedEndpoints,
    /// Endpoint that may be tried again when there is no other.
    fallback: Option<usize>,
    /// True while the current try was given up for a retry that the budget has granted.
    pub(super) is_granted: bool,
}

impl<'p> Tries<'p> {
    /// Tries of a request that was not sent yet.
    pub(super) fn new(pool: &'p PoolState, request: &Request<RequestBody>, terms: &SendTerms) -> Self {
        let is_kept = pool.retries.is_on() && request.body().size_hint().lower() <= pool.retries.max_body as u64;
        Self {
            pool,
            is_repeatable: is_kept && (terms.is_idempotent || request.method().is_idempotent()),
            long_lived: terms.long_lived,
            failed: 0,
            spent: Duration::ZERO,
            endpoints: TriedEndpoints::default(),
            fallback: None,
            is_granted: false,
        }
    }

    /// Chooses the endpoint of the next try.
    pub(super) fn choose(&mut self, headers: &HeaderMap) -> Option<usize> {
        let PoolState { endpoints, balancer, .. } = self.pool;
        if self.failed == 0 {
            return endpoints.choose(balancer, headers, &mut self.endpoints);
        }
        endpoints.choose_for_retry(balancer, headers, &self.endpoints.set).or_else(|| self.fallback.take())
    }

    /// Chooses an endpoint to which a connection is open, for a request whose time for connecting is over.
    pub(super) fn choose_pooled(&self, headers: &HeaderMap) -> Option<usize> {
        // A request that was sent already has a failure to return.
        if self.failed > 0 {
            return None;
        }
        let is_usable = |index: usize| !self.endpoints.set.contains(index) && self.pool.has_pooled(index);
        self.pool.endpoints.choose_in_traffic(&self.pool.balancer, headers, is_usable)
    }

    /// Limits a try to `per_try_timeout` when another one could follow.
    pub(super) fn limit(&self, mut deadlines: Deadlines) -> Deadlines {
        let may_follow = self.is_repeatable && self.is_one_left() && self.pool.endpoints.has_choice();
        if let (Some(limit), true, None) = (self.pool.retries.per_try_timeout, may_follow, self.long_lived) {
            deadlines.response = deadlines.response.min(limit);
        }
        deadlines
    }

    /// Extends a try that has reached its limit, by the time that is returned; none when its time is over, or it is
    /// given up for a retry. `may_give_up`: nothing has come, and the request can be made again.
    pub(super) fn extend(&mut self, may_give_up: bool, endpoint: usize, deadlines: &Deadlines) -> Option<Duration> {
        let rest = self.rest_of_response().saturating_sub(deadlines.response);
        if rest.is_zero() {
            return None;
        }
        self.is_granted = may_give_up && self.withdraw(RetryReason::Timeout, endpoint, deadlines);
        (!self.is_granted).then_some(rest)
    }

    /// Reason to send a request again that has this response.
    pub(super) fn reason_of<B>(&self, response: &Response<B>) -> Option<RetryReason> {
        let is_retried = self.is_repeatable && self.pool.retries.statuses.contains(response.status());
        is_retried.then_some(RetryReason::Status)
    }

    /// Returns whether a request is sent again after the current try at an endpoint. If so, it has taken a retry from
    /// the budget.
    pub(super) fn take_retry(&mut self, reason: RetryReason, endpoint: usize, deadlines: &Deadlines) -> bool {
        std::mem::take(&mut self.is_granted) || self.withdraw(reason, endpoint, deadlines)
    }

    /// Takes a retry from the budget, if the request may be sent once more.
    fn withdraw(&self, reason: RetryReason, endpoint: usize, deadlines: &Deadlines) -> bool {
        let PoolState { endpoints, retries, deposits, .. } = self.pool;
        let may_follow = retries.is_on() && self.is_one_left() && !deadlines.body.has_ended(Instant::now());
        if !may_follow || !endpoints.has_target(endpoint, &self.endpoints.set, reason.allows_same_endpoint()) {
            return false;
        }
        let is_granted = deposits.withdraw(&endpoints.retry_budget, retries.budget);
        if !is_granted {
            endpoints.metrics.retries_refused.inc();
        }
        is_granted
    }

    /// Counts the current try at an endpoint, behind which the request is sent again.
    pub(super) fn end_failed(&mut self, reason: RetryReason, endpoint: usize, deadlines: &Deadlines) {
        debug_assert!(self.is_one_left(), "a retry is granted within the number of attempts");
        reason.count(&self.pool.endpoints.metrics.retries);
        self.failed += 1;
        self.spent += deadlines.spent();
        self.endpoints.set.insert(endpoint);
        self.fallback = reason.allows_same_endpoint().then_some(endpoint);
    }

    /// Deadlines of the next try of an exchange: it ends as it would have, and has the rest of the time for the head.
    pub(super) fn next_deadlines(&self, deadlines: Deadlines) -> Deadlines {
        self.limit(Deadlines { response: self.rest_of_response(), ..deadlines.sent_now() })
    }

    /// Time for the head of the response that is left at the beginning of the current try.
    fn rest_of_response(&self) -> Duration {
        self.long_lived.unwrap_or(self.pool.timeouts.response).saturating_sub(self.spent)
    }

    /// Returns whether the request may be sent once more after the current try.
    fn is_one_left(&self) -> bool {
        self.failed + 1 < self.pool.retries.attempts
    }
}
