//! Requests over HTTP/2.
//!
//! A request that the upstream refuses to begin with (REFUSED_STREAM) is sent again, once, whatever its method: nothing
//! was processed (RFC 9113, section 8.7). For that its head is copied, and up to 64 KiB of its body are remembered until
//! the response begins, which costs references and no copies.

use http::{Request, Response};
use hyper::body::Incoming;

use super::attempt::{Deadlines, head};
use super::endpoint::InFlight;
use super::error::SendError;
use super::http2_connections::{self, Http2Stream};
use super::pool::{Pool, SendOptions, Unsent, unreachable};
use super::replay_body::{OutgoingBody, ReplayHandle, copy_head};
use super::response_body::{Carrier, ResponseBody};

/// How a request on a stream fared.
enum Call {
    Answered(Http2Stream, Response<Incoming>),
    Failed(SendError),
    /// The upstream did not begin with it.
    Refused(hyper::Error),
}

impl Pool {
    /// Sends to one endpoint; the request comes back when nothing of it was sent.
    pub(super) async fn call(
        &self,
        request: Request<OutgoingBody>,
        in_flight: InFlight,
        options: &SendOptions<'_>,
    ) -> Result<Result<Response<ResponseBody>, SendError>, Unsent> {
        let deadlines = Deadlines::from_now(self.timeouts(), options.long_lived);
        let (parts, body) = request.into_parts();
        let (request, replay) = (Request::from_parts(parts, ()), ReplayHandle::new(body));
        let first = match self.place(&in_flight).await {
            Ok(stream) => self.call_over(stream, &request, &replay, &in_flight, deadlines, options).await,
            Err(late) => return Err(Unsent { request: Box::new(request.map(|()| replay.into_body())), late }),
        };
        let last = match first {
            Call::Refused(error) => {
                in_flight.shared().metrics.retries.inc();
                match self.place(&in_flight).await {
                    Ok(stream) => self.call_over(stream, &request, &replay, &in_flight, deadlines, options).await,
                    Err(_) => Call::Refused(error),
                }
            }
            ended => ended,
        };
        let answered = match last {
            Call::Answered(stream, response) => {
                replay.forget();
                Ok((Carrier::Http2 { stream, _replay: replay }, response))
            }
            Call::Failed(failure) => Err(failure),
            Call::Refused(error) => Err(SendError::BadResponse(error)),
        };
        Ok(self.concluded(answered, in_flight, deadlines, options))
    }

    /// A place on a connection; or whether the attempt to make one took too long.
    async fn place(&self, in_flight: &InFlight) -> Result<Http2Stream, bool> {
        let shared = in_flight.shared();
        let stream = self.multiplexed(in_flight.index()).stream(
            &shared.endpoint,
            shared.encryption.as_ref(),
            self.timeouts().connect,
        );
        let stream = stream.await;
        match &stream {
            Ok(stream) if stream.is_first => shared.reached(),
            _ => {}
        }
        stream.map_err(|error| unreachable(shared, &error))
    }

    async fn call_over(
        &self,
        mut stream: Http2Stream,
        request: &Request<()>,
        replay: &ReplayHandle,
        in_flight: &InFlight,
        deadlines: Deadlines,
        options: &SendOptions<'_>,
    ) -> Call {
        let Some(body) = replay.lend() else { return Call::Failed(SendError::Unrepeatable) };
        let request = http2_connections::head(copy_head(request), in_flight.shared()).map(|()| body);
        let mut sender = stream.sender();
        let response = sender.try_send_request(request);
        match head(response, &mut stream.timer, deadlines, options.uploaded).await {
            Ok(Ok(response)) => Call::Answered(stream, response),
            Ok(Err(mut error)) => match (error.take_message(), error.into_error()) {
                (Some(_), error) => Call::Refused(error),
                (None, error) if http2_connections::is_refused(&error) => Call::Refused(error),
                (None, error) => Call::Failed(SendError::BadResponse(error)),
            },
            Err(late) => Call::Failed(SendError::TimedOut(late)),
        }
    }
}
