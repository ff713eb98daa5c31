//! Sending requests over HTTP/2.
//!
//! A request that the upstream refuses to begin with (REFUSED_STREAM) is sent again, once, whatever its method: nothing
//! was processed (RFC 9113, section 8.7). For that its head is copied, and up to 64 KiB of its body are buffered until
//! the response begins, which costs reference counts and no copies of bytes.

use std::pin::pin;

use http::{Request, Response};
use hyper::body::Incoming;

use super::attempt::{Deadlines, wait_for_head};
use super::endpoint::InFlight;
use super::error::SendError;
use super::http2_connection::Http2Stream;
use super::http2_connections::{self, NoStream};
use super::pool::{AddressedRequest, Pool, SendOptions, Unsent, finish};
use super::record;
use super::replay_body::{ReplayHandle, copy_head};
use super::reservation::Reserved;
use super::response::UpstreamResponse;
use super::response_body::Carrier;

/// Result of an attempt on a stream.
enum Attempt {
    /// The head of a response came.
    Answered(Http2Stream, Response<Incoming>),
    /// No head came, and the upstream may have begun to process the request.
    Failed(SendError),
    /// The upstream did not begin to process the request.
    Refused(hyper::Error),
}

impl Pool {
    /// Sends to one endpoint over HTTP/2. The request comes back when nothing of it was sent.
    pub(super) async fn send_http2(
        &self,
        addressed: AddressedRequest,
        reserved: Reserved,
        options: &SendOptions,
    ) -> Result<Result<UpstreamResponse, SendError>, Unsent> {
        let AddressedRequest { request, in_flight, mut deadlines } = addressed;
        let (parts, body) = request.into_parts();
        let (request, replay) = (Request::from_parts(parts, ()), ReplayHandle::new(body));
        let first = match self.acquire_stream(&in_flight, reserved, options).await {
            Ok(stream) => attempt_http2(stream, &request, &replay, &in_flight, &mut deadlines, options).await,
            Err(no_stream) => {
                let is_full = matches!(no_stream, NoStream::Full);
                let timed_out = record_no_stream(&in_flight, &no_stream);
                return Err(Unsent { request: Box::new(request.map(|()| replay.into_body())), timed_out, is_full });
            }
        };
        let last = match first {
            Attempt::Refused(error) => {
                in_flight.endpoint().metrics.retries.inc();
                match self.acquire_again(&in_flight, options).await {
                    Some(stream) => attempt_http2(stream, &request, &replay, &in_flight, &mut deadlines, options).await,
                    None => Attempt::Refused(error),
                }
            }
            ended => ended,
        };
        let answered = match last {
            Attempt::Answered(stream, response) => {
                // The upstream has begun: the request cannot be sent again, and its body need not be kept.
                replay.stop_buffering();
                Ok((Carrier::Http2 { stream, _replay: replay }, response))
            }
            Attempt::Failed(error) => Err(error),
            Attempt::Refused(error) => Err(SendError::BadResponse(error)),
        };
        Ok(finish(answered, in_flight, deadlines))
    }

    /// Acquires a stream of a connection.
    async fn acquire_stream(
        &self,
        in_flight: &InFlight,
        reserved: Reserved,
        options: &SendOptions,
    ) -> Result<Http2Stream, NoStream> {
        let permit = match reserved {
            Reserved::Stream(stream) => return Ok(stream),
            Reserved::Permit(permit) => Some(permit),
            Reserved::Pooled | Reserved::Connection(_) => None,
        };
        let (limiter, timeout) = (self.link().limiter(), self.rest_of_connect(options));
        let connections = self.http2_connections(in_flight.index());
        let acquired = connections.acquire(in_flight.endpoint(), limiter, permit, timeout, self.lifetimes()).await;
        if acquired.as_ref().is_ok_and(|stream| stream.is_first) {
            record::record_connected(in_flight);
        }
        acquired
    }

    /// Acquires a stream for a request that is sent again. Waits if there is no room for a connection.
    async fn acquire_again(&self, in_flight: &InFlight, options: &SendOptions) -> Option<Http2Stream> {
        let first = self.acquire_stream(in_flight, Reserved::Pooled, options).await;
        let acquired = match first {
            Err(NoStream::Full) => {
                let (_, reserved) = self.wait_for_connection(&[in_flight.index()], options).await.ok()?;
                self.acquire_stream(in_flight, reserved, options).await
            }
            acquired => acquired,
        };
        if let Err(no_stream) = &acquired {
            record_no_stream(in_flight, no_stream);
        }
        acquired.ok()
    }
}

/// Counts and logs a failed attempt to connect. Returns whether it timed out.
fn record_no_stream(in_flight: &InFlight, no_stream: &NoStream) -> bool {
    match no_stream {
        NoStream::Failed(error) => record::record_connect_error(in_flight, error),
        NoStream::Full => false,
    }
}

/// Sends a request on a stream and waits for the head of the response.
async fn attempt_http2(
    mut stream: Http2Stream,
    request: &Request<()>,
    replay: &ReplayHandle,
    in_flight: &InFlight,
    deadlines: &mut Deadlines,
    options: &SendOptions,
) -> Attempt {
    let Some(body) = replay.rewind() else { return Attempt::Failed(SendError::Unrepeatable) };
    let request = http2_connections::rewrite_head(copy_head(request), in_flight.endpoint()).map(|()| body);
    let mut sender = stream.sender();
    let response = pin!(sender.try_send_request(request));
    *deadlines = deadlines.sent_now();
    match wait_for_head(response, &mut stream.timer, deadlines, &options.upload).await {
        Ok(Ok(response)) => Attempt::Answered(stream, response),
        Ok(Err(mut error)) => match (error.take_message(), error.into_error()) {
            // The connection had no stream left after all, or was closed: nothing was sent.
            (Some(_), error) => Attempt::Refused(error),
            (None, error) if http2_connections::is_refused_stream(&error) => Attempt::Refused(error),
            (None, error) => Attempt::Failed(SendError::BadResponse(error)),
        },
        Err(kind) => Attempt::Failed(SendError::TimedOut(kind)),
    }
}
