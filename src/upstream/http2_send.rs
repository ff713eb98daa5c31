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
use super::http2_connections::{self, Http2Stream};
use super::pool::{AddressedRequest, Pool, SendOptions, Unsent, finish};
use super::record;
use super::replay_body::{ReplayHandle, copy_head};
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
        options: &SendOptions,
    ) -> Result<Result<UpstreamResponse, SendError>, Unsent> {
        let AddressedRequest { request, in_flight, mut deadlines } = addressed;
        let (parts, body) = request.into_parts();
        let (request, replay) = (Request::from_parts(parts, ()), ReplayHandle::new(body));
        let first = match self.acquire_stream(&in_flight).await {
            Ok(stream) => attempt_http2(stream, &request, &replay, &in_flight, &mut deadlines, options).await,
            Err(timed_out) => {
                return Err(Unsent { request: Box::new(request.map(|()| replay.into_body())), timed_out });
            }
        };
        let last = match first {
            Attempt::Refused(error) => {
                in_flight.endpoint().metrics.retries.inc();
                match self.acquire_stream(&in_flight).await {
                    Ok(stream) => attempt_http2(stream, &request, &replay, &in_flight, &mut deadlines, options).await,
                    Err(_) => Attempt::Refused(error),
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

    /// Acquires a stream of a connection. The error says whether connecting timed out.
    async fn acquire_stream(&self, in_flight: &InFlight) -> Result<Http2Stream, bool> {
        let endpoint = in_flight.endpoint();
        let connections = self.http2_connections(in_flight.index());
        let acquired = connections.acquire(endpoint, self.timeouts().connect, self.lifetimes()).await;
        if acquired.as_ref().is_ok_and(|stream| stream.is_first) {
            record::record_connected(in_flight);
        }
        acquired.map_err(|error| record::record_connect_error(in_flight, &error))
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
