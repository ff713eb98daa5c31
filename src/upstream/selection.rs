//! Selection of the endpoint of a request.

use std::sync::atomic::Ordering;

use http::HeaderMap;

use super::balance::{BalancePolicy, Candidate, Random, Turns, choose_by_hash, choose_of_two, hash_of};
use super::endpoint::{EndpointState, Endpoints};
use super::outlier::Phase;
use crate::clock::{self, Micros};

/// Chance and turns of one worker.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    random: Random,
    turns: Turns,
}

impl Endpoints {
    /// Chooses an endpoint that was not `tried`. One that is set aside comes last. None when all were tried.
    /// `headers` are those of the request.
    pub(super) fn choose(&self, balancer: &Balancer, headers: &HeaderMap, tried: &[usize]) -> Option<usize> {
        // Most upstreams have one endpoint, and nothing to choose.
        let count = self.list.len();
        if count == 1 {
            return tried.is_empty().then_some(0);
        }
        let chosen = self.choose_in_traffic(balancer, headers, |index| !tried.contains(&index));
        chosen.or_else(|| self.last_resort(tried, clock::steady()))
    }

    /// Chooses one of the usable endpoints that are not set aside.
    pub(super) fn choose_in_traffic(
        &self,
        balancer: &Balancer,
        headers: &HeaderMap,
        is_usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let (count, now) = (self.list.len(), clock::steady());
        let share = |index: usize| if is_usable(index) { self.share(index, now) } else { 0.0 };
        match self.policy {
            BalancePolicy::LeastCost => choose_of_two(count, &balancer.random, share, |index| self.cost(index, now)),
            BalancePolicy::RoundRobin => balancer.turns.choose(count, &balancer.random, share),
            BalancePolicy::Hash(by) => choose_by_hash(count, hash_of(headers, by), |index| {
                let endpoint = &self.list[index];
                let in_flight = endpoint.in_flight.load(Ordering::Relaxed);
                Candidate { id: endpoint.hash, share: share(index), in_flight }
            }),
        }
    }

    /// Endpoints that are not set aside.
    pub(super) fn in_traffic(&self) -> impl Iterator<Item = usize> {
        let now = clock::steady();
        (0..self.list.len()).filter(move |index| self.share(*index, now) > 0.0)
    }

    /// Share of an endpoint in the requests, from 0 to 1.
    fn share(&self, index: usize, now: Micros) -> f32 {
        self.shares[index] * self.part_in_traffic(&self.list[index], now)
    }

    /// Part of its share that an endpoint takes, from 0 to 1.
    fn part_in_traffic(&self, endpoint: &EndpointState, now: Micros) -> f32 {
        let is_panic = self.detector.is_panic();
        match endpoint.ejection.phase() {
            _ if endpoint.ejection.fails_checks() && !is_panic => 0.0,
            Phase::In => 1.0,
            Phase::Returning => endpoint.ejection.slow_start_share(now),
            Phase::Ejected if is_panic => 1.0,
            Phase::Ejected | Phase::Unreachable => 0.0,
        }
    }

    /// The best of the endpoints that are set aside: with one that cannot be connected to, nothing is lost but time.
    fn last_resort(&self, tried: &[usize], now: Micros) -> Option<usize> {
        let rank = |index: &usize| (self.list[*index].ejection.phase() == Phase::Unreachable, self.cost(*index, now));
        let untried = (0..self.list.len()).filter(|index| !tried.contains(index));
        untried.min_by(|a, b| {
            let ((a, a_cost), (b, b_cost)) = (rank(a), rank(b));
            a.cmp(&b).then(a_cost.total_cmp(&b_cost))
        })
    }

    /// Cost of one more request at an endpoint.
    fn cost(&self, index: usize, now: Micros) -> f32 {
        let endpoint = &self.list[index];
        let slow_start = match endpoint.ejection.phase() {
            Phase::Returning => endpoint.ejection.slow_start_share(now),
            _ => 1.0,
        };
        endpoint.load.cost(endpoint.in_flight.load(Ordering::Relaxed), self.shares[index] * slow_start, now)
    }
}
