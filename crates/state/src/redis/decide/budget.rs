//! Budgets on Redis: the arguments of a decide call about one, and what has come back of it and was not told yet.
//!
//! What comes back is told as a total that only grows, under a name that is used for nothing else: a report whose reply
//! was lost can be repeated, and nothing comes back twice. Redis takes it into the period in which it was reserved.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, MutexGuard};

use crate::near_budgets::NearBudgets;
use crate::redis::packed::packed_number;
use crate::redis::record_codec::new_version;
use domain::budget::{Budget, BudgetStatus, BudgetSubject, BudgetTotal};
use domain::clock::Micros;
use domain::identity::OrgId;

/// Length of the packed argument: eight numbers and a name.
pub(super) const BUDGET_LENGTH: usize = 8 * 9;

/// The budget of a cached key.
#[derive(Debug)]
pub(super) struct KeyBudget {
    pub(super) budget: Budget,
    /// Shared by all cached keys of the subject.
    pub(super) counter: Arc<BudgetCounter>,
}

/// Counter of a subject, as this gateway knows it.
#[derive(Debug)]
pub(super) struct BudgetCounter {
    subject: BudgetSubject,
    /// Units that have come back; not told Redis yet, as far as is known.
    untold: Mutex<Untold>,
    /// Start of the last period in which it was found nearly spent.
    announced: AtomicU64,
}

/// Units that came back, and by which responses exceeded their reservations, as totals under a name, of one period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untold {
    name: [u8; 8],
    start: Micros,
    returned: u64,
    exceeded: u64,
    /// The two totals that Redis has confirmed.
    told: (u64, u64),
}

/// The part of a decide call about a budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct BudgetCall {
    budget: Budget,
    /// Time by the clock of Redis, as far as this gateway knows it.
    now: Micros,
    untold: Option<Untold>,
}

impl BudgetCounter {
    pub(super) fn new(subject: BudgetSubject) -> Self {
        Self { subject, untold: Mutex::default(), announced: AtomicU64::new(0) }
    }

    /// Adds what has come back into a period. Returns whether it is the first that is to be told.
    pub(super) fn add(&self, start: Micros, returned: u64, exceeded: u64) -> bool {
        let mut untold = self.state();
        let is_first = !untold.is_pending();
        if is_first || untold.start != start {
            // Units that were not told of a period before are lost with it: that period is over.
            if untold.start > start && !is_first {
                return false;
            }
            // Without randomness there is no name to tell it under: it stays spent.
            let Some(name) = new_version().ok().and_then(|name| name.as_bytes().first_chunk().copied()) else {
                return false;
            };
            *untold = Untold { name, start, ..Untold::default() };
        }
        untold.returned += returned;
        untold.exceeded += exceeded;
        is_first
    }

    /// Units that are to be told Redis, if there are any.
    pub(super) fn untold(&self) -> Option<Untold> {
        Some(*self.state()).filter(Untold::is_pending)
    }

    /// Start of the period, units that came back into it, and units by which responses exceeded their reservations, of
    /// which Redis has confirmed neither.
    pub(super) fn unconfirmed(&self) -> Option<(Micros, u64, u64)> {
        self.untold().map(|untold| (untold.start, untold.returned - untold.told.0, untold.exceeded - untold.told.1))
    }

    /// Units that came back to the subject by this gateway, under the present name.
    pub(super) fn returned(&self, start: Micros) -> BudgetTotal {
        BudgetTotal { subject: self.subject, start, units: self.state().returned }
    }

    /// The total of the subject that a decision has left, for the journal.
    pub(super) fn total(&self, status: BudgetStatus) -> BudgetTotal {
        BudgetTotal { subject: self.subject, start: status.start, units: status.used }
    }

    /// Hands the budget over to be announced, if this status of a key of the organization says that it is nearly spent.
    pub(super) fn notice(&self, near: &NearBudgets, org: OrgId, status: BudgetStatus) {
        near.notice(&self.announced, self.subject, org, status);
    }

    fn mark_told(&self, told: Untold) {
        let mut untold = self.state();
        if untold.name == told.name {
            let (returned, exceeded) = untold.told;
            untold.told = (returned.max(told.returned), exceeded.max(told.exceeded));
        }
    }

    /// A panic under this lock leaves nothing half changed: its holders only assign.
    fn state(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock()
    }
}

impl Untold {
    fn is_pending(&self) -> bool {
        (self.returned, self.exceeded) != self.told
    }
}

impl BudgetCall {
    /// The part of a call about this key, at a time by the clock of Redis.
    pub(super) fn new(key: &KeyBudget, now: Micros) -> Self {
        Self { budget: key.budget, now, untold: key.counter.untold() }
    }

    /// Returns whether something is told that has come back.
    pub(super) fn tells(&self) -> bool {
        self.untold.is_some()
    }

    /// The argument: whose record has the counter (the number of its key), units, those that the request
    /// reserves, the period, and what is told.
    pub(super) fn encode(&self, counter: &BudgetCounter, reserve: u32) -> [u8; BUDGET_LENGTH] {
        let Untold { name, start, returned, exceeded, .. } = self.untold.unwrap_or_default();
        let span = self.budget.per.around(self.now);
        let place = match counter.subject {
            BudgetSubject::Key(_) => 1,
            BudgetSubject::Org(_) => 2,
            BudgetSubject::User(_) => 3,
        };
        let (units, reserve) = (self.budget.units, u64::from(reserve));
        let numbers = [place, units, reserve, span.start.0, span.end.0, returned, exceeded, start.0];
        let mut packed = [0; BUDGET_LENGTH];
        let (fields, _) = packed.as_chunks_mut::<8>();
        for (field, value) in fields.iter_mut().zip(numbers.map(packed_number).into_iter().chain([name])) {
            *field = value;
        }
        packed
    }

    /// Redis has answered the call.
    pub(super) fn answered(&self, counter: &BudgetCounter) {
        self.untold.into_iter().for_each(|told| counter.mark_told(told));
    }

    /// The status that a reply means: units that are spent, and the start of the period.
    pub(super) fn status(&self, [used, start]: [u64; 2]) -> BudgetStatus {
        let start = Micros(start);
        let end = self.budget.per.around(start).end;
        BudgetStatus { units: self.budget.units, used, start, end }
    }
}
