//! Default limits, which can change while a gateway runs.

use domain::quota::Quota;

/// Limits of keys and organizations without limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Quota of a key.
    pub quota: Quota,
    /// Requests that an organization may have in flight.
    pub concurrent: u32,
}
