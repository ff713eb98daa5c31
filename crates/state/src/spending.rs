//! Spending of a subject: pure arithmetic over (spending, budget, now).
//!
//! # Guarantee
//!
//! In each period, the costs of the requests that have ended and the reservations of those that are open are at most
//! the units of the budget: a request is admitted only if its whole reservation fits, and only what was reserved comes
//! back, into the same period. The one excess is a response that costs more than its request reserved.
//!
//! - Both totals only grow within a period. So a total that is told twice, late or in another order counts once: the
//!   larger one is the later one.
//! - A later period begins with nothing spent. An earlier one never comes back: a clock that was set back finds the
//!   period that it had left, with what was spent in it.
//! - A correction begins a new stretch of the same period, at a whole second: what comes back of requests of before
//!   goes nowhere, as with an earlier period.

use domain::budget::{Budget, BudgetStatus};
use domain::clock::Micros;

/// Second, in microseconds: a stretch begins with one.
const SECOND: u64 = 1_000_000;

/// Correction of what a subject has spent in the present period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpendingChange {
    /// Begins a new stretch of the period, at this second, with nothing spent.
    Reset(Micros),
    /// Begins a new stretch, at this second, with what is spent: from then on nothing comes back of the requests of
    /// before, so that their records have the units that stay.
    Split(Micros),
    /// Adds units to the stretch that began at `start`, once; takes them away where they are below zero.
    Add {
        /// Start of the stretch.
        start: Micros,
        /// The units.
        units: i64,
    },
}

/// Totals of a subject in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// Start of the period, or of the stretch of it that a correction began.
    pub start: Micros,
    /// Units that requests have reserved, and those by which responses exceeded their reservations.
    pub reserved: u64,
    /// Units of these that came back.
    pub returned: u64,
    /// True when the stretch was corrected by what the records of before it say.
    pub recounted: bool,
}

impl Spending {
    /// Units that are spent or reserved.
    pub fn used(self) -> u64 {
        self.reserved.saturating_sub(self.returned)
    }

    /// The spending in the period of a budget that a time is in; in a later one, if it has begun already.
    #[must_use]
    pub fn at(self, budget: Budget, now: Micros) -> Self {
        let start = budget.per.around(now).start;
        if start > self.start { Self { start, ..Self::default() } } else { self }
    }

    /// The spending after a request at `now` has reserved its cost.
    ///
    /// # Errors
    /// The status, when the budget has less left. Nothing is reserved then.
    pub fn try_reserve(self, budget: Budget, cost: u32, now: Micros) -> Result<Self, BudgetStatus> {
        let current = self.at(budget, now);
        if current.used().saturating_add(cost.into()) > budget.units {
            return Err(current.status(budget));
        }
        Ok(Self { reserved: current.reserved + u64::from(cost), ..current })
    }

    /// The spending after a request that reserved `reserved` units in the period from `start` has cost `actual`.
    #[must_use]
    pub fn settle(self, start: Micros, reserved: u64, actual: u64) -> Self {
        if start != self.start {
            return self;
        }
        Self {
            reserved: self.reserved.saturating_add(actual.saturating_sub(reserved)),
            returned: self.returned.saturating_add(reserved.saturating_sub(actual)),
            ..self
        }
    }

    /// The start of a new stretch: this second, or the one after that of the present stretch.
    pub fn next_stretch(self, budget: Budget, now: Micros) -> Micros {
        Micros((now.0 - now.0 % SECOND).max(self.at(budget, now).start.0.saturating_add(SECOND)))
    }

    /// The spending after a correction at `now`; none when the stretch that it is about is over, or a new one would
    /// not begin after it and before the period ends.
    #[must_use]
    pub fn corrected(self, budget: Budget, change: SpendingChange, now: Micros) -> Option<Self> {
        let current = self.at(budget, now);
        let (start, reserved) = match change {
            SpendingChange::Add { start, units } => {
                let amount = units.unsigned_abs();
                let recounted = Self { recounted: true, ..current };
                return (start == current.start && !current.recounted).then(|| match units {
                    0.. => Self { reserved: current.reserved.saturating_add(amount), ..recounted },
                    _ => Self { returned: current.returned.saturating_add(amount).min(current.reserved), ..recounted },
                });
            }
            SpendingChange::Reset(start) => (start, 0),
            SpendingChange::Split(start) => (start, current.used()),
        };
        let is_later = start > current.start && start < budget.per.around(current.start).end;
        is_later.then_some(Self { start, reserved, ..Self::default() })
    }

    /// The spending after an import of a counter: the one that began later, and of the same start the one that says
    /// more. None when it stays as it is.
    pub fn imported(self, start: Micros, units: u64) -> Option<Self> {
        if start == self.start {
            return (units > self.used()).then(|| Self { reserved: units.saturating_add(self.returned), ..self });
        }
        (start > self.start).then(|| Self { start, reserved: units, ..Self::default() })
    }

    /// The later of two records of the same subject.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        if self.start == other.start {
            let (reserved, returned) = (self.reserved.max(other.reserved), self.returned.max(other.returned));
            return Self { start: self.start, reserved, returned, recounted: self.recounted || other.recounted };
        }
        if self.start > other.start { self } else { other }
    }

    /// The status of the period in which it began.
    pub fn status(self, budget: Budget) -> BudgetStatus {
        let end = budget.per.around(self.start).end;
        BudgetStatus { units: budget.units, used: self.used(), start: self.start, end }
    }
}

#[cfg(test)]
mod tests {
    use domain::budget::{Period, Spender};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 24 * 3600 * 1_000_000;
    const BUDGET: Budget = Budget { units: 50, per: Period::Day, of: Spender::Org };

