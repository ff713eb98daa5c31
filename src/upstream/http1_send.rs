//! Sending requests over HTTP/1.1: over a pooled connection, or over a new one.
//!
//! A request for which there is a pooled connection is given to it at once. Its future holds no more than what a response
//! is waited for with; all else is boxed behind it.

use futures_util::FutureExt as _;
use http::Request;

use super::attempt::{Attempt, Deadlines, Received, SentRequest};
use super::endpoint::InFlight;
use super::error::{SendError, TimeoutKind};
use super::http1_connection::{Connection, connect};
use super::limits::ConnectionPermit;
use super::pool::{AddressedRequest, Pool, SendOptions, Unsent, finish};
use super::record;
use super::replay_body::{self, OutgoingBody};
use super::reservation::Reserved;
use super::response::UpstreamResponse;
use super::response_body::Carrier;
use super::settings::Protocol;

/// Request that was given to a pooled connection.
pub(super) struct PooledRequest {
    sent: SentRequest,
    in_flight: InFlight,
    deadlines: Deadlines,
}

/// Result of sending a request over a pooled connection.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum PooledResult {
    /// The exchange has a response, or has failed.
    Ended(Result<UpstreamResponse, SendError>),
    /// Nothing was sent.
    Unsent(AddressedRequest),
    /// The connection died before a byte of the response came, and the request may be sent again.
    Stale(StaleRequest),
}

/// Request whose connection died before a byte of the response came: the server may have closed it while the request was
/// on its way.
struct StaleRequest {
    /// The request, made again.
    again: AddressedRequest,
    /// Failure of the connection.
    error: SendError,
}

impl PooledRequest {
    fn send(connection: Box<Connection>, addressed: AddressedRequest) -> Self {
        let AddressedRequest { request, in_flight, deadlines } = addressed;
        // The library takes the request: a retry makes it again from the head that was written.
        let keeps_head = replay_body::is_repeatable(&request);
        Self { sent: SentRequest::send(connection, request, keeps_head), in_flight, deadlines }
    }
}

impl Pool {
    /// Gives a request to a pooled connection. The request comes back when there is none.
    pub(super) fn send_pooled(&self, addressed: AddressedRequest) -> Result<PooledRequest, AddressedRequest> {
        if self.protocol() != Protocol::Http1 {
            return Err(addressed);
        }
        let idle = self.idle_connections(addressed.in_flight.index());
        let Some(connection) = idle.borrow_mut().pop(addressed.deadlines.sent) else { return Err(addressed) };
        Ok(PooledRequest::send(connection, addressed))
    }

    /// Waits for the response to a request that was given to a pooled connection.
    #[allow(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
    pub(super) fn receive_pooled(
        &self,
        mut pooled: PooledRequest,
        options: SendOptions,
    ) -> impl Future<Output = Result<UpstreamResponse, SendError>> {
        async move {
            let received = pooled.sent.wait(&mut pooled.deadlines, &options.upload).await;
            // Awaited behind the match, whose value would else be held meanwhile.
            let again = match self.end_pooled(pooled, received) {
                PooledResult::Ended(ended) => return ended,
                PooledResult::Unsent(unsent) => self.send_anew(unsent, options).boxed_local(),
                PooledResult::Stale(stale) => self.send_again(stale, &options).boxed_local(),
            };
            again.await
        }
    }

    /// Sends to one endpoint. The request comes back when nothing of it was sent.
    pub(super) async fn send_http1(
        &self,
        addressed: AddressedRequest,
        reserved: Reserved,
        options: &SendOptions,
    ) -> Result<Result<UpstreamResponse, SendError>, Unsent> {
        let (mut sent, permit) = match reserved {
            Reserved::Connection(connection) => (Ok(PooledRequest::send(connection, addressed)), None),
            Reserved::Permit(permit) => (Err(addressed), Some(permit)),
            Reserved::Pooled | Reserved::Stream(_) => (self.send_pooled(addressed), None),
        };
        loop {
            let mut pooled = match sent {
                Ok(pooled) => pooled,
                Err(addressed) => return self.send_on_new(addressed, permit, options).await,
            };
            let received = pooled.sent.wait(&mut pooled.deadlines, &options.upload).await;
            match self.end_pooled(pooled, received) {
                PooledResult::Ended(ended) => return Ok(ended),
                PooledResult::Stale(stale) => return Ok(self.send_again(stale, options).await),
                PooledResult::Unsent(unsent) => sent = self.send_pooled(unsent),
            }
        }
    }

