//! Tries of one request.

use std::cell::Cell;
use std::time::Duration;

use crate::endpoint::endpoint_set::EndpointSet;

/// Tries of one request.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// True if the request may be executed twice, and its body, if any, is kept.
    pub(crate) is_repeatable: bool,
    /// Tries before the current one in which something was sent.
    pub(crate) failed: u8,
    /// Time of `timeouts.response` that these took.
    pub(crate) spent: Duration,
    /// Endpoints that were tried.
    pub(crate) tried: EndpointSet,
    /// True if one of these was set aside: no other one that is set aside is tried.
    pub(crate) has_tried_set_aside: bool,
    /// Endpoint that may be tried again when there is no other.
    pub(crate) fallback: Option<usize>,
    /// True while the current try was given up for a retry that the budget has granted.
    pub(crate) is_granted: Cell<bool>,
}

impl Tries {
    /// Tries of a request that was not sent yet.
    pub(crate) fn new(is_repeatable: bool) -> Self {
        Self { is_repeatable, ..Self::default() }
    }

    /// Returns whether the request may be sent once more after the current try. `attempts` is the number of tries in all.
    pub(crate) fn is_one_left(&self, attempts: u8) -> bool {
        self.failed + 1 < attempts
    }

    /// Ends the current try at an endpoint, which took this part of `timeouts.response`. `allows_same`: the endpoint may get
    /// the request again when there is no other.
    pub(crate) fn end_try(&mut self, endpoint: usize, took: Duration, allows_same: bool) {
        self.failed += 1;
        self.spent += took;
        self.tried.insert(endpoint);
        self.fallback = allows_same.then_some(endpoint);
    }
}
