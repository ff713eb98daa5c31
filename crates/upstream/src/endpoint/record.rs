//! Records of what endpoints did: in their metrics, in the estimates that balancing goes by, and for their ejection.
//!
//! - An exchange has failed when its head says so, or when its response breaks off; it has succeeded when the response
//!   has come whole. One that the client ended says nothing, nor does an upload that the endpoint broke off.
//! - Each change of an endpoint's state is logged once.

use std::io;
use std::sync::atomic::Ordering;

use http::{Response, StatusCode};
use tokio::time::Instant;

use super::endpoints::{EndpointState, Endpoints, InFlight};
use super::failure::Failure;
use super::observed_try::{CONNECT_FAILED, error_type};
use super::pause::parse_retry_after;
use crate::error::{SendError, TimeoutKind, is_closed_by_peer};
use domain::clock::{self, Micros};

/// Records the head of a response, and the failure that its status means. The latency counts from the end of the
/// request; a response that began before that has none.
pub(crate) fn record_head(in_flight: &InFlight, failure: Option<Failure>, request_end: Option<Instant>) {
    let latency = request_end.map(micros_since);
    if let Some(micros) = latency {
        in_flight.endpoint().metrics.latency.observe(micros);
    }
    if !in_flight.endpoints().has_choice() {
        return;
    }
    let now = clock::steady();
    let load = &in_flight.endpoint().load;
    match (failure, latency) {
        (None, Some(micros)) => load.observe_latency(micros, now),
        (Some(_), Some(micros)) => load.observe_failed_latency(micros, now),
        (_, None) => {}
    }
    if let Some(failure) = failure {
        record_failure(in_flight, failure);
    }
}

/// Notes the time for which a response with 503 asks for no requests, or that a response asks for none.
pub(crate) fn record_retry_after<B>(in_flight: &InFlight, response: &Response<B>) {
    let is_unavailable = response.status() == StatusCode::SERVICE_UNAVAILABLE;
    let endpoints = in_flight.endpoints();
    let endpoint = in_flight.endpoint();
    // Also of a single endpoint: its requests go on, and get no retries.
    match is_unavailable.then(|| parse_retry_after(response.headers(), Micros::wall())).flatten() {
        Some(pause) => endpoints.ask_for_pause(endpoint, pause, clock::steady()),
        None => endpoint.pause.interrupt(),
    }
}

/// Counts an exchange without a response.
pub(crate) fn record_error(in_flight: &InFlight, error: &SendError, request_end: Option<Instant>) {
    if let Some(observed) = in_flight.observed() {
        observed.note_error(error_type(error));
    }
    let metrics = &in_flight.endpoint().metrics;
    let failure = match error {
        SendError::TimedOut(kind) => {
            metrics.timed_out.inc();
            kind.count(&metrics.timeouts);
            Failure::Timeout
        }
        _ => {
            metrics.bad_response.inc();
            Failure::GatewayError
        }
    };
    if in_flight.endpoints().has_choice() && !is_own_error(error) && !is_cut_upload(error, request_end) {
        if let Some(end) = request_end {
            in_flight.endpoint().load.observe_failed_latency(micros_since(end), clock::steady());
        }
        record_failure(in_flight, failure);
    }
}

/// Returns whether the error came from this side of the connection, such as a request body that the client did not
/// finish.
fn is_own_error(error: &SendError) -> bool {
    match error {
        SendError::BadResponse(error) => error.is_user() || error.is_canceled(),
        SendError::Refused(error) => error.is_canceled(),
        SendError::Full => true,
        // The client has not sent its request whole, or in time.
        SendError::TimedOut(kind) => matches!(kind, TimeoutKind::Upload | TimeoutKind::Exchange),
        _ => false,
    }
}

/// Returns whether the endpoint closed the connection before the request was sent whole. It may have refused the
/// request in a response that was lost: that says nothing about its health.
fn is_cut_upload(error: &SendError, request_end: Option<Instant>) -> bool {
    request_end.is_none() && matches!(error, SendError::BadResponse(error) if is_closed_by_peer(error))
}

