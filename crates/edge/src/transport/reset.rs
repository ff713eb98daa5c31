//! Reset of an exchange on request of the service.

use std::fmt;
use std::rc::Rc;

/// Part of a connection that can reset an exchange.
pub(super) trait Reset {
    /// Resets the exchange, soon: in the exchange's own task. Changes nothing else, so it may be called anywhere.
    fn reset(&self);
}

/// Handle by which an exchange can be reset, wherever it is: before its response, in the middle of a body in either
/// direction, or in a tunnel. Clones refer to the same exchange.
///
/// - On HTTP/1 the connection is reset, on HTTP/2 the stream: neither looks like the end of a response.
/// - All that the service holds for the exchange is dropped.
/// - It is to be dropped with the exchange: on HTTP/1 the connection's next exchange has the same handle.
#[derive(Clone, Default)]
pub struct ResetHandle(Option<Rc<dyn Reset>>);

impl ResetHandle {
    pub(super) fn new<R: Reset + 'static>(exchange: Rc<R>) -> Self {
        Self(Some(exchange))
    }

    /// Resets the exchange.
    pub fn reset(&self) {
        if let Some(exchange) = &self.0 {
            exchange.reset();
        }
    }
}

impl fmt::Debug for ResetHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResetHandle").finish_non_exhaustive()
    }
}
