//! Settings of outlier ejection.

use std::time::Duration;

/// Thresholds and times of outlier ejection. A threshold of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierSettings {
    /// Responses with 5xx in a row, gateway errors included.
    pub server_errors: u16,
    /// Responses with 502, 503 or 504, broken connections and invalid responses in a row.
    pub gateway_errors: u16,
    /// Failed attempts to connect in a row.
    pub connect_failures: u16,
    /// Time-outs in a row.
    pub timeouts: u16,
    /// Time of the first ejection.
    pub ejection: Duration,
    /// Longest time of an ejection.
    pub max_ejection: Duration,
    /// Time in which the share of an endpoint that returns grows to its whole.
    pub slow_start: Duration,
}

impl Default for OutlierSettings {
    fn default() -> Self {
        Self {
            server_errors: 5,
            gateway_errors: 3,
            connect_failures: 1,
            timeouts: 3,
            ejection: Duration::from_secs(5),
            max_ejection: Duration::from_mins(5),
            slow_start: Duration::from_secs(10),
        }
    }
}
