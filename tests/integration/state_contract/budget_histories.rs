//! Random histories of a budget, on both variants: requests that reserve and settle late, gateways that die, clocks
//! that differ and are set back, days that end. In each day, the requests that have ended and those that are open cost
//! the units at most; and the status has no less spent than that, and no more than what deaths left besides.
//!
//! - On Redis three gateways share the budget. What comes back is told with several requests at once, so that Redis
//!   gets it more than once.
//! - The embedded state is left as by a crash, and the lines of its journal are replayed twice, in any order.

use std::collections::BTreeMap;
use std::path::Path;

use domain::budget::{BudgetTotal, Cost, Spender};
use domain::clock::Micros;
use domain::refusal::Refusal;
use futures_util::future::join_all;
use state::{Change, DecideRequest, Decision, Reservation, State};
use tempfile::TempDir;

use super::cases_budgets::{defaults, five_at_once, sold, used};
use super::embedded::{as_embedded, crashed};
use super::fixture::{HeldKey, refused};
use super::runtime::{block_on, enter};
use super::{embedded, redis};
use crate::support::Random;
use crate::support::decide::decide_request;
use crate::support::redis::Redis;

/// Histories of a run; `KEYGATE_HISTORIES` is another number.
const HISTORIES: u64 = 20;
const STEPS: usize = 200;
const UNITS: u64 = 50;
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;

/// Storage of the gateways.
enum Storage {
    /// Lines of the journal: totals that were reserved, and that came back.
    File(TempDir, [Vec<BudgetTotal>; 2]),
    Server(Box<Redis>),
}

struct Gateway {
    state: State,
    /// Microseconds by which its clock is ahead.
    skew: i64,
    /// Open requests: what each reserved, and what it will have cost.
    open: Vec<(Reservation, u64)>,
    /// Units that came back in each day, and may not have been told.
    untold: BTreeMap<Micros, u64>,
}

/// The truth about one day.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    ended: u64,
    open: u64,
    /// Left by deaths.
    kept: u64,
}

struct History {
    random: Random,
    storage: Storage,
    gateways: Vec<Gateway>,
    key: HeldKey,
    now: Micros,
    days: BTreeMap<Micros, Tally>,
    exhausted: usize,
}

#[test]
fn budget_holds_in_all_histories_of_an_embedded_state() {
    run(|| {
        let (state, dir) = embedded::opened();
        (vec![state], Storage::File(dir, Default::default()))
    });
}

#[test]
fn budget_holds_in_all_histories_of_three_gateways_on_redis() {
    run(|| {
        let (first, server) = redis::on_a_server();
        (vec![first, redis::gateway_on(&server), redis::gateway_on(&server)], Storage::Server(Box::new(server)))
    });
}

#[test]
fn five_at_once_over_two_gateways_are_three() {
    let (_entered, (first, server)) = (enter(), redis::on_a_server());
    let second = redis::gateway_on(&server);
    block_on(five_at_once(&[&first, &second]));
}

fn run(open: impl Fn() -> (Vec<State>, Storage)) {
    let _entered = enter();
    let histories = std::env::var("KEYGATE_HISTORIES").map_or(HISTORIES, |histories| histories.parse().unwrap());
    let mut exhausted = 0;
    for seed in 0..histories {
        let (states, storage) = open();
        exhausted += block_on(history(seed, states, storage));
    }
    assert!(exhausted > 0, "no history has spent a budget");
}

/// One history. Returns how many requests found the budget spent.
async fn history(seed: u64, states: Vec<State>, storage: Storage) -> usize {
    let mut random = Random::new(seed);
    let (fixture, key, now) = sold(&states[0], UNITS, Spender::Org).await;
    states[0].change(Change::limit_org(fixture.org, Some(1_000_000))).await.unwrap();
    let gateway = |state: State| {
        state.set_defaults(defaults(UNITS, Spender::Org));
        let skew = random.below(5).cast_signed() * SECOND - 2 * SECOND;
        Gateway { state, skew, open: Vec::new(), untold: BTreeMap::new() }
    };
    let gateways = states.into_iter().map(gateway).collect();
    let mut history = History { random, storage, gateways, key, now, days: BTreeMap::new(), exhausted: 0 };
    for step in 0..STEPS {
        let named = format!("seed {seed}, step {step}");
        let pauses = [0, 0, 0, SECOND, SECOND, 2 * SECOND, -3 * SECOND, HOUR, 11 * HOUR];
        history.now = Micros(history.now.0.strict_add_signed(pauses[history.random.index(pauses.len())]));
        let gateway = history.random.index(history.gateways.len());
        match history.random.below(20) {
            0..8 => history.request(gateway, 1, &named).await,
            8..10 => history.request(gateway, 3, &named).await,
            10..19 => history.settle(gateway),
            _ => history.kill(gateway),
        }
    }
    history.end(&format!("seed {seed}")).await;
    history.exhausted
}

