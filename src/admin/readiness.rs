//! Whether new requests should be sent here, and if not, why.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

/// What must hold for a gateway to be ready; shared by the admin listener and whoever drains.
///
/// - Not ready from [`Readiness::drain`] on, for good.
/// - Checks must not block: they are run for every question.
#[derive(Default)]
pub struct Readiness {
    draining: AtomicBool,
    checks: Vec<(&'static str, Check)>,
}

/// Answers whether something works now.
type Check = Box<dyn Fn() -> bool + Send + Sync>;

/// The answer at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessReport {
    /// Whether requests should be sent here.
    pub ready: bool,
    /// What does not hold: names of checks, and `draining`.
    pub reasons: Vec<String>,
}

impl Readiness {
    /// Ready, unless draining.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ready only while this holds as well.
    #[must_use]
    pub fn with(mut self, name: &'static str, check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.checks.push((name, Box::new(check)));
        self
    }

    /// Not ready any more: the gateway is about to stop.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether it is ready now, and if not, why.
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
    fn says_what_does_not_hold() {
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
