//! Metrics of admission: results of authentication, decisions of the limits, and operations of the state.

use std::sync::Arc;

use prometheus::{Histogram, IntCounter, IntCounterVec, Registry};

use super::registration::{OVERHEAD_BUCKETS, counters, histograms};
use domain::refusal::Refusal;

/// `auth_total{result}`: its labels are those of the table of refusals, and `ok`.
#[derive(Clone, Debug)]
pub struct AuthMetrics {
    /// Credentials that were accepted.
    pub ok: IntCounter,
    /// Counters in the order of [`Refusal::ALL`].
    refused: Arc<[Option<IntCounter>]>,
}

/// `limit_decisions_total{policy,decision}`: decisions of the rate limit of a key and the concurrency limit of an
/// organization.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the labels' values")]
pub struct LimitMetrics {
    pub key_allowed: IntCounter,
    pub key_denied: IntCounter,
    pub org_allowed: IntCounter,
    pub org_denied: IntCounter,
}

/// `state_duration_seconds{op}` and `state_errors_total{kind}`: operations of the state.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the labels' values")]
pub struct StateMetrics {
    pub decide: Histogram,
    pub session: Histogram,
    pub change: Histogram,
    pub errors: StateErrors,
}

/// `state_errors_total{kind}`: failed operations of the state.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the label's values")]
pub struct StateErrors {
    pub late: IntCounter,
    pub unreachable: IntCounter,
    pub refused: IntCounter,
    pub overloaded: IntCounter,
}

impl AuthMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let results = counters(r, "auth_total", "Credentials, by the result of their check", &["result"]);
        let result = |result| results.with_label_values(&[result]);
        let refused = Refusal::ALL.iter().map(|refusal| refusal.row().auth_result.map(result));
        Self { ok: result("ok"), refused: refused.collect() }
    }

    /// Counts a refused request by how its credential was judged, if it was.
    pub fn count_refusal(&self, refusal: Refusal) {
        if let Some(counter) = &self.refused[refusal as usize] {
            counter.inc();
        }
    }
}

impl LimitMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let decisions = counters(
            r,
            "limit_decisions_total",
            "Decisions of the rate and concurrency limits",
            &["policy", "decision"],
        );
        let decision = |policy, decision| decisions.with_label_values(&[policy, decision]);
        Self {
            key_allowed: decision("key", "allowed"),
            key_denied: decision("key", "denied"),
            org_allowed: decision("org", "allowed"),
            org_denied: decision("org", "denied"),
        }
    }
}

impl StateMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let durations =
            histograms(r, "state_duration_seconds", "Duration of operations of the state", "op", OVERHEAD_BUCKETS);
        let errors = counters(r, "state_errors_total", "Failed operations of the state", &["kind"]);
        Self {
            decide: durations.with_label_values(&["decide"]),
            session: durations.with_label_values(&["session"]),
            change: durations.with_label_values(&["change"]),
            errors: StateErrors::new(&errors),
        }
    }
}

impl StateErrors {
    fn new(vec: &IntCounterVec) -> Self {
        let kind = |kind| vec.with_label_values(&[kind]);
        Self {
            late: kind("late"),
            unreachable: kind("unreachable"),
            refused: kind("refused"),
            overloaded: kind("overloaded"),
        }
    }
}
