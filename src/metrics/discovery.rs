//! Metrics of the discovery of upstream endpoints.

use prometheus::{IntCounter, IntGauge, Registry};

use super::registration::{counters, gauge};

/// `upstream_lookups_total{result}` and `upstream_endpoints`.
#[derive(Clone, Debug)]
pub struct DiscoveryMetrics {
    /// Look-ups of a name that brought addresses.
    pub resolved: IntCounter,
    /// Look-ups of a name that brought none; the last known ones stay in use.
    pub failed: IntCounter,
    /// Endpoints with an address.
    pub endpoints: IntGauge,
}

impl DiscoveryMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let lookups = counters(r, "upstream_lookups_total", "Look-ups of the names of upstream endpoints", &["result"]);
        Self {
            resolved: lookups.with_label_values(&["ok"]),
            failed: lookups.with_label_values(&["failed"]),
            endpoints: gauge(r, "upstream_endpoints", "Upstream endpoints with an address"),
        }
    }
}
