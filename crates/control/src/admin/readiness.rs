//! Readiness: tells load balancers whether to send new requests to this gateway, and why not.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use platform::metrics::Metrics;

/// Readiness checks of a gateway; shared by the admin listener and the shutdown.
///
/// - Not ready from [`Readiness::drain`] on, for good.
/// - Checks must not block: every request to `/ready` runs them.
#[derive(Default)]
pub struct Readiness {
    draining: Arc<AtomicBool>,
    checks: Vec<(&'static str, Check)>,
}

/// Readiness check: returns whether a part of the gateway works now.
type Check = Arc<dyn Fn() -> bool + Send + Sync>;

/// Readiness at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessReport {
    /// `true` when requests should be sent to this gateway.
    pub ready: bool,
    /// The names of the checks that failed, and `draining`.
    pub reasons: Vec<String>,
}

impl Readiness {
    /// Ready until it drains, without checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that must succeed as well.
    #[must_use]
    pub fn with(mut self, name: &'static str, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.checks.push((name, Arc::new(check)));
        self
    }

    /// Ends the readiness: the gateway is about to stop.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Shows every check in the metrics; `serving` passes until the gateway drains.
    pub fn show(&self, metrics: &Metrics) {
        for (name, check) in &self.checks {
            let check = Arc::clone(check);
            metrics.show_readiness(name, move || check());
        }
        let draining = Arc::clone(&self.draining);
        metrics.show_readiness("serving", move || !draining.load(Ordering::Relaxed));
    }

    /// Runs the checks.
    pub fn report(&self) -> ReadinessReport {
        let failed = self.checks.iter().filter(|(_, check)| !check()).map(|(name, _)| *name);
        let draining = self.draining.load(Ordering::Relaxed).then_some("draining");
        let reasons: Vec<String> = failed.chain(draining).map(str::to_owned).collect();
        ReadinessReport { ready: reasons.is_empty(), reasons }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn report_names_the_checks_that_fail() {
        let works = Arc::new(AtomicBool::new(true));
        let check = Arc::clone(&works);
        let readiness = Readiness::new().with("state", || true).with("audit", move || check.load(Ordering::Relaxed));
        assert!(readiness.report().ready);
        works.store(false, Ordering::Relaxed);
        assert_eq!(readiness.report(), ReadinessReport { ready: false, reasons: vec!["audit".into()] });
        readiness.drain();
        assert_eq!(readiness.report().reasons, ["audit", "draining"]);
    }
}