impl History {
    /// So many requests at once.
    async fn request(&mut self, number: usize, count: usize, named: &str) {
        let requests: Vec<u32> = (0..count).map(|_| 1 + u32::try_from(self.random.below(12)).unwrap()).collect();
        let gateway = &mut self.gateways[number];
        let now = Micros(self.now.0.strict_add_signed(gateway.skew));
        let decide = |at_most: &u32| {
            let request = DecideRequest { cost: Cost::at_most(*at_most), ..decide_request(&self.key.digest, now) };
            gateway.state.decide(request)
        };
        let decisions = join_all(requests.iter().map(decide)).await;
        for (at_most, decision) in requests.into_iter().zip(decisions) {
            let decision = decision.unwrap();
            let Decision::Admitted(admitted) = decision else {
                assert_eq!(refused(&decision), Refusal::QuotaExhausted, "{named}");
                self.exhausted += 1;
                continue;
            };
            let reservation = admitted.permit.into_reservation().unwrap();
            let day = self.days.entry(reservation.start()).or_default();
            day.open += u64::from(at_most);
            assert!(day.ended + day.open <= UNITS, "{named}: {day:?}");
            if let Storage::File(_, [reserved, _]) = &mut self.storage {
                reserved.push(reservation.total);
            }
            gateway.open.push((reservation, self.random.below(u64::from(at_most) + 1)));
        }
        // Each of these decisions has told it.
        gateway.untold.clear();
    }

    /// A request ends, perhaps one of a day before.
    fn settle(&mut self, number: usize) {
        let gateway = &mut self.gateways[number];
        if gateway.open.is_empty() {
            return;
        }
        let (reservation, actual) = gateway.open.swap_remove(self.random.index(gateway.open.len()));
        let (start, units) = (reservation.start(), reservation.units);
        let day = self.days.entry(start).or_default();
        (day.open, day.ended) = (day.open - units, day.ended + actual);
        let returned = reservation.settle(actual);
        match &mut self.storage {
            Storage::File(_, [_, lines]) => lines.push(returned),
            Storage::Server(_) => *gateway.untold.entry(start).or_default() += units - actual,
        }
    }

    /// A gateway dies, and another one takes its place.
    fn kill(&mut self, number: usize) {
        let gateway = &mut self.gateways[number];
        for (reservation, actual) in gateway.open.drain(..) {
            let day = self.days.entry(reservation.start()).or_default();
            let units = reservation.units;
            *day = Tally { ended: day.ended + actual, open: day.open - units, kept: day.kept + units - actual };
        }
        for (start, units) in std::mem::take(&mut gateway.untold) {
            self.days.entry(start).or_default().kept += units;
        }
        gateway.state = match &mut self.storage {
            Storage::Server(server) => redis::gateway_on(server),
            Storage::File(dir, lines) => {
                *dir = crashed(dir.path());
                replayed(dir.path(), lines, &mut self.random)
            }
        };
        gateway.state.set_defaults(defaults(UNITS, Spender::Org));
    }

    /// All requests end, and all is told.
    async fn end(&mut self, named: &str) {
        for number in 0..self.gateways.len() {
            while !self.gateways[number].open.is_empty() {
                self.settle(number);
            }
        }
        // The status tells what came back, also of the gateways before the last one.
        let mut spent = 0;
        for gateway in &self.gateways {
            spent = used(&gateway.state, &self.key, self.now).await;
        }
        let status = self.gateways[0].state.rate_limit_status(self.key.id, self.now).await.unwrap().unwrap();
        let day = self.days.get(&status.budget.unwrap().start).copied().unwrap_or_default();
        assert!((day.ended..=day.ended + day.kept).contains(&spent), "{named}: used {spent}, {day:?}");
    }
}

/// Opens the files that a crash has left, and replays the journal: each line twice, in any order.
fn replayed(dir: &Path, lines: &[Vec<BudgetTotal>; 2], random: &mut Random) -> State {
    let state = embedded::open(dir);
    let [reserved, returned] = lines.clone().map(|lines| {
        let mut twice = [lines.clone(), lines].concat();
        twice.sort_by_cached_key(|_| random.number());
        twice
    });
    as_embedded(&state).replay_budgets(reserved, returned);
    state
}
