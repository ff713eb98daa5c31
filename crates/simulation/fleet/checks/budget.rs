//! Bound of the budgets.
//!
//! docs/contract.md, Limits: "In each day or month of UTC, the requests of the subject of a budget cost at most its
//! `units` together: the costs of those that have ended, and the reservations of those that are open, over any number
//! of gateways and kills. The one excess is a response that says a cost above `at_most`." and "A kill leaves `used` too
//! high by what was open then at most, and never too low. With state on Redis, so does an answer that was lost." So
//!
//! - at each admission, what has ended and what is open cost the units, and by what responses exceeded them, at most;
//! - when all has ended and was reported, `used` is no less than what the requests have cost. In a period that is not
//!   over, it is no more than that, what was open or not reported when processes died, and what answers reserved that
//!   never came. Not where a shard has lost its data.
//!
//! "A failover that loses the last writes of Redis loses what was spent by them", and what they gave back.

use std::collections::BTreeMap;

use domain::clock::Micros;
use redis::Value;
use redis_client::CommandError;
use rustc_hash::FxHashMap;

use super::Worst;
use crate::budgets::Counter;
use crate::database::Bytes;
use crate::event::{Call, Process};
use crate::lua::{Reply, Script};
use crate::shard::number_at;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Time after the end of a partition within which a gateway has reported what came back.
const REPORTED_WITHIN: u64 = 10_000_000;

/// Ending of the names under which what came back is reported.
const RETURNED: &[u8] = b"r";

/// Units of a subject in one period.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Costs of the requests that have ended.
    ended: u64,
    /// Reservations of those that are open.
    open: u64,
    /// By how much responses exceeded their reservations.
    exceeded: u64,
    /// Spent, and forgotten by a failover or with a process.
    forgotten: u64,
    /// Never to come back, as far as the bound allows.
    kept: u64,
    /// Reserved by scripts whose answers have not reached their gateways.
    unanswered: u64,
}

/// Subject and start of a period, as the server has it.
type Place = (usize, u64);

pub struct BudgetCheck {
    pub counters: Vec<Counter>,
    by_record: FxHashMap<Vec<u8>, usize>,
    tallies: BTreeMap<Place, Tally>,
    pub spent: Worst,
    pub kept: Worst,
}

impl BudgetCheck {
    pub fn new(counters: Vec<Counter>) -> Self {
        let by_record = (0..).zip(&counters).map(|(number, counter)| (counter.record.clone(), number)).collect();
        let tallies = BTreeMap::new();
        Self { counters, by_record, tallies, spent: Worst::default(), kept: Worst::default() }
    }

    fn tally(&mut self, place: Place) -> &mut Tally {
        self.tallies.entry(place).or_default()
    }

    /// A request has ended that reserved the first of these units and cost the second.
    pub fn end(&mut self, counter: Option<usize>, start: u64, (reserved, actual): (u64, u64), is_killed: bool) {
        let tally = self.tally((counter.expect("it has reserved units"), start));
        tally.open -= reserved;
        tally.ended += actual;
        tally.exceeded += actual.saturating_sub(reserved);
        if is_killed {
            tally.kept += reserved - actual;
        }
    }

    /// These units came back, or were beyond a reservation, and their gateway never tells.
    pub fn lose_report(&mut self, place: Place, returned: u64, exceeded: u64) {
        let tally = self.tally(place);
        tally.kept += returned;
        tally.forgotten += exceeded;
    }
}

/// A total that gateways have reported, as the server has it.
fn total_of(field: Option<&Bytes>) -> u64 {
    field.map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap())
}

/// Start of the period and units of a counter.
fn spent(field: Option<&Bytes>) -> Option<(u64, u64)> {
    field.map(|packed| (number_at(packed, 0) as u64, number_at(packed, 1) as u64))
}

impl World {
    /// A script has run: what it reserved is unanswered.
    pub fn note_reservation(&mut self, call: &Call, reply: &Reply) {
        let (Call::Script { script: Script::Decide, keys, arguments }, Reply::Packed(packed)) = (call, reply) else {
            return;
        };
        let Some(argument) = arguments.get(3).filter(|_| number_at(packed, 0) == 0.0) else { return };
        let (place, units) = (number_at(argument, 0) as usize, number_at(argument, 2) as u64);
        let start = number_at(packed, packed.len() / 8 - 1) as u64;
        let counter = self.checks.budget.by_record[&*keys[place - 1]];
        self.checks.budget.tally((counter, start)).unanswered += units;
    }

    /// A gateway has the answer to a call.
    pub fn note_answered(&mut self, key: usize, reply: Result<&Value, &CommandError>) {
        let Some(counter) = self.directory.keys[key].budget else { return };
        if let Ok(Value::BulkString(packed)) = reply
            && number_at(packed, 0) == 0.0
        {
            let start = number_at(packed, packed.len() / 8 - 1) as u64;
            self.checks.budget.tally((counter, start)).unanswered -= u64::from(self.directory.keys[key].cost.units());
        }
    }

