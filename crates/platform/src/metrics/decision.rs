//! Metrics of admission: results of authentication, decisions of the limits, operations of the state, and exchanges
//! that were ended because their credential was revoked.

use std::sync::Arc;

use prometheus::{IntCounter, Registry};

use super::registration::{OVERHEAD_BUCKETS, counter};
use domain::refusal::Refusal;

/// `auth_total{result}`: its labels are those of the table of refusals, and `ok`.
#[derive(Clone, Debug)]
pub struct AuthMetrics {
    /// Credentials that were accepted.
    pub ok: IntCounter,
    /// Counters in the order of [`Refusal::ALL`].
    refused: Arc<[Option<IntCounter>]>,
}

metrics! {
    /// Decisions about requests whose credential is known.
    pub struct LimitMetrics {
        /// Decisions of the rate and concurrency limits
        counter "limit_decisions_total" { policy, decision } =>
            pub key_allowed("key", "allowed"), pub key_denied("key", "denied"),
            pub key_concurrent_allowed("key-concurrent", "allowed"),
            pub key_concurrent_denied("key-concurrent", "denied"),
            pub org_allowed("org", "allowed"), pub org_denied("org", "denied");
    }
}

metrics! {
    /// Operations of the state.
    pub struct StateMetrics {
        /// Duration of operations of the state
        histogram "state_duration_seconds" { op } in OVERHEAD_BUCKETS =>
            pub decide("decide"), pub session("session"), pub change("change");
        /// 1 when the last daily look at what ends soon has found more than it announces
        gauge "announcements_limited" => pub announcements_limited;
        /// Failed operations
        set StateErrors => pub errors;
    }
}

metrics! {
    /// Failed operations of the state.
    pub struct StateErrors {
        /// Failed operations of the state
        counter "state_errors_total" { kind } =>
            pub late("late"), pub unreachable("unreachable"), pub refused("refused"), pub overloaded("overloaded"),
            pub lost("lost");
    }
}

metrics! {
    /// Open exchanges that a revocation has ended.
    pub struct TerminationMetrics {
        /// Open exchanges that were ended because their credential was revoked, by what was revoked
        counter "exchanges_terminated_total" { reason } =>
            pub key("key"), pub secret("secret"), pub user("user"), pub org("org"), pub session("session");
    }
}

impl AuthMetrics {
    pub(super) fn register(r: &Registry) -> Self {
        let results = counter(r, "auth_total", "Credentials, by the result of their check", &["result"]);
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
