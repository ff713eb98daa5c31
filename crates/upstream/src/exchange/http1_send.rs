//! Sending requests over HTTP/1.1: over a pooled connection, or over a new one.
//!
//! A request for which there is a pooled connection is given to it at once. Its future holds no more than what a response
//! is waited for with; all else is boxed behind it.

use futures_util::FutureExt as _;
use http::Request;
use tokio::time::Instant;

use super::attempt::{Attempt, Deadlines, Received, SentRequest};
use super::finish::finish;
use super::replay_body::{OutgoingBody, ReplayHandle};
use super::response::UpstreamResponse;
use super::response_body::Carrier;
use super::retry::RetryReason;
use super::send_again::{FailedTry, SentAgain, Tried, Unsent, status_of};
use super::send_options::SendOptions;
use crate::connection::http1::{Connection, connect};
use crate::connection::limits::ConnectionPermit;
use crate::connection::reservation::Reserved;
use crate::endpoint::endpoints::InFlight;
use crate::endpoint::record;
use crate::error::{SendError, TimeoutKind};
use crate::pool::{AddressedRequest, Pool};
use crate::settings::Protocol;

/// Request that was given to a connection.
pub(crate) struct PooledRequest {
    sent: SentRequest,
    in_flight: InFlight,
    deadlines: Deadlines,
}

/// Result of sending a request over a pooled connection.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum PooledResult {
    /// The exchange has a response, or has failed for good.
    Ended(Result<UpstreamResponse, SendError>),
    /// Nothing was sent.
    Unsent(AddressedRequest),
    /// The try has failed, and the request may be sent again.
    Failed(Box<FailedTry>),
}

impl Pool {
    /// Gives a request to a pooled connection. The request comes back when there is none.
    pub(crate) fn send_pooled(
        &self,
        addressed: AddressedRequest,
        options: &SendOptions,
    ) -> Result<PooledRequest, AddressedRequest> {
        let Some(connection) = self.pop_idle(addressed.in_flight.index(), addressed.deadlines.sent) else {
            return Err(addressed);
        };
        Ok(self.send_addressed(connection, addressed, options))
    }

    /// Takes an idle connection to an endpoint.
    pub(crate) fn pop_idle(&self, endpoint: usize, now: Instant) -> Option<Box<Connection>> {
        if self.protocol() != Protocol::Http1 {
            return None;
        }
        self.idle_connections(endpoint).borrow_mut().pop(now)
    }

    fn send_addressed(
        &self,
        connection: Box<Connection>,
        addressed: AddressedRequest,
        options: &SendOptions,
    ) -> PooledRequest {
        let AddressedRequest { request, in_flight, deadlines } = addressed;
        self.send_over(connection, *request, in_flight, deadlines, options)
    }

    /// Gives a request to a connection.
    pub(crate) fn send_over(
        &self,
        connection: Box<Connection>,
        request: Request<OutgoingBody>,
        in_flight: InFlight,
        deadlines: Deadlines,
        options: &SendOptions,
    ) -> PooledRequest {
        // The library takes the request: a retry makes it again from the head that was written.
        let sent = SentRequest::send(connection, request, self.kept_bytes(options));
        PooledRequest { sent, in_flight, deadlines }
    }

    /// Waits for the response to a request that was given to a pooled connection.
    #[allow(clippy::manual_async_fn, reason = "an `async fn` has room for its arguments twice")]
    pub(crate) fn receive_pooled(
        &self,
        mut pooled: PooledRequest,
        options: SendOptions,
    ) -> impl Future<Output = Result<UpstreamResponse, SendError>> {
        async move {
            let received = self.wait(&mut pooled, &options).await;
            // Awaited behind the match, whose value would else be held meanwhile.
            let again = match self.end_pooled(pooled, received, &options) {
                PooledResult::Ended(ended) => {
                    options.trace_result(status_of(&ended));
                    return ended;
                }
                PooledResult::Unsent(unsent) => self.send_anew(unsent, options).boxed_local(),
                PooledResult::Failed(failed) => self.send_again(failed, options).boxed_local(),
            };
            again.await
        }
    }

    /// Tries one endpoint over what is reserved there.
    pub(crate) async fn try_http1(
        &self,
        addressed: AddressedRequest,
        reserved: Reserved,
        options: &SendOptions,
    ) -> Tried {
        let (mut sent, permit) = match reserved {
            Reserved::Connection(connection) => (Ok(self.send_addressed(connection, addressed, options)), None),
            Reserved::Permit(permit) => (Err(addressed), Some(permit)),
            Reserved::Pooled | Reserved::Stream(_) => (self.send_pooled(addressed, options), None),
        };
        loop {
            let mut pooled = match sent {
                Ok(pooled) => pooled,
                Err(addressed) => return self.try_new_http1(addressed, permit, options).await,
            };
            let received = self.wait(&mut pooled, options).await;
            match self.end_pooled(pooled, received, options) {
                PooledResult::Ended(ended) => return Tried::Ended(ended),
                PooledResult::Failed(failed) => return Tried::Failed(failed),
                PooledResult::Unsent(unsent) => sent = self.send_pooled(unsent, options),
            }
        }
    }

