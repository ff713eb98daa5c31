//! The block `upstream.connections`: bounds of the connections to the endpoints.

use std::time::Duration;

use platform::settings::Section;
use upstream::{ConnectionBounds, Lifetimes};

/// Most connections that can be configured: more than a process has file descriptors.
const MOST: usize = 1_000_000;

/// Advice for a file with `min_idle`, by which 0.2.0 opened connections ahead of requests.
const NO_MIN_IDLE: &str = "is no setting any more, as requests open the connections; remove it, and raise `max_idle` \
     to keep idle connections for longer";

/// Reads the block `connections`.
pub(super) fn connections(section: &mut Section<'_>) -> (Lifetimes, ConnectionBounds) {
    let age = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
    let idle = Duration::from_secs(1)..=Duration::from_secs(3600);
    let lifetimes = Lifetimes {
        max_idle: section.value_or("max_idle", Lifetimes::default().max_idle, |value| value.duration(idle)),
        max_age: section.value_or("max_age", None, |value| value.duration(age).map(Some)),
        max_requests: section.value_or("max_requests", None, |value| value.integer(1..=u32::MAX).map(Some)),
    };
    let default = ConnectionBounds::default();
    let wait = Duration::from_millis(1)..=Duration::from_secs(60);
    let bounds = ConnectionBounds {
        max: section.value_or("max", None, |value| value.integer(1..=MOST).map(Some)),
        max_total: section.value_or("max_total", None, |value| value.integer(1..=MOST).map(Some)),
        max_waiting: section.value_or("max_waiting", default.max_waiting, |value| value.integer(0..=MOST)),
        max_wait: section.value_or("max_wait", default.max_wait, |value| value.duration(wait)),
    };
    section.removed("min_idle", NO_MIN_IDLE);
    (lifetimes, bounds)
}
