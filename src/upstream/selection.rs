//! Selection of the endpoint of a request.

use std::sync::atomic::Ordering;

use super::balance::{Random, choose_of_two};
use super::endpoint::{EndpointState, Endpoints};
use super::outlier::Phase;
use crate::clock::{self, Micros};

impl Endpoints {
    /// Chooses an endpoint that was not `tried`. One that is set aside comes last. None when all were tried.
    pub(super) fn choose(&self, random: &Random, tried: &[usize]) -> Option<usize> {
        // Most upstreams have one endpoint, and nothing to choose.
        if self.list.len() == 1 {
            return tried.is_empty().then_some(0);
        }
        let now = clock::steady();
        let share = |index: usize| if tried.contains(&index) { 0.0 } else { self.share(&self.list[index], now) };
        let cost = |index: usize| self.list[index].cost(now);
        choose_of_two(self.list.len(), random, share, cost).or_else(|| self.last_resort(tried, now))
    }

    /// Share of an endpoint in the requests, from 0 to 1.
    fn share(&self, endpoint: &EndpointState, now: Micros) -> f32 {
        match endpoint.ejection.phase() {
            Phase::In => 1.0,
            Phase::Returning => endpoint.ejection.slow_start_share(now),
            Phase::Ejected if self.detector.is_panic() => 1.0,
            Phase::Ejected | Phase::Unreachable => 0.0,
        }
    }

    /// The best of the endpoints that are set aside: with one that cannot be connected to, nothing is lost but time.
    fn last_resort(&self, tried: &[usize], now: Micros) -> Option<usize> {
        let rank =
            |index: &usize| (self.list[*index].ejection.phase() == Phase::Unreachable, self.list[*index].cost(now));
        let untried = (0..self.list.len()).filter(|index| !tried.contains(index));
        untried.min_by(|a, b| {
            let ((a, a_cost), (b, b_cost)) = (rank(a), rank(b));
            a.cmp(&b).then(a_cost.total_cmp(&b_cost))
        })
    }
}

impl EndpointState {
    fn cost(&self, now: Micros) -> f32 {
        let share = match self.ejection.phase() {
            Phase::Returning => self.ejection.slow_start_share(now),
            _ => 1.0,
        };
        self.load.cost(self.in_flight.load(Ordering::Relaxed), share, now)
    }
}
