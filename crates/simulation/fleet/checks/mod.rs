//! Checks of the promised bounds, and the worst case that each has seen.

pub mod absence;
pub mod audit;
pub mod bucket;
pub mod budget;
pub mod lost;
pub mod revocation;
pub mod slots;

use super::budgets::Counter;
use super::directory::Directory;
use super::trace::Offender;

/// The worst case of a bound.
#[derive(Clone, Debug, Default)]
pub struct Worst {
    /// Largest part of the bound that was used: 1 is the bound itself.
    pub part: f64,
    /// In words: how much, of how much, where.
    pub text: String,
    pub time: u64,
}

impl Worst {
    pub fn note(&mut self, part: f64, time: u64, text: impl FnOnce() -> String) {
        if part > self.part {
            *self = Self { part, text: text(), time };
        }
    }
}

/// A bound that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    pub bound: &'static str,
    pub text: String,
    pub time: u64,
    pub offender: Offender,
}

/// All checks.
pub struct Checks {
    pub bucket: bucket::BucketCheck,
    pub budget: budget::BudgetCheck,
    pub slots: slots::SlotsCheck,
    pub revocation: revocation::RevocationCheck,
    pub audit: audit::AuditCheck,
    /// The last refusal for a lost state after its restoration could be noticed.
    pub lost: Worst,
    /// The busiest second of a primary. It is shown, and breaks nothing: no machine is promised.
    pub capacity: Worst,
    pub violation: Option<Violation>,
}

impl Checks {
    pub fn new(directory: &Directory, counters: Vec<Counter>) -> Self {
        Self {
            bucket: bucket::BucketCheck::new(directory.keys.iter().map(|key| key.cost.tokens())),
            budget: budget::BudgetCheck::new(counters),
            slots: slots::SlotsCheck::new(directory),
            revocation: revocation::RevocationCheck::default(),
            audit: audit::AuditCheck::default(),
            lost: Worst::default(),
            capacity: Worst::default(),
            violation: None,
        }
    }

    pub fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    /// The bounds: name, promise, and the worst case.
    pub fn rows(&self) -> Vec<(&'static str, &'static str, &Worst)> {
        vec![
            ("bucket", "burst + rate * T, and uses lost, not reported or not repaid", &self.bucket.window),
            ("bucket", "of a gateway without Redis: its part of the inflow", &self.bucket.share),
            ("budget", "the units, what responses exceeded, what a failover lost", &self.budget.spent),
            ("budget", "`used` in the end: too high by what deaths and lost answers left", &self.budget.kept),
            ("slots", "the limit, and slots that the primary cannot know", &self.slots.of_orgs.online),
            ("slots", "without a primary: the limit, one, and later acquisitions", &self.slots.of_orgs.outage),
            ("key slots", "of a key: the limit, and slots that the primary cannot know", &self.slots.of_keys.online),
            ("key slots", "without a primary: the limit, one, and later acquisitions", &self.slots.of_keys.outage),
            ("revocation", "connected: none begins after the acknowledgement", &self.revocation.connected),
            ("revocation", "after a failover: 0.25 s from its notice", &self.revocation.failover),
            ("revocation", "cut off: max_staleness, 60 s", &self.revocation.cut_off),
            ("revocation", "open exchanges of a connected gateway: 1 s", &self.revocation.open),
            ("lost state", "no key is unknown; served from 1 s after a restoration", &self.lost),
            ("audit", "a lost machine takes along what is younger than the lag", &self.audit.lag),
            ("audit", "pause of a shipper: 15 s", &self.audit.pause),
            ("capacity", "scripts in the busiest second of a primary (computed)", &self.capacity),
        ]
    }
}
