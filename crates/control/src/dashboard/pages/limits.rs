//! The limits of a key, and their usage.

use super::numbers::{format_count, format_counted};
use super::timestamp::Timestamp;
use crate::management::PlanInForce;
use domain::budget::Spender;
use state::LimitLevel;

/// The effective limits for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// Requests that flow into the bucket during one `per`.
    pub requests: u64,
    /// That period, such as `hour` or `2h`.
    pub per: String,
    /// Requests that a full bucket holds.
    pub burst: u64,
    /// True if no window of one `per` admits more than `requests`.
    pub is_strict: bool,
    /// True if the limits are the key's own, and not the configured ones.
    pub is_own: bool,
    /// The plan that gives the limits; `None` when none does.
    pub plan: Option<PlanCell>,
    /// Requests that the organization may have in flight.
    pub concurrent: u64,
}

/// The plan that gives the limits of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanCell {
    /// Its name.
    pub name: String,
    /// The level that has it: `this key`, `its owner`, `the organization`, `all others`.
    pub of: &'static str,
    /// True if the configuration does not have it.
    pub is_missing: bool,
}

/// Usage of the limits of a key and its organization.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitUsage {
    /// Requests left in the bucket.
    pub bucket: Gauge,
    /// Time at which the next request flows into the bucket; `None` when one is left.
    pub next_request: Option<Timestamp>,
    /// Time at which the bucket is full; `None` when it is.
    pub full: Option<Timestamp>,
    /// Requests that the organization has in flight.
    pub in_flight: Gauge,
    /// The budget, if there is one.
    pub budget: Option<BudgetCell>,
}

/// A budget in its period.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetCell {
    /// Units that are spent or reserved.
    pub spent: Gauge,
    /// The level whose requests spend it.
    pub of: Spender,
    /// The plan that gives it; `None` of one that the level has itself.
    pub plan: Option<PlanCell>,
    /// End of the period.
    pub ends: Timestamp,
}

impl PlanCell {
    pub(in crate::dashboard) fn new(plan: &PlanInForce) -> Self {
        let of = match plan.of {
            LimitLevel::Own | LimitLevel::Key => "this key",
            LimitLevel::User => "its owner",
            LimitLevel::Org => "the organization",
            LimitLevel::Plan | LimitLevel::Default => "all others",
        };
        Self { name: plan.name.to_string(), of, is_missing: plan.missing }
    }
}

impl BudgetCell {
    /// The key, user or organization whose requests spend it.
    pub fn subject(&self) -> &'static str {
        match self.of {
            Spender::Key => "this key",
            Spender::User => "the owner",
            Spender::Org => "the organization",
        }
    }
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    part: u64,
    whole: u64,
}

impl KeyLimits {
    /// The rate: `1,000 requests per hour`, or, if it is strict, `1,000 requests in any hour`.
    pub fn rate(&self) -> String {
        let per = if self.is_strict { "in any" } else { "per" };
        format!("{} {per} {}", format_counted(self.requests, "request"), self.per)
    }

    /// The requests that a full bucket holds: `1,000`.
    pub fn burst(&self) -> String {
        format_count(self.burst)
    }

    /// The requests that the organization may have in flight: `100`.
    pub fn in_flight(&self) -> String {
        format_count(self.concurrent)
    }
}

impl Gauge {
    /// `part` of `whole`.
    pub fn new(part: u64, whole: u64) -> Self {
        Self { part, whole }
    }

    /// The part, in digits.
    pub fn part(&self) -> String {
        format_count(self.part)
    }

    /// The whole, in digits.
    pub fn whole(&self) -> String {
        format_count(self.whole)
    }

    /// The rest of the whole, in digits.
    pub fn rest(&self) -> String {
        format_count(self.whole.saturating_sub(self.part))
    }

    /// The part in percent, for drawing: 0 to 100.
    pub fn percent(&self) -> u64 {
        match self.whole {
            0 => 0,
            whole => u64::try_from(u128::from(self.part) * 100 / u128::from(whole)).unwrap_or(u64::MAX).min(100),
        }
    }

    /// Returns `true` if the part is zero.
    pub fn is_empty(&self) -> bool {
        self.part == 0
    }

    /// Returns `true` if the part is the whole, or more.
    pub fn is_full(&self) -> bool {
        self.part >= self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_percent_is_0_to_100() {
        for (part, whole, percent) in
            [(0, 0, 0), (5, 0, 0), (0, 9, 0), (873, 1_000, 87), (9, 9, 100), (u64::MAX, 3, 100)]
        {
            assert_eq!(Gauge::new(part, whole).percent(), percent, "{part} of {whole}");
        }
        assert!(Gauge::new(5, 5).is_full() && !Gauge::new(4, 5).is_full() && Gauge::new(0, 5).is_empty());
    }
}
