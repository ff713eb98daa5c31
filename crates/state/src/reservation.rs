//! Reservation of an admitted request in a budget, which its end settles.

use std::sync::Arc;

use crate::embedded::BudgetMeter;
use crate::redis::RedisReservation;
use domain::budget::BudgetTotal;
use domain::clock::Micros;

/// Units that a request has reserved in the budget of its caller. Dropped without being settled, it stays spent.
#[derive(Debug)]
pub struct Reservation {
    /// Units that the subject had reserved in the period, this request included: the journal records it.
    pub total: BudgetTotal,
    /// Units of this request.
    pub units: u64,
    counter: Counter,
}

#[derive(Debug)]
enum Counter {
    Embedded(Arc<BudgetMeter>),
    Redis(RedisReservation),
}

impl Reservation {
    pub(crate) fn embedded(total: BudgetTotal, units: u64, meter: Arc<BudgetMeter>) -> Self {
        Self { total, units, counter: Counter::Embedded(meter) }
    }

    pub(crate) fn redis(total: BudgetTotal, units: u64, counter: RedisReservation) -> Self {
        Self { total, units, counter: Counter::Redis(counter) }
    }

    /// The request has cost `actual` units: what it reserved beyond that comes back, into the same period only; what it
    /// cost beyond its reservation is charged. Returns what has come back to the subject by now, as far as this process
    /// knows.
    pub fn settle(self, actual: u64) -> BudgetTotal {
        match self.counter {
            Counter::Embedded(meter) => meter.settle(self.total.start, self.units, actual),
            Counter::Redis(counter) => counter.settle(self.total.start, self.units, actual),
        }
    }

    /// Start of the period in which it was reserved.
    pub fn start(&self) -> Micros {
        self.total.start
    }
}
