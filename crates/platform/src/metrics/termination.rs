//! Metrics of exchanges that were ended because their credential was revoked.

use prometheus::{IntCounter, Registry};

use super::registration::counters;

const TERMINATED: &str = "Open exchanges that were ended because their credential was revoked, by what was revoked";

/// `exchanges_terminated_total{reason}`: open exchanges that were ended because their credential was revoked.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct TerminationMetrics {
    pub key: IntCounter,
    pub secret: IntCounter,
    pub user: IntCounter,
    pub org: IntCounter,
    pub session: IntCounter,
}

impl TerminationMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let reasons = counters(r, "exchanges_terminated_total", TERMINATED, &["reason"]);
        let reason = |reason| reasons.with_label_values(&[reason]);
        Self {
            key: reason("key"),
            secret: reason("secret"),
            user: reason("user"),
            org: reason("org"),
            session: reason("session"),
        }
    }
}
