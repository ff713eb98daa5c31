//! Exchange: what happens to a request, from its first attempt to the end of its response.
//!
//! A request for which there is a pooled connection is given to it at once ([`send`]), and its future is small: it
//! waits for the head of the response ([`attempt`]), which becomes an [`UpstreamResponse`]. All that is rare is boxed
//! behind it, and is one loop ([`Exchange::drive`]): it performs what [`decide_next`] says about each outcome of an
//! attempt.
//!
//! - A request of which nothing was sent goes to another endpoint: that is no retry.
//! - One that was sent, and has failed, is sent again where that does no harm ([`retry`]): it is made again from what
//!   its connection has kept ([`crate::connection::carrier`], [`replay_body`]).
//! - When no attempt gets through, the client sees the failure that says most: never "not executed" when an earlier
//!   attempt may have been.

pub(super) mod retry;
pub(super) mod replay_body;
pub(super) mod deadlines;
pub(super) mod tries;
mod decision;
mod attempt;
pub(super) mod response;
pub(super) mod response_body;
pub(super) mod tunnel;

use std::rc::Rc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{Either, ready};
use http::header::HOST;
use http::{Request, StatusCode};

use self::attempt::{AddressedRequest, Attempt, Ended, EndedAttempt, FailedAttempt, Outcome, conclude};
use self::deadlines::Deadlines;
use self::decision::{Action, Event, State, decide_next};
use self::replay_body::OutgoingBody;
use self::response::UpstreamResponse;
use self::tries::{SendTerms, Tries};
use super::connection::carrier::Carrier;
use super::connection::connect_budget::ConnectBudget;
use super::connection::pool_state::PoolState;
use super::connection::reservation::{Reservation, Unsent};
use super::endpoint::circuit::RequestPermit;
use super::endpoint::endpoints::InFlight;
use super::error::{SendError, TimeoutKind};
use super::settings::Protocol;
use domain::field_lines::FieldLines;
use platform::request_body::{RequestBody, UploadProgress};
use platform::telemetry::ObservedRequest;

/// One exchange, until the head of its response. Owned by its future; dropped at any await, it gives everything back.
struct Exchange<'p> {
    /// Shared by all exchanges of the worker with the upstream.
    pool: &'p PoolState,
    /// Progress of the request's body, shared with it: while it advances, the upstream is not late with its response.
    upload: UploadProgress,
    /// Time for connections, of all attempts together.
    connecting: ConnectBudget,
    /// True until an endpoint has refused a connection: those before it did not answer.
    all_timed_out: bool,
    /// Its own. Dropped in the midst of a try, they count the endpoint's failure or nothing, and give no retry back.
    tries: Tries<'p>,
    /// Trace of the request, shared with the gateway; none when traces are off.
    trace: Option<Rc<ObservedRequest>>,
    /// True if the request has a `Host` of its own, whatever its endpoint is.
    has_host: bool,
}

/// Sends a request and waits for the head of the response. One for which there is a pooled connection is on its way
/// when this returns. `added`: fields of its head beside those in its table. `now` is the time of the call.
pub(super) fn send(
    pool: &PoolState,
    request: Request<RequestBody>,
    added: FieldLines,
    terms: SendTerms,
    now: Instant,
) -> impl Future<Output = Result<UpstreamResponse, SendError>> {
    let endpoints = &pool.endpoints;
    let Ok(permit) = endpoints.circuit.acquire() else {
        endpoints.metrics.requests_refused.inc();
        return Either::Right(ready(Err(SendError::Full)).boxed_local());
    };
    pool.deposits.count_request(&endpoints.retry_budget, pool.retries.budget);
    let mut tries = Tries::new(pool, &request, &terms);
    let endpoint = tries.choose(request.headers()).expect("there is an endpoint");
    let deadlines = tries.limit(Deadlines::new(&pool.timeouts, terms.long_lived, now.into()));
    let exchange = Exchange {
        pool,
        upload: request.body().upload(),
        connecting: ConnectBudget::default(),
        all_timed_out: true,
        tries,
        trace: terms.trace,
        has_host: request.headers().get(HOST).is_some_and(|host| !host.is_empty()),
    };
    let mut request = request.map(OutgoingBody::new);
    let in_flight = exchange.enter(&mut request, endpoint, permit);
    match pool.take_pooled(endpoint, deadlines.sent) {
        Some(carrier) => {
            let attempt = exchange.begin(carrier, request, added, in_flight, deadlines);
            Either::Left(exchange.receive(attempt))
        }
        None => {
            added.write_to(request.headers_mut());
            let addressed = AddressedRequest { request: Box::new(request), in_flight, deadlines };
            Either::Right(exchange.drive(Outcome::Unsent(addressed, Unsent::NoPooled)).boxed_local())
        }
    }
}