    /// Checks the admission of a request.
    pub fn check_budget(&mut self, process: Process, id: u64) {
        let request = &self.requests[&id];
        let Some((units, start)) = request.reservation().map(|reservation| (reservation.units, reservation.start().0))
        else {
            return;
        };
        let key = request.key;
        let counter = self.directory.keys[key].budget.expect("it has reserved units");
        let of = self.checks.budget.counters[counter].budget.units;
        let tally = self.checks.budget.tally((counter, start));
        tally.open += units;
        let Tally { ended, open, exceeded, forgotten, .. } = *tally;
        let (cost, allowed) = (ended + open, of + exceeded + forgotten);
        let text =
            || format!("key {key}: {ended} spent and {open} reserved of {of}, {exceeded} over, {forgotten} lost");
        self.checks.budget.spent.note(cost as f64 / allowed as f64, self.now, text);
        if cost > allowed {
            let shard = self.directory.shard_of_key(key);
            self.break_bound("budget", text(), Offender { gateway: process.gateway, key, org: NONE, shard });
        }
    }

    /// A primary dies: what its replica lacks was spent for nothing, or stays spent.
    pub fn count_lost_units(&mut self, shard: usize) {
        let server = &self.shards[shard];
        let budget = &mut self.checks.budget;
        for number in 0..budget.counters.len() {
            let Counter { record, reported, org, .. } = &budget.counters[number];
            if self.directory.orgs[*org].shard != shard {
                continue;
            }
            // A total that is forgotten may be reported once more.
            let returned = server.fields(reported).filter(|(name, _)| name.len() == 9 && name.ends_with(RETURNED));
            let twice: u64 = returned
                .map(|(name, total)| total_of(Some(total)) - total_of(server.replica_field(reported, name)))
                .sum();
            let Some((start, units)) = spent(server.field(record, b"spent")) else { continue };
            let (its_start, its_units) = spent(server.replica_field(record, b"spent")).unwrap_or_default();
            let its_units = if its_start == start { its_units } else { 0 };
            let tally = budget.tally((number, start));
            tally.forgotten += units.saturating_sub(its_units) + twice;
            tally.kept += its_units.saturating_sub(units);
            if its_start != start {
                // A period that gateways take for over: they report nothing of it any more.
                budget.tally((number, its_start)).kept += u64::from(u32::MAX);
            }
        }
    }

    /// A shard loses its data.
    pub fn note_lost_counters(&mut self, shard: usize) {
        let orgs = &self.directory.orgs;
        let counters = self.checks.budget.counters.iter_mut().filter(|counter| orgs[counter.org].shard == shard);
        counters.for_each(|counter| counter.is_lost = true);
    }

    /// A process ends: what it has not reported stays spent.
    pub fn lose_untold_units(&mut self, gateway: usize) {
        for (place, returned, exceeded) in self.untold_units(gateway).into_values() {
            self.checks.budget.lose_report(place, returned, exceeded);
        }
    }

    /// Units that a gateway has not reported, of each subject.
    fn untold_units(&self, gateway: usize) -> BTreeMap<usize, (Place, u64, u64)> {
        let of_key = |key: &crate::directory::Key| {
            let (counter, cached) = (key.budget?, self.gateways[gateway].decisions.cached(&key.digest)?);
            let (start, returned, exceeded) = cached.untold_units()?;
            Some((counter, ((counter, start.0), returned, exceeded)))
        };
        self.directory.keys.iter().filter_map(of_key).collect()
    }

    /// Checks what the counters have when all requests have ended, and all gateways have reported.
    pub fn check_budgets_at_end(&mut self) {
        for gateway in 0..self.gateways.len() {
            let untold = self.untold_units(gateway);
            for (place, returned, exceeded) in untold.into_values() {
                let shard = self.directory.orgs[self.checks.budget.counters[place.0].org].shard;
                if self.gateways[gateway].cut_until[shard] + REPORTED_WITHIN > self.now {
                    self.checks.budget.lose_report(place, returned, exceeded);
                }
            }
        }
        for number in 0..self.checks.budget.counters.len() {
            let Counter { record, org, budget, is_lost, .. } = &self.checks.budget.counters[number];
            // Reports about keys that a shard has lost are forgotten.
            if *is_lost {
                continue;
            }
            let (org, shard) = (*org, self.directory.orgs[*org].shard);
            let period = budget.per.around(Micros(self.shards[shard].clock(self.now)));
            let Some((start, used)) = spent(self.shards[shard].last_field(record, b"spent")) else { continue };
            let Tally { ended, open, exceeded, forgotten, kept, unanswered } =
                *self.checks.budget.tally((number, start));
            let (cost, may_be_kept) = (ended + open, kept + unanswered);
            // Reports about a period that is over count for nothing.
            let is_over = start != period.start.0;
            let extra = if is_over { 0 } else { used.saturating_sub(cost) };
            let uncounted = if is_over { forgotten + exceeded } else { forgotten };
            let text = || format!("org {org}: used {used}, of {cost} spent, {may_be_kept} kept, {uncounted} lost");
            self.checks.budget.kept.note(extra as f64 / may_be_kept.max(1) as f64, self.now, text);
            if extra > may_be_kept || used + uncounted < cost {
                self.break_bound("budget", text(), Offender { gateway: NONE, key: NONE, org, shard });
            }
        }
    }
}
