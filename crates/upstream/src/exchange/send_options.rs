//! Terms of one exchange, and the state of its tries.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;

use super::retry::Tries;
use crate::connection::connect_budget::ConnectBudget;
use crate::error::SendError;
use platform::request_body::UploadProgress;
use platform::telemetry::ObservedRequest;

/// Terms of one exchange.
#[derive(Debug, Default)]
pub struct SendTerms {
    /// For an exchange without a time limit as a whole: the time in which something must come.
    pub long_lived: Option<Duration>,
    /// True if the route declares that its requests may be executed twice.
    pub is_idempotent: bool,
    /// The request whose trace gets a span for each try; none when traces are off.
    pub trace: Option<Rc<ObservedRequest>>,
}

/// Options of one exchange.
pub(crate) struct SendOptions {
    /// Progress of the request's body: while it advances, the upstream is not late with its response.
    pub(crate) upload: UploadProgress,
    /// For an exchange without a time limit as a whole: the time in which something must come.
    pub(crate) long_lived: Option<Duration>,
    /// Time for connections, of all tries together.
    pub(crate) connecting: ConnectBudget,
    pub(crate) tries: Tries,
    pub(crate) trace: Option<Rc<ObservedRequest>>,
}

impl SendOptions {
    /// Notes the result of a try in the trace of the request.
    pub(crate) fn trace_result(&self, result: Result<StatusCode, &SendError>) {
        if let Some(trace) = &self.trace {
            trace.end_try(result.map_err(SendError::trace_error));
        }
    }
}