    /// Tries one endpoint over a new connection. The time of connecting is no part of the response's.
    pub(crate) async fn try_new_http1(
        &self,
        addressed: AddressedRequest,
        permit: Option<ConnectionPermit>,
        options: &SendOptions,
    ) -> Tried {
        let Some(timeout) = self.connect_time(options) else {
            return Tried::Unsent(Unsent::without_time(addressed));
        };
        let endpoint = addressed.in_flight.endpoint();
        let Some(permit) = permit.or_else(|| self.link().limiter().try_acquire(&endpoint.connections)) else {
            return Tried::Unsent(Unsent { addressed, timed_out: false, is_full: true });
        };
        let (begun, encryption) = (Instant::now(), endpoint.encryption.as_ref());
        let connected = connect(&endpoint.address, encryption, timeout, self.lifetimes(), permit).await;
        options.connecting.spend_on_attempt(begun.elapsed());
        match connected {
            Ok(connection) => {
                record::record_connected(&addressed.in_flight);
                self.try_connected_http1(connection, addressed, options).await
            }
            Err(error) => {
                let timed_out = record::record_connect_error(&addressed.in_flight, &error);
                Tried::Unsent(Unsent { addressed, timed_out, is_full: false })
            }
        }
    }

    async fn try_connected_http1(
        &self,
        connection: Box<Connection>,
        addressed: AddressedRequest,
        options: &SendOptions,
    ) -> Tried {
        let deadlines = addressed.deadlines.sent_now();
        let mut sent = self.send_addressed(connection, AddressedRequest { deadlines, ..addressed }, options);
        let received = self.wait(&mut sent, options).await;
        match self.end_try(sent, received, RetryReason::Broken, options) {
            PooledResult::Ended(ended) => Tried::Ended(ended),
            PooledResult::Failed(failed) => Tried::Failed(failed),
            PooledResult::Unsent(addressed) => Tried::Unsent(Unsent { addressed, timed_out: false, is_full: false }),
        }
    }

    /// Waits for the head of the response.
    fn wait(
        &self,
        pooled: &mut PooledRequest,
        options: &SendOptions,
    ) -> impl Future<Output = Result<Received, TimeoutKind>> {
        let PooledRequest { sent, in_flight, deadlines } = pooled;
        let index = in_flight.index();
        sent.wait(deadlines, &options.upload, move |timeout, deadlines| {
            self.extend_try(timeout, index, deadlines, options)
        })
    }

    fn end_pooled(
        &self,
        pooled: PooledRequest,
        received: Result<Received, TimeoutKind>,
        options: &SendOptions,
    ) -> PooledResult {
        self.end_try(pooled, received, RetryReason::Stale, options)
    }

    /// Ends a try. `broken` is the reason for a retry when its connection died before a byte of the response.
    fn end_try(
        &self,
        pooled: PooledRequest,
        received: Result<Received, TimeoutKind>,
        broken: RetryReason,
        options: &SendOptions,
    ) -> PooledResult {
        let PooledRequest { sent, in_flight, mut deadlines } = pooled;
        let (answered, again) = match sent.end(received) {
            Attempt::Unsent(request) => {
                return PooledResult::Unsent(AddressedRequest { request, in_flight, deadlines });
            }
            Attempt::Failed(connection, error) => {
                // The body had come whole, and could not be sent.
                deadlines.request_end = deadlines.request_end.filter(|_| !connection.state.has_failed_write());
                let reason = retry_reason(&connection, &error, broken, options);
                let again = reason.and_then(|reason| send_again(&connection, reason));
                (Err(error), again)
            }
            Attempt::Answered(connection, response) => {
                let reason = self.retry_reason_of(&response, options);
                let again = reason.and_then(|reason| send_again(&connection, reason));
                if let (Some(body), None) = (&connection.replay, &again) {
                    // The upstream has begun, and the body need not be kept.
                    body.stop_buffering();
                }
                (Ok((self.carrier(connection, &in_flight), response)), again)
            }
        };
        match again {
            None => PooledResult::Ended(finish(answered, in_flight, deadlines)),
            Some(again) => PooledResult::Failed(Box::new(FailedTry { again, answered, in_flight, deadlines })),
        }
    }

    /// Connection with the pool that it returns to.
    fn carrier(&self, connection: Box<Connection>, in_flight: &InFlight) -> Carrier {
        Carrier::Http1 { connection, idle: self.idle_connections(in_flight.index()).clone() }
    }
}

/// Reason to send a request again whose response did not come; none when it must not be sent again.
fn retry_reason(
    connection: &Connection,
    error: &SendError,
    broken: RetryReason,
    options: &SendOptions,
) -> Option<RetryReason> {
    match error {
        SendError::TimedOut(_) => options.tries.is_granted.get().then_some(RetryReason::Timeout),
        // An error of the request's body is the client's.
        SendError::BadResponse(error) if error.is_user() || options.upload.error().is_some() => None,
        SendError::BadResponse(_) => (!connection.state.has_received()).then_some(broken),
        _ => None,
    }
}

/// Makes a request again from what its connection has kept; none when that is not the whole.
fn send_again(connection: &Connection, reason: RetryReason) -> Option<SentAgain> {
    let body = connection.replay.clone();
    let head = connection.state.sent_head().filter(|_| body.as_ref().is_none_or(ReplayHandle::is_kept))?;
    Some(SentAgain { reason, head, body })
}
