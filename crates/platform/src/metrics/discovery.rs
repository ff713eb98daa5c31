//! Metrics of the discovery of upstream endpoints.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::registration::{counters, gauges};

/// `upstream_lookups_total{upstream,result}` and `upstream_endpoints{upstream}`.
#[derive(Clone, Debug)]
pub struct DiscoveryFamilies {
    lookups: IntCounterVec,
    endpoints: IntGaugeVec,
}

/// Metrics of the discovery of one upstream's endpoints.
#[derive(Clone, Debug)]
pub struct DiscoveryMetrics {
    /// Look-ups of a name that brought addresses.
    pub resolved: IntCounter,
    /// Look-ups of a name that brought none; the last known ones stay in use.
    pub failed: IntCounter,
    endpoints: IntGaugeVec,
    upstream: String,
}

impl DiscoveryFamilies {
    pub(super) fn new(r: &Registry) -> Self {
        let lookups = "Look-ups of the names of upstream endpoints";
        Self {
            lookups: counters(r, "upstream_lookups_total", lookups, &["upstream", "result"]),
            endpoints: gauges(r, "upstream_endpoints", "Upstream endpoints with an address", &["upstream"]),
        }
    }

    /// The metrics of an upstream.
    pub fn upstream(&self, name: &str) -> DiscoveryMetrics {
        DiscoveryMetrics {
            resolved: self.lookups.with_label_values(&[name, "ok"]),
            failed: self.lookups.with_label_values(&[name, "failed"]),
            endpoints: self.endpoints.clone(),
            upstream: name.to_owned(),
        }
    }

    /// Removes the gauge of an upstream that is gone. Its counters stay, as counters must not fall.
    pub fn remove(&self, name: &str) {
        // Fails for an upstream that had none.
        self.endpoints.remove_label_values(&[name]).ok();
    }
}

impl DiscoveryMetrics {
    /// Number of endpoints with an address. To be taken for an upstream that is in use: it is shown from then on.
    pub fn endpoints(&self) -> IntGauge {
        self.endpoints.with_label_values(&[&self.upstream])
    }
}