    fn end_pooled(&self, pooled: PooledRequest, received: Result<Received, TimeoutKind>) -> PooledResult {
        let PooledRequest { sent, in_flight, deadlines } = pooled;
        match sent.end(received) {
            Attempt::Unsent(request) => PooledResult::Unsent(AddressedRequest { request, in_flight, deadlines }),
            Attempt::Failed(connection, error) => match request_again(&connection, &error) {
                Some(request) => {
                    let again = AddressedRequest { request, in_flight, deadlines };
                    PooledResult::Stale(StaleRequest { again, error })
                }
                None => PooledResult::Ended(finish(Err(error), in_flight, deadlines)),
            },
            Attempt::Answered(connection, response) => {
                PooledResult::Ended(finish(Ok((self.carrier(connection, &in_flight), response)), in_flight, deadlines))
            }
        }
    }

    /// Sends a request again, over a new connection.
    async fn send_again(&self, stale: StaleRequest, options: &SendOptions) -> Result<UpstreamResponse, SendError> {
        let StaleRequest { again: AddressedRequest { request, in_flight, mut deadlines }, error } = stale;
        in_flight.endpoint().metrics.retries.inc();
        let Ok(permit) = self.wait_for_permit(in_flight.index(), options).await else {
            return finish(Err(error), in_flight, deadlines);
        };
        let answered = match self.attempt_on_new(request, permit, &in_flight, &mut deadlines, options).await {
            Ok(Attempt::Answered(connection, response)) => Ok((self.carrier(connection, &in_flight), response)),
            Ok(Attempt::Failed(_, error)) => Err(error),
            // The first failure says more than that there is no connection now.
            Ok(Attempt::Unsent(_)) | Err(_) => Err(error),
        };
        finish(answered, in_flight, deadlines)
    }

    /// Sends to one endpoint over a new connection.
    async fn send_on_new(
        &self,
        addressed: AddressedRequest,
        permit: Option<ConnectionPermit>,
        options: &SendOptions,
    ) -> Result<Result<UpstreamResponse, SendError>, Unsent> {
        let AddressedRequest { request, in_flight, mut deadlines } = addressed;
        let Some(permit) = permit.or_else(|| self.link().limiter().try_acquire(&in_flight.endpoint().connections))
        else {
            return Err(Unsent { request, timed_out: false, is_full: true });
        };
        let answered = match self.attempt_on_new(request, permit, &in_flight, &mut deadlines, options).await? {
            Attempt::Unsent(request) => return Err(Unsent { request, timed_out: false, is_full: false }),
            Attempt::Failed(_, error) => Err(error),
            Attempt::Answered(connection, response) => Ok((self.carrier(connection, &in_flight), response)),
        };
        Ok(finish(answered, in_flight, deadlines))
    }

    /// Connects, and sends: the time of connecting is no part of the response's.
    async fn attempt_on_new(
        &self,
        request: Box<Request<OutgoingBody>>,
        permit: ConnectionPermit,
        in_flight: &InFlight,
        deadlines: &mut Deadlines,
        options: &SendOptions,
    ) -> Result<Attempt, Unsent> {
        let endpoint = in_flight.endpoint();
        let (timeout, lifetimes) = (self.rest_of_connect(options), self.lifetimes());
        match connect(&endpoint.address, endpoint.encryption.as_ref(), timeout, lifetimes, permit).await {
            Ok(connection) => {
                record::record_connected(in_flight);
                *deadlines = deadlines.sent_now();
                let mut sent = SentRequest::send(connection, request, false);
                let received = sent.wait(deadlines, &options.upload).await;
                Ok(sent.end(received))
            }
            Err(error) => {
                let timed_out = record::record_connect_error(in_flight, &error);
                Err(Unsent { request, timed_out, is_full: false })
            }
        }
    }

    /// Connection with the pool that it returns to.
    fn carrier(&self, connection: Box<Connection>, in_flight: &InFlight) -> Carrier {
        Carrier::Http1 { connection, idle: self.idle_connections(in_flight.index()).clone() }
    }
}

/// Makes a request again whose pooled connection died before a byte of the response came: the server may have closed it
/// while the request was on its way. None when the request must not be sent again.
fn request_again(connection: &Connection, error: &SendError) -> Option<Box<Request<OutgoingBody>>> {
    let is_stale = matches!(error, SendError::BadResponse(_)) && !connection.state.has_received();
    let head = if is_stale { connection.state.sent_head() } else { None };
    head.map(|head| Box::new(head.map(|()| OutgoingBody::Empty)))
}
