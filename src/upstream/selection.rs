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

    /// Chooses an endpoint for a request that has failed at those that were `tried`: one that takes requests. None when there
    /// is no other.
    pub(super) fn choose_for_retry(&self, balancer: &Balancer, headers: &HeaderMap, tried: &[usize]) -> Option<usize> {
        let now = clock::steady();
        let chosen = balancer.turns.without_turn(|| self.choose(balancer, headers, tried))?;
        // The choice may be one of those that are set aside, as it is for a request that has no other.
        (self.share(chosen, now) > 0.0).then_some(chosen)
    }

    /// Returns whether a request that has failed at an endpoint, and before at those that were `tried`, has an endpoint to go
    /// to. `allows_same`: it may be the same one, unless that has asked for no requests.
    pub(super) fn has_target(&self, failed: usize, tried: &[usize], allows_same: bool) -> bool {
        let now = clock::steady();
        let is_other = |index: &usize| *index != failed && !tried.contains(index);
        let has_other = (0..self.list.len()).filter(is_other).any(|index| self.share(index, now) > 0.0);
        has_other || allows_same && !self.list[failed].pause.lasts(now)
    }

    /// Share of an endpoint in the requests, from 0 to 1.
    fn share(&self, index: usize, now: Micros) -> f32 {
        self.shares[index] * self.part_in_traffic(&self.list[index], now)
    }

    /// Part of its share that an endpoint takes, from 0 to 1.
    fn part_in_traffic(&self, endpoint: &EndpointState, now: Micros) -> f32 {
        let is_panic = self.detector.is_panic();
        match endpoint.ejection.phase() {
            _ if endpoint.pause.lasts(now) => 0.0,
            _ if endpoint.ejection.fails_checks() && !is_panic => 0.0,
            Phase::In => 1.0,
            Phase::Returning => endpoint.ejection.slow_start_share(now),
            Phase::Ejected if is_panic => 1.0,
            Phase::Ejected | Phase::Unreachable => 0.0,
        }
    }

    /// The best of the endpoints that are set aside: with one that cannot be connected to, nothing is lost but time.
    fn last_resort(&self, tried: &[usize], now: Micros) -> Option<usize> {
        let rank = |index: &usize| {
            let endpoint = &self.list[*index];
            let is_unreachable = endpoint.ejection.phase() == Phase::Unreachable;
            ((is_unreachable, endpoint.pause.lasts(now)), self.cost(*index, now))
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::upstream::failure::Failure;
    use crate::upstream::health::{CheckReport, HealthKind, HealthSettings};
    use crate::upstream::settings::tests::settings;
    use std::time::Duration;

    const POLICIES: [BalancePolicy; 3] =
        [BalancePolicy::LeastCost, BalancePolicy::RoundRobin, BalancePolicy::Hash(crate::upstream::HashBy::User)];

    fn endpoints(count: usize, policy: BalancePolicy) -> Endpoints {
        let mut settings = settings(count);
        settings.balance.policy = policy;
        Endpoints::new(&settings, &Metrics::new()).unwrap()
    }

    /// Numbers of choices among many, by different users.
    fn chosen(endpoints: &Endpoints, tried: &[usize]) -> Vec<usize> {
        let (balancer, mut counts) = (Balancer::default(), vec![0; endpoints.list.len()]);
        for user in 0..1000 {
            let mut head = HeaderMap::new();
            head.insert("x-user-id", user.into());
            if let Some(index) = endpoints.choose(&balancer, &head, tried) {
                counts[index] += 1;
            }
        }
        counts
    }

    fn eject(endpoints: &Endpoints, index: usize) {
        (0..5).for_each(|_| endpoints.fail(&endpoints.list[index], Failure::ServerError, clock::steady()));
    }

    #[test]
    fn endpoint_that_was_tried_is_not_chosen_again() {
        for policy in POLICIES {
            let endpoints = endpoints(3, policy);
            assert_eq!(chosen(&endpoints, &[0, 2]), [0, 1000, 0], "{policy:?}");
            assert_eq!(chosen(&endpoints, &[0, 1, 2]), [0; 3], "{policy:?}: all were tried");
            assert!(chosen(&endpoints, &[]).iter().all(|count| *count > 200), "{policy:?}");
        }
    }

    #[test]
    fn endpoints_that_are_set_aside_come_last_and_one_that_cannot_be_reached_behind_the_others() {
        for policy in POLICIES {
            let endpoints = endpoints(4, policy);
            endpoints.fail(&endpoints.list[0], Failure::Connect, clock::steady());
            eject(&endpoints, 1);
            assert_eq!(chosen(&endpoints, &[])[..2], [0, 0], "{policy:?}");
            assert_eq!(chosen(&endpoints, &[2, 3]), [0, 1000, 0, 0], "{policy:?}");
            assert_eq!(chosen(&endpoints, &[1, 2, 3]), [1000, 0, 0, 0], "{policy:?}");
        }
    }

    #[test]
    fn endpoint_that_has_asked_for_a_pause_comes_behind_one_that_is_ejected() {
        for policy in POLICIES {
            let endpoints = endpoints(2, policy);
            endpoints.list[0].pause.begin(Duration::from_secs(30), clock::steady());
            assert_eq!(chosen(&endpoints, &[]), [0, 1000], "{policy:?}");
            eject(&endpoints, 1);
            assert_eq!(chosen(&endpoints, &[]), [0, 1000], "{policy:?}: it has not asked for a pause");
            assert_eq!(chosen(&endpoints, &[1]), [1000, 0], "{policy:?}");
        }
    }

    #[test]
    fn ejected_endpoints_take_requests_in_a_panic() {
        for policy in POLICIES {
            let endpoints = endpoints(2, policy);
            eject(&endpoints, 0);
            eject(&endpoints, 1);
            assert_eq!(chosen(&endpoints, &[]), [0, 1000], "{policy:?}: at most half are ejected");
            endpoints.tick(clock::steady());
            assert!(chosen(&endpoints, &[]).iter().all(|count| *count > 200), "{policy:?}");
        }
    }

    #[test]
    fn endpoint_whose_checks_fail_takes_requests_in_a_panic_only() {
        let (kind, second) = (HealthKind::Grpc { service: String::new() }, Duration::from_secs(1));
        let health = HealthSettings { kind, interval: second, timeout: second, healthy: 1, unhealthy: 1 };
        for policy in POLICIES {
            let endpoints = endpoints(2, policy);
            let check = |index: usize, ok: bool| {
                let report = CheckReport { time: Micros(0), ok, detail: String::new() };
                endpoints.end_check(&endpoints.list[index], report, &health);
                endpoints.tick(clock::steady());
            };
            check(0, false);
            assert_eq!(chosen(&endpoints, &[]), [0, 1000], "{policy:?}");
            check(1, false);
            assert!(chosen(&endpoints, &[]).iter().all(|count| *count > 200), "{policy:?}");
            check(1, true);
            assert_eq!(chosen(&endpoints, &[]), [0, 1000], "{policy:?}");
        }
    }

    #[test]
    fn endpoint_that_returns_takes_a_tenth_of_its_share() {
        for policy in POLICIES {
            let endpoints = endpoints(2, policy);
            eject(&endpoints, 0);
            // At the end of the ejection, which no chance makes longer than six seconds.
            endpoints.tick(clock::steady().after(Duration::from_secs(7)));
            // One of eleven: 91, with a standard deviation of 9.
            let first = chosen(&endpoints, &[])[0];
            assert!((45..140).contains(&first), "{policy:?}: {first}");
        }
    }
}
