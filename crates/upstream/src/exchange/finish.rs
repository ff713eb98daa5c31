//! End of a try: its failure is counted, or its answer becomes a response.

use http::Response;
use hyper::body::Incoming;

use super::attempt::Deadlines;
use super::response::UpstreamResponse;
use super::response_body::{Carrier, ConnectionGuard};
use crate::connection::head_scan::MAX_FIELDS;
use crate::endpoint::endpoints::InFlight;
use crate::endpoint::failure::Failure;
use crate::endpoint::record;
use crate::error::SendError;

/// Counts a failed exchange, or makes a response of the answer. The response counts itself when its head is accepted.
pub(crate) fn finish(
    answered: Result<(Carrier, Response<Incoming>), SendError>,
    in_flight: InFlight,
    deadlines: Deadlines,
) -> Result<UpstreamResponse, SendError> {
    match answered {
        // On HTTP/1 the library has this limit itself, on HTTP/2 none.
        Ok((_, ref response)) if response.headers().len() > MAX_FIELDS => {
            Err(fail(SendError::TooManyFields, &in_flight, &deadlines))
        }
        Ok((carrier, response)) => {
            let failure = Failure::of_head(&response);
            if let Some(observed) = in_flight.observed() {
                observed.note_status(response.status());
            }
            record::record_head(&in_flight, failure, deadlines.request_end);
            record::record_retry_after(&in_flight, &response);
            let is_early = deadlines.request_end.is_none();
            let guard = ConnectionGuard::new(carrier, in_flight, response.version(), failure.is_some(), is_early);
            Ok(UpstreamResponse::new(response, guard, deadlines.of_body()))
        }
        Err(error) => Err(fail(error, &in_flight, &deadlines)),
    }
}

fn fail(error: SendError, in_flight: &InFlight, deadlines: &Deadlines) -> SendError {
    record::record_error(in_flight, &error, deadlines.request_end);
    error
}
