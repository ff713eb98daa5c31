//! Budgets of the fleet: whose requests spend one, what they cost, and how their reservations are settled.

use domain::budget::{Budget, Cost, Period, Spender};
use domain::plan_name::PlanName;
use state::{LimitPlan, LimitPlans, Reservation};

use super::directory;
use super::world::World;

/// Units that are reserved where the response says the cost.
const AT_MOST: u32 = 10;
/// Of so many such responses, one costs more than its reservation.
const ONE_EXCEEDS_OF: u64 = 50;

/// Counter of a budget.
pub struct Counter {
    /// The record that has it, the one of what was reported, and its organization.
    pub record: Vec<u8>,
    pub reported: Vec<u8>,
    pub org: usize,
    pub budget: Budget,
    /// Its shard has lost all data.
    pub is_lost: bool,
}

/// End of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its outcome is in the journal.
    Recorded,
    /// Its use could not be recorded: it was not forwarded.
    Unrecorded,
    /// Its process has died.
    Killed,
}

/// Whose budget the keys of a user spend: a third of the users have a plan with one, of every kind.
pub fn spender(user: usize, orgs: usize) -> Option<Spender> {
    [Spender::Key, Spender::User, Spender::Org].get((user / orgs + user % orgs + 7) % 9).copied()
}

/// A budget that is spent within seconds, in a period that ends in the first half of a run.
pub fn budget(of: Spender) -> Budget {
    let (units, per) = match of {
        Spender::Key => (100, Period::Day),
        Spender::User => (300, Period::Day),
        Spender::Org => (1500, Period::Month),
    };
    Budget { units, per, of }
}

/// The plan of keys with a budget and one of the four quotas.
pub fn plan_name(quota: usize, of: Spender) -> PlanName {
    format!("{}-{}", of.as_str(), quota % 4).parse().unwrap()
}

/// All plans.
pub fn plans() -> LimitPlans {
    let plan = |quota, of| {
        let budget = Some(budget(of));
        (plan_name(quota, of), LimitPlan { quota: directory::quota(quota), concurrent: None, budget })
    };
    let of_spender = |of| (0..4).map(move |quota| plan(quota, of));
    LimitPlans::new([Spender::Key, Spender::User, Spender::Org].into_iter().flat_map(of_spender).collect(), None)
}

/// Cost of each request of a key: of every fifth three tokens and units, else one token; where there is a budget, the
/// response says the units.
pub fn cost(key: usize, has_budget: bool) -> Cost {
    match (key.is_multiple_of(5), has_budget) {
        (true, _) => Cost::fixed(3),
        (false, true) => Cost::at_most(AT_MOST),
        (false, false) => Cost::ONE,
    }
}

/// Units that a request has cost in the end.
fn actual_cost(request: u64, cost: Cost) -> u64 {
    if cost.units() == cost.tokens() {
        cost.units().into()
    } else if request.is_multiple_of(ONE_EXCEEDS_OF) {
        u64::from(AT_MOST) + 5
    } else {
        request % u64::from(AT_MOST + 1)
    }
}

impl World {
    /// An exchange has ended: what it did not cost comes back, unless its process has died.
    pub fn settle(&mut self, id: u64, key: usize, reservation: Reservation, end: End) {
        let (start, reserved) = (reservation.start().0, reservation.units);
        let actual = match end {
            End::Recorded => actual_cost(id, self.directory.keys[key].cost),
            End::Unrecorded => 0,
            // Its client got no more of it, and the upstream's word for an excess was not heard.
            End::Killed => actual_cost(id, self.directory.keys[key].cost).min(reserved),
        };
        self.checks.budget.end(self.directory.keys[key].budget, start, (reserved, actual), end == End::Killed);
        if end != End::Killed {
            reservation.settle(actual);
        }
    }
}