fn micros_since(time: Instant) -> u64 {
    u64::try_from(time.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Records a failure of the endpoint.
pub(crate) fn record_failure(in_flight: &InFlight, failure: Failure) {
    let endpoints = in_flight.endpoints();
    let endpoint = in_flight.endpoint();
    if endpoints.has_choice() {
        let now = clock::steady();
        endpoint.load.fail(now);
        endpoints.fail(endpoint, failure, now);
    }
}

/// Records that a response has come whole.
pub(crate) fn record_success(in_flight: &InFlight) {
    if in_flight.endpoints().has_choice() {
        let endpoint = in_flight.endpoint();
        endpoint.load.succeed(clock::steady());
        endpoint.ejection.succeed();
    }
}

/// Notes that a connection could be made. Logs only a change.
pub(crate) fn record_connected(in_flight: &InFlight) {
    let endpoint = in_flight.endpoint();
    endpoint.note_reachable();
    in_flight.endpoints().note_connected(endpoint);
}

/// Counts and logs that an endpoint could not be connected to. Returns whether connecting timed out.
pub(crate) fn record_connect_error(in_flight: &InFlight, error: &io::Error) -> bool {
    if let Some(observed) = in_flight.observed() {
        observed.note_error(CONNECT_FAILED);
    }
    let endpoint = in_flight.endpoint();
    endpoint.metrics.connect_failed.inc();
    if is_own_connect_error(error) {
        return false;
    }
    endpoint.note_unreachable(error);
    let timed_out = error.kind() == io::ErrorKind::TimedOut;
    if timed_out {
        TimeoutKind::Connection.count(&endpoint.metrics.timeouts);
    }
    record_failure(in_flight, Failure::Connect);
    timed_out
}

/// Returns whether no connection could be made because this process has no room for one: no file descriptor, port or
/// memory, or as many connections as it may have.
fn is_own_connect_error(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let has_no_descriptor = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    has_no_descriptor.contains(&error.raw_os_error())
        || matches!(
            error.kind(),
            io::ErrorKind::QuotaExceeded | io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory
        )
}

impl EndpointState {
    /// Notes that the endpoint can be connected to.
    pub(crate) fn note_reachable(&self) {
        self.is_reachable.store(true, Ordering::Relaxed);
        self.show_up();
    }

    /// Logs that the endpoint can be connected to again, once an outage is over: one that refuses every other
    /// connection is one line of the log, and not one for each.
    pub(crate) fn end_outage(&self, now: Micros) {
        if self.is_reachable.load(Ordering::Relaxed) && self.outage.end_if_quiet(now).is_some() {
            tracing::info!(upstream = %self.upstream, endpoint = %self.label, "the upstream can be reached again");
        }
    }

    /// Notes that the endpoint can no longer be connected to, and logs the beginning of an outage.
    pub(crate) fn note_unreachable(&self, error: &io::Error) {
        self.is_reachable.store(false, Ordering::Relaxed);
        if self.outage.note(clock::steady()) {
            tracing::warn!(upstream = %self.upstream, endpoint = %self.label, %error,
                "the upstream cannot be reached; requests go to other endpoints, if there are any");
        }
        self.show_up();
    }
}

impl Endpoints {
    /// Returns whether there is more than one endpoint: else nothing is chosen, and nothing set aside.
    pub(crate) fn has_choice(&self) -> bool {
        self.list.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_not_blamed_for_what_this_process_lacks() {
        use rustix::io::Errno;
        for errno in [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOMEM] {
            assert!(is_own_connect_error(&errno.into()), "{errno}");
        }
        assert!(is_own_connect_error(&io::ErrorKind::QuotaExceeded.into()), "as many connections as there may be");
        for errno in [Errno::CONNREFUSED, Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::CONNRESET] {
            assert!(!is_own_connect_error(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn endpoint_is_not_blamed_for_a_client_that_is_late() {
        for kind in [TimeoutKind::Upload, TimeoutKind::Exchange] {
            assert!(is_own_error(&SendError::TimedOut(kind)), "{kind}");
        }
        assert!(is_own_error(&SendError::Full));
        for kind in [TimeoutKind::Head, TimeoutKind::Body, TimeoutKind::Connection] {
            assert!(!is_own_error(&SendError::TimedOut(kind)), "{kind}");
        }
        assert!(!is_own_error(&SendError::TooManyFields));
    }
}
