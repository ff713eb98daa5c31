//! Readiness: tells load balancers whether to send new requests to this gateway, and why not.

use std::borrow::Cow;
use std::collections::BTreeMap;
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
    checks: Vec<Check>,
}

/// One check, a row of [`Readiness`].
struct Check {
    /// Its name in the reasons.
    name: &'static str,
    /// The gateway is not ready while it fails. Other checks tell of what requests do not need.
    is_required: bool,
    find_cause: Arc<dyn Fn() -> Option<Cause> + Send + Sync>,
}

/// Cause for which a check fails, in a few words. It is shown to all who reach the admin listener: no secrets.
pub type Cause = Cow<'static, str>;

/// Readiness at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessReport {
    /// `true` when requests should be sent to this gateway.
    pub ready: bool,
    /// The names of the checks that failed, and `draining`.
    pub reasons: Vec<String>,
    /// The cause of each failed check, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, String>,
}

impl Readiness {
    /// Ready until it drains, without checks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that must succeed as well: it finds no cause then.
    #[must_use]
    pub fn with(self, name: &'static str, find_cause: impl Fn() -> Option<Cause> + Send + Sync + 'static) -> Self {
        self.with_check(Check { name, is_required: true, find_cause: Arc::new(find_cause) })
    }

    /// Adds a check that is reported, and that a gateway is ready without: requests are served.
    #[must_use]
    pub fn with_warning(
        self,
        name: &'static str,
        find_cause: impl Fn() -> Option<Cause> + Send + Sync + 'static,
    ) -> Self {
        self.with_check(Check { name, is_required: false, find_cause: Arc::new(find_cause) })
    }

    fn with_check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// Ends the readiness: the gateway is about to stop.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Shows every required check in the metrics; `serving` passes until the gateway drains.
    pub fn show(&self, metrics: &Metrics) {
        for check in self.checks.iter().filter(|check| check.is_required) {
            let find_cause = Arc::clone(&check.find_cause);
            metrics.show_readiness(check.name, move || find_cause().is_none());
        }
        let draining = Arc::clone(&self.draining);
        metrics.show_readiness("serving", move || !draining.load(Ordering::Relaxed));
    }

    /// Runs the checks.
    pub fn report(&self) -> ReadinessReport {
        let mut report = ReadinessReport { ready: true, ..ReadinessReport::default() };
        for check in &self.checks {
            let Some(cause) = (check.find_cause)() else { continue };
            report.ready &= !check.is_required;
            report.reasons.push(check.name.to_owned());
            report.causes.insert(check.name.to_owned(), cause.into_owned());
        }
        if self.draining.load(Ordering::Relaxed) {
            report.ready = false;
            report.reasons.push("draining".to_owned());
        }
        report
    }
}

impl ReadinessReport {
    /// The reasons with their causes, for people.
    pub fn text(&self) -> String {
        let with_cause = |name: &String| match self.causes.get(name) {
            Some(cause) => format!("{name} ({cause})"),
            None => name.clone(),
        };
        self.reasons.iter().map(with_cause).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_names_the_checks_that_fail_with_their_causes() {
        let works = Arc::new(AtomicBool::new(true));
        let check = Arc::clone(&works);
        let find_cause = move || (!check.load(Ordering::Relaxed)).then_some("the disk is full".into());
        let readiness = Readiness::new().with("state", || None).with("audit", find_cause);
        assert!(readiness.report().ready);
        works.store(false, Ordering::Relaxed);
        let causes = BTreeMap::from([("audit".to_owned(), "the disk is full".to_owned())]);
        assert_eq!(readiness.report(), ReadinessReport { ready: false, reasons: vec!["audit".into()], causes });
        readiness.drain();
        assert_eq!(readiness.report().reasons, ["audit", "draining"]);
        assert_eq!(readiness.report().text(), "audit (the disk is full), draining");
    }

    #[test]
    fn warning_is_a_reason_that_a_gateway_is_ready_with() {
        let readiness = Readiness::new().with_warning("audit_sync", || Some("a sync has failed".into()));
        let report = readiness.report();
        assert!(report.ready);
        assert_eq!(report.reasons, ["audit_sync"]);
    }
}