    #[derive(Clone, Debug)]
    enum Step {
        /// A request that reserves so much, at a time that differs by so much from the one before.
        Reserve(u32, i64),
        /// The oldest open request ends, with this part of its reservation in per cent.
        Settle(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let shift = prop_oneof![8 => 0..1000_i64, 2 => 0..(2 * DAY).cast_signed(), 1 => -(DAY.cast_signed())..0];
        vec(
            prop_oneof![
                3 => (1..20_u32, shift).prop_map(|(cost, shift)| Step::Reserve(cost, shift)),
                2 => (0..=100_u64).prop_map(Step::Settle),
            ],
            0..200,
        )
    }

    proptest! {
        #[test]
        fn ended_and_open_requests_of_a_period_cost_at_most_its_units(steps in steps()) {
            let mut spending = Spending::default();
            let (mut now, mut open) = (Micros(1000 * DAY), std::collections::VecDeque::new());
            let mut cost_of: std::collections::BTreeMap<Micros, u64> = std::collections::BTreeMap::new();
            for step in steps {
                match step {
                    Step::Reserve(cost, shift) => {
                        now = Micros(now.0.strict_add_signed(shift));
                        if let Ok(reserved) = spending.try_reserve(BUDGET, cost, now) {
                            spending = reserved;
                            open.push_back((spending.start, u64::from(cost)));
                            *cost_of.entry(spending.start).or_default() += u64::from(cost);
                        }
                    }
                    Step::Settle(part) => {
                        let Some((start, reserved)) = open.pop_front() else { continue };
                        let actual = reserved * part / 100;
                        spending = spending.settle(start, reserved, actual);
                        *cost_of.entry(start).or_default() -= reserved - actual;
                    }
                }
                prop_assert!(cost_of.values().all(|cost| *cost <= BUDGET.units), "{cost_of:?}");
                let current = cost_of.get(&spending.start).copied().unwrap_or(0);
                prop_assert_eq!(spending.used(), current, "exact, and never too low");
            }
        }

        #[test]
        fn records_that_are_told_in_any_order_are_the_last_one(steps in steps(), seed in any::<u64>()) {
            let mut spending = Spending::default();
            let mut told = vec![spending];
            let mut now = Micros(1000 * DAY);
            for step in steps {
                match step {
                    Step::Reserve(cost, shift) => {
                        now = Micros(now.0.strict_add_signed(shift));
                        spending = spending.try_reserve(BUDGET, cost, now).unwrap_or(spending);
                    }
                    Step::Settle(part) => spending = spending.settle(spending.start, 1, u64::from(part > 50)),
                }
                told.push(spending);
            }
            let mut shuffled = told.clone();
            shuffled.sort_by_key(|one| (one.reserved ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ one.start.0);
            shuffled.extend(told);
            let merged = shuffled.into_iter().fold(Spending::default(), Spending::merge);
            prop_assert_eq!(merged, spending);
        }
    }

    #[test]
    fn response_beyond_its_reservation_is_charged_as_it_is() {
        let now = Micros(1000 * DAY);
        let spending = Spending::default().try_reserve(BUDGET, 40, now).unwrap().settle(now, 40, 60);
        assert_eq!(spending.used(), 60);
        let status = spending.try_reserve(BUDGET, 1, now).unwrap_err();
        assert_eq!((status.used, status.remaining(), status.end), (60, 0, Micros(1001 * DAY)));
        assert!(spending.try_reserve(BUDGET, 50, Micros(1001 * DAY)).is_ok());
    }

    #[test]
    fn correction_begins_a_new_stretch_that_no_earlier_request_gives_back_to() {
        let now = Micros(1000 * DAY + 1_500_000);
        let spent = Spending::default().try_reserve(BUDGET, 40, now).unwrap();
        let begin = |spent: Spending, change: fn(Micros) -> SpendingChange, now| {
            spent.corrected(BUDGET, change(spent.next_stretch(BUDGET, now)), now)
        };
        let reset = begin(spent, SpendingChange::Reset, now).unwrap();
        assert_eq!((reset.start, reset.used()), (Micros(1000 * DAY + 1_000_000), 0));
        assert_eq!(reset.settle(spent.start, 40, 0), reset, "units of before the reset");
        assert_eq!(reset.status(BUDGET).end, Micros(1001 * DAY));
        assert_eq!(reset.merge(spent), reset);
        let split = begin(spent, SpendingChange::Split, now).unwrap();
        assert_eq!((split.used(), split.settle(spent.start, 40, 0)), (40, split));
        let added = |units| split.corrected(BUDGET, SpendingChange::Add { start: split.start, units }, now);
        assert_eq!([-15, 5, -90].map(|units| added(units).unwrap().used()), [25, 45, 0], "never below zero");
        let twice = SpendingChange::Add { start: split.start, units: 5 };
        assert_eq!(added(5).unwrap().corrected(BUDGET, twice, now), None, "added already");
        let stale = SpendingChange::Add { start: spent.start, units: 5 };
        assert_eq!(split.corrected(BUDGET, stale, now), None, "another stretch has begun");
        // Each begins later than the one before, and none in the next period.
        assert_eq!(reset.corrected(BUDGET, SpendingChange::Reset(reset.start), now), None, "done already");
        let again = begin(reset, SpendingChange::Reset, now).unwrap();
        assert_eq!(again.start.0, reset.start.0 + SECOND);
        let end = Micros(1001 * DAY - 1);
        let last = begin(again, SpendingChange::Reset, end).unwrap();
        assert_eq!(begin(last, SpendingChange::Reset, end), None);
        assert_eq!(last.at(BUDGET, Micros(1001 * DAY)).used(), 0);
    }
}
