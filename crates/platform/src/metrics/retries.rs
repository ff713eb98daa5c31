//! Requests that were sent again, counted by reason. Their sum over the reasons is made when metrics are read.

use std::collections::BTreeMap;

use prometheus::core::Collector as _;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{IntCounter, IntCounterVec, Registry};

use super::computed::ComputedFamily;
use super::registration::counter;

const BY_REASON: &str = "Requests sent again, by the failure of the try before";
const TOTAL: &str = "Requests sent again";
/// Label that both families have.
const UPSTREAM: &str = "upstream";

/// Requests of one upstream that were sent again, by the failure of the try before.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct RetryMetrics {
    pub stale: IntCounter,
    pub broken: IntCounter,
    pub timeout: IntCounter,
    pub status: IntCounter,
    pub refused: IntCounter,
}

impl RetryMetrics {
    pub(super) fn new(by_reason: &IntCounterVec, upstream: &str) -> Self {
        let reason = |reason| by_reason.with_label_values(&[upstream, reason]);
        Self {
            stale: reason("stale"),
            broken: reason("broken"),
            timeout: reason("timeout"),
            status: reason("status"),
            refused: reason("refused"),
        }
    }
}

/// Registers `upstream_retries_by_reason_total{upstream,reason}`, which is returned, and
/// `upstream_retries_total{upstream}`: the sums over the reasons.
pub(super) fn register(r: &Registry) -> IntCounterVec {
    let by_reason = counter(r, "upstream_retries_by_reason_total", BY_REASON, &[UPSTREAM, "reason"]);
    let counted = by_reason.clone();
    let sums = move || sum_by_upstream(&counted).into_iter().collect();
    let total = ComputedFamily::labelled(MetricType::COUNTER, "upstream_retries_total", TOTAL, UPSTREAM, sums);
    r.register(Box::new(total)).expect("each name is registered once");
    by_reason
}

fn sum_by_upstream(by_reason: &IntCounterVec) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for counter in by_reason.collect().iter().flat_map(MetricFamily::get_metric) {
        let upstream = counter.get_label().iter().find(|label| label.name() == UPSTREAM);
        let upstream = upstream.map_or_else(String::new, |label| label.value().to_owned());
        *sums.entry(upstream).or_default() += counter.get_counter().get_value();
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_sum_over_the_reasons_of_each_upstream() {
        let registry = Registry::new();
        let by_reason = register(&registry);
        let store = RetryMetrics::new(&by_reason, "store");
        let reports = RetryMetrics::new(&by_reason, "reports");
        let totals = || {
            let families = registry.gather();
            let family = families.iter().find(|family| family.name() == "upstream_retries_total").unwrap();
            family.get_metric().iter().map(|metric| metric.get_counter().get_value()).collect::<Vec<_>>()
        };
        assert_eq!(totals(), [0.0, 0.0], "there before the first retry");
        let reasons = [&store.stale, &store.broken, &store.timeout, &store.status, &store.refused];
        reasons.into_iter().for_each(IntCounter::inc);
        reports.refused.inc_by(7);
        assert_eq!(totals(), [7.0, 5.0], "reports, store");
    }
}