impl<'p> Exchange<'p> {
    /// Waits for the response to a request that was given to a pooled connection.
    #[allow(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
    fn receive(mut self, mut attempt: Attempt) -> impl Future<Output = Ended> + use<'p> {
        async move {
            let received = attempt.wait(&mut self.tries, &self.upload).await;
            // Awaited behind the match, whose value would else be held meanwhile.
            let driven = match attempt.end(received, &self.tries, &self.upload) {
                Outcome::Ended(ended) => {
                    self.trace_result(ended.as_ref().map(|response| response.head.status));
                    return ended;
                }
                outcome => self.drive(outcome).boxed_local(),
            };
            driven.await
        }
    }

    /// Driver: performs what [`decide_next`] says about each outcome, until the exchange has ended.
    async fn drive(mut self, mut outcome: Outcome) -> Ended {
        let mut state = State::Any;
        let mut earlier = None;
        loop {
            let (next, action) = decide_next(state, self.event(&outcome));
            let addressed = match (action, outcome) {
                (Action::End, Outcome::Ended(ended)) => return conclude(earlier, ended),
                (Action::End, Outcome::Failed(failed)) => return conclude(earlier, failed.ended.finish()),
                (Action::Connect, Outcome::Unsent(unsent, _)) => Some(unsent),
                (Action::ConnectElsewhere, Outcome::Unsent(unsent, _)) => self.address_elsewhere(unsent),
                (Action::SendAgain, Outcome::Failed(failed)) => {
                    let (again, ended) = self.address_again(*failed);
                    earlier = Some(conclude(earlier, ended));
                    again
                }
                _ => unreachable!("an action fits the outcome that it was decided by"),
            };
            let Some(addressed) = addressed else { return conclude(earlier, Err(self.connect_error())) };
            outcome = self.attempt(addressed, next).await;
            state = next;
        }
    }

    /// Event of an outcome, which is noted in the trace. A failed attempt takes a retry from the budget, if it may
    /// have one.
    fn event(&mut self, outcome: &Outcome) -> Event {
        match outcome {
            Outcome::Ended(ended) => {
                self.trace_result(ended.as_ref().map(|response| response.head.status));
                Event::Ended
            }
            Outcome::Unsent(_, Unsent::NoPooled) => Event::NoPooled,
            Outcome::Unsent(_, Unsent::NoRoom) => Event::NoRoom,
            Outcome::Unsent(_, Unsent::NotConnected { timed_out }) => {
                self.all_timed_out &= timed_out;
                self.trace_result(Err(&SendError::Unavailable));
                Event::NotConnected
            }
            Outcome::Failed(failed) => {
                let FailedAttempt { reason, ended, .. } = &**failed;
                self.trace_result(ended.answered.as_ref().map(|(_, response)| response.status()));
                let is_granted = self.tries.take_retry(*reason, ended.in_flight.index(), &ended.deadlines);
                // The cause that broke one connection of HTTP/1, such as a device that restarts, may have broken all.
                let needs_new = self.pool.protocol == Protocol::Http1 && reason.needs_new_connection();
                Event::Failed { is_granted, needs_new }
            }
        }
    }

    /// Connects to the endpoint of a request, or to another one that has room, sends the request, and waits for the
    /// head of the response.
    async fn attempt(&mut self, addressed: AddressedRequest, state: State) -> Outcome {
        let endpoint = addressed.in_flight.index();
        let reservation = Reservation {
            pool: self.pool,
            tried: &self.tries.endpoints.set,
            budget: &self.connecting,
            may_share: state == State::Any,
        };
        let reserved = match state {
            State::New => reservation.reserve_new(endpoint).await,
            State::Any | State::Unshared => reservation.reserve(endpoint, addressed.request.headers()).await,
        };
        let (moved, reserved) = match reserved {
            Ok(reserved) => reserved,
            Err(refusal) => return Outcome::Ended(Err(SendError::NoConnection(refusal))),
        };
        let addressed = match moved {
            Some(endpoint) => self.readdress(addressed, endpoint),
            None => addressed,
        };
        let carrier = match reservation.open(&addressed.in_flight, reserved).await {
            Ok(carrier) => carrier,
            Err(cause) => return Outcome::Unsent(addressed, cause),
        };
        let AddressedRequest { request, in_flight, deadlines } = addressed;
        // The time of connecting is no part of the response's.
        let mut attempt = self.begin(carrier, *request, FieldLines::default(), in_flight, deadlines.sent_now());
        let received = attempt.wait(&mut self.tries, &self.upload).await;
        attempt.end(received, &self.tries, &self.upload)
    }

    /// Gives a request to a connection, and the fields that are added to its head.
    fn begin(
        &self,
        mut carrier: Carrier,
        request: Request<OutgoingBody>,
        added: FieldLines,
        in_flight: InFlight,
        deadlines: Deadlines,
    ) -> Attempt {
        let max_body = self.pool.retries.max_body;
        let head = carrier.send(request, added, in_flight.endpoint(), self.tries.is_repeatable, max_body);
        Attempt { carrier, head, in_flight, deadlines }
    }

    /// Counts a request at an endpoint, and sets its `Host` where it has none, and the `traceparent` of its try.
    fn enter(&self, request: &mut Request<OutgoingBody>, endpoint: usize, permit: Option<RequestPermit>) -> InFlight {
        let mut in_flight = self.pool.endpoints.enter(endpoint, permit);
        in_flight.observe(request.method());
        let host = &in_flight.endpoint().host;
        if !self.has_host {
            request.headers_mut().insert(HOST, host.clone());
        }
        if let Some(trace) = &self.trace {
            trace.begin_try(request.headers_mut(), host, self.pool.protocol.version());
        }
        in_flight
    }

    /// Addresses a request of which nothing was sent to another endpoint. Its time for the response begins now.
    fn readdress(&self, unsent: AddressedRequest, endpoint: usize) -> AddressedRequest {
        let AddressedRequest { mut request, mut in_flight, deadlines } = unsent;
        let permit = in_flight.take_permit();
        let in_flight = self.enter(&mut request, endpoint, permit);
        AddressedRequest { request, in_flight, deadlines: deadlines.sent_now() }
    }

    /// Addresses a request whose endpoint could not be connected to; none when no other one is left.
    fn address_elsewhere(&mut self, unsent: AddressedRequest) -> Option<AddressedRequest> {
        self.tries.endpoints.set.insert(unsent.in_flight.index());
        let headers = unsent.request.headers();
        let endpoint = match self.connecting.next_attempt(self.pool.timeouts.connect) {
            Some(_) => self.tries.choose(headers)?,
            None => self.tries.choose_pooled(headers)?,
        };
        Some(self.readdress(unsent, endpoint))
    }

    /// Makes a request again that has failed, and addresses it; none when no endpoint is left. The result is what the
    /// client gets if nothing else comes.
    fn address_again(&mut self, failed: FailedAttempt) -> (Option<AddressedRequest>, Ended) {
        let FailedAttempt { reason, kept: (head, body), mut ended } = failed;
        let Some(body) = body.map_or(Some(OutgoingBody::Empty), |body| body.rewind()) else {
            unreachable!("the body was kept whole, in this turn of the event loop")
        };
        let index = ended.in_flight.index();
        self.tries.end_failed(reason, index, &ended.deadlines);
        let endpoint = self.tries.choose(head.headers());
        let permit = ended.in_flight.take_permit();
        let deadlines = self.tries.next_deadlines(ended.deadlines);
        let ended = match ended.answered {
            // A connection that is closed while it is idle is no failure of the endpoint, which proves itself now.
            Err(error) if endpoint == Some(index) => Err(error),
            answered => EndedAttempt { answered, ..ended }.finish(),
        };
        let mut request = Box::new(head.map(|()| body));
        let addressed = endpoint.map(|endpoint| {
            let in_flight = self.enter(&mut request, endpoint, permit);
            AddressedRequest { request, in_flight, deadlines }
        });
        (addressed, ended)
    }

    /// Error of a request that no endpoint is left for. One that refuses connections is known to be down; one that
    /// does not answer may only be slow.
    fn connect_error(&self) -> SendError {
        if self.all_timed_out { SendError::TimedOut(TimeoutKind::Connection) } else { SendError::Unavailable }
    }

    /// Notes the result of a try in the trace of the request.
    fn trace_result(&self, result: Result<StatusCode, &SendError>) {
        if let Some(trace) = &self.trace {
            trace.end_try(result.map_err(SendError::trace_error));
        }
    }
}
