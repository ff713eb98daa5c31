//! Metrics of the discovery of upstream endpoints.

use prometheus::{IntCounter, IntGauge, IntGaugeVec};

metrics! {
    /// Discovery of the endpoints of all upstreams.
    pub struct DiscoveryFamilies {
        /// Look-ups of the names of upstream endpoints
        counters "upstream_lookups_total" { upstream, result } => lookups;
        /// Upstream endpoints with an address
        gauges "upstream_endpoints" { upstream } => endpoints;
    }
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
