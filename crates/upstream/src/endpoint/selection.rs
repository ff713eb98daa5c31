//! Selection of the endpoint of a request.
//!
//! | rank | endpoint | gets a request |
//! |---|---|---|
//! | 1 | in traffic | by its share |
//! | 2 | in traffic, and paused | by its share, while no endpoint of rank 1 is left |
//! | 3 | ejected, or its active checks fail | as the last try of a request |
//! | 4 | unreachable | the same |
//!
//! - The ranks go before the policy: a healthy endpoint is never passed over for one that is out, whatever else is
//!   known of it. `Retry-After` is a preference among healthy endpoints and excludes none.
//! - In a panic ([`super::outlier`]) all but the unreachable are in traffic, and pauses count for retries only.
//! - A retry goes to an endpoint of rank 1 only.

use std::sync::atomic::Ordering;

use http::HeaderMap;

use super::balance::{BalancePolicy, Candidate, Random, Turns, choose_by_hash, choose_of_two, hash_of};
use super::endpoint_set::{EndpointSet, TriedEndpoints};
use super::endpoints::{EndpointState, Endpoints};
use super::outlier::Phase;
use domain::clock::{self, Micros};

/// Chance and turns of one worker.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    pub(crate) random: Random,
    turns: Turns,
}

impl Endpoints {
    /// Returns whether an endpoint is chosen by fields that say who the caller is.
    pub(crate) fn reads_identity(&self) -> bool {
        matches!(self.policy, BalancePolicy::Hash(_))
    }

    /// Chooses an endpoint that was not tried, by its rank. None when all were tried, or all but some that are set
    /// aside and one of those was: each attempt to connect to one costs its time, and most likely fails. `headers` are
    /// those of the request.
    pub(crate) fn choose(&self, balancer: &Balancer, headers: &HeaderMap, tried: &mut TriedEndpoints) -> Option<usize> {
        // Most upstreams have one endpoint, and nothing to choose.
        if self.list.len() == 1 {
            return tried.set.is_empty().then_some(0);
        }
        let now = clock::steady();
        let is_panic = self.detector.is_panic();
        let is_untried = |index: usize| !tried.set.contains(index);
        let is_preferred = |index: usize| is_untried(index) && (is_panic || !self.is_paused(index, now));
        let in_traffic = self
            .choose_among(balancer, headers, now, is_preferred)
            .or_else(|| self.choose_among(balancer, headers, now, is_untried));
        if in_traffic.is_some() || tried.has_set_aside {
            return in_traffic;
        }
        tried.has_set_aside = true;
        self.last_resort(&tried.set, now)
    }

    /// Chooses one of the usable endpoints in traffic.
    pub(crate) fn choose_in_traffic(
        &self,
        balancer: &Balancer,
        headers: &HeaderMap,
        is_usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let now = clock::steady();
        let avoids_paused = self.avoids_paused(now);
        self.choose_among(balancer, headers, now, |index| {
            is_usable(index) && !(avoids_paused && self.is_paused(index, now))
        })
    }

    /// Endpoints in traffic.
    pub(crate) fn in_traffic(&self) -> impl Iterator<Item = usize> {
        let now = clock::steady();
        let avoids_paused = self.avoids_paused(now);
        let is_avoided = move |index: usize| avoids_paused && self.is_paused(index, now);
        (0..self.list.len()).filter(move |index| self.share(*index, now) > 0.0 && !is_avoided(*index))
    }

    /// Chooses an endpoint for a request that has failed at those that were `tried`: one that takes requests, and has
    /// not asked for a pause. None when there is no other.
    pub(crate) fn choose_for_retry(
        &self,
        balancer: &Balancer,
        headers: &HeaderMap,
        tried: &EndpointSet,
    ) -> Option<usize> {
        let now = clock::steady();
        let is_usable = |index: usize| !tried.contains(index) && !self.is_paused(index, now);
        balancer.turns.without_turn(|| self.choose_among(balancer, headers, now, is_usable))
    }

    /// Returns whether a request that has failed at an endpoint, and before at those that were `tried`, has an endpoint
    /// to go to. `allows_same`: it may be the same one, unless that has asked for a pause.
    pub(crate) fn has_target(&self, failed: usize, tried: &EndpointSet, allows_same: bool) -> bool {
        let now = clock::steady();
        let is_other = |index: &usize| *index != failed && !tried.contains(*index) && !self.is_paused(*index, now);
        let has_other = (0..self.list.len()).filter(is_other).any(|index| self.share(index, now) > 0.0);
        has_other || allows_same && !self.is_paused(failed, now)
    }

    /// Chooses one of the usable endpoints that take requests, by the policy.
    fn choose_among(
        &self,
        balancer: &Balancer,
        headers: &HeaderMap,
        now: Micros,
        is_usable: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let count = self.list.len();
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

    /// Returns whether the endpoint has asked for no requests.
    fn is_paused(&self, index: usize, now: Micros) -> bool {
        self.list[index].pause.lasts(now)
    }

    /// Returns whether requests avoid paused endpoints: there is another one in traffic.
    fn avoids_paused(&self, now: Micros) -> bool {
        let is_preferred = |index| self.share(index, now) > 0.0 && !self.is_paused(index, now);
        !self.detector.is_panic() && (0..self.list.len()).any(is_preferred)
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

    /// The best endpoint by its rank, of those that were not tried. At one that cannot be connected to, nothing is lost
    /// but time.
    fn last_resort(&self, tried: &EndpointSet, now: Micros) -> Option<usize> {
        let rank = |index: usize| {
            let ejection = &self.list[index].ejection;
            let is_unreachable = ejection.phase() == Phase::Unreachable;
            ((is_unreachable, ejection.is_out(), self.is_paused(index, now)), self.cost(index, now))
        };
        // Each rank is read once: another worker may change it meanwhile.
        let untried = (0..self.list.len()).filter(|index| !tried.contains(*index)).map(|index| (index, rank(index)));
        let best = untried.min_by(|(_, (a, a_cost)), (_, (b, b_cost))| a.cmp(b).then(a_cost.total_cmp(b_cost)));
        best.map(|(index, _)| index)
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
    use proptest::prelude::*;

    use super::*;
    use crate::endpoint::failure::Failure;
    use crate::endpoint::health::{CheckReport, every_second};
    use crate::settings::tests::settings;
    use platform::metrics::Metrics;
    use std::time::Duration;

    const POLICIES: [BalancePolicy; 3] =
        [BalancePolicy::LeastCost, BalancePolicy::RoundRobin, BalancePolicy::Hash(crate::HashBy::User)];

    fn endpoints(count: usize, policy: BalancePolicy) -> Endpoints {
        let mut settings = settings(count);
        settings.balance.policy = policy;
        Endpoints::new(&settings, &Metrics::new()).unwrap()
    }

    /// Endpoints of a request that was tried at these, of which none was set aside.
    fn tried(set: EndpointSet) -> TriedEndpoints {
        TriedEndpoints { set, has_set_aside: false }
    }

    /// Head of a request of this user.
    fn head(user: u64) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static("x-user-id"), user.into())])
    }

    /// Numbers of choices among many, by different users.
    fn chosen<const N: usize>(endpoints: &Endpoints, tried: [usize; N]) -> Vec<usize> {
        let balancer = Balancer::default();
        let mut counts = vec![0; endpoints.list.len()];
        for user in 0..1000 {
            if let Some(index) = endpoints.choose(&balancer, &head(user), &mut self::tried(tried.into())) {
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
            assert_eq!(chosen(&endpoints, [0, 2]), [0, 1000, 0], "{policy:?}");
            assert_eq!(chosen(&endpoints, [0, 1, 2]), [0; 3], "{policy:?}: all were tried");
            assert!(chosen(&endpoints, []).iter().all(|count| *count > 200), "{policy:?}");
        }
    }

    #[test]
    fn endpoints_that_are_set_aside_come_last_and_one_that_cannot_be_reached_behind_the_others() {
        for policy in POLICIES {
            let endpoints = endpoints(4, policy);
            endpoints.fail(&endpoints.list[0], Failure::Connect, clock::steady());
            eject(&endpoints, 1);
            assert_eq!(chosen(&endpoints, [])[..2], [0, 0], "{policy:?}");
            assert_eq!(chosen(&endpoints, [2, 3]), [0, 1000, 0, 0], "{policy:?}");
            assert_eq!(chosen(&endpoints, [1, 2, 3]), [1000, 0, 0, 0], "{policy:?}");
        }
    }

    #[test]
    fn paused_endpoint_comes_behind_the_others_and_before_those_that_are_out() {
        for policy in POLICIES {
            let endpoints = endpoints(4, policy);
            endpoints.list[0].pause.begin(Duration::from_secs(30), clock::steady());
            assert_eq!(chosen(&endpoints, [])[0], 0, "{policy:?}");
            eject(&endpoints, 1);
            endpoints.fail(&endpoints.list[2], Failure::Connect, clock::steady());
            assert_eq!(chosen(&endpoints, []), [0, 0, 0, 1000], "{policy:?}");
            assert_eq!(chosen(&endpoints, [3]), [1000, 0, 0, 0], "{policy:?}: it is healthy");
            assert_eq!(chosen(&endpoints, [0, 3]), [0, 1000, 0, 0], "{policy:?}");
            assert_eq!(endpoints.in_traffic().collect::<Vec<_>>(), [3], "{policy:?}");
            endpoints.list[3].pause.begin(Duration::from_secs(30), clock::steady());
            assert!(chosen(&endpoints, [])[..3] != [0; 3] && chosen(&endpoints, [])[1..3] == [0, 0], "{policy:?}");
            assert_eq!(endpoints.in_traffic().collect::<Vec<_>>(), [0, 3], "{policy:?}");
            assert_eq!(endpoints.choose_for_retry(&Balancer::default(), &head(1), &EndpointSet::default()), None);
        }
    }

    #[test]
    fn one_endpoint_that_is_set_aside_is_tried_and_no_second_one() {
        for policy in POLICIES {
            let endpoints = endpoints(4, policy);
            (0..3).for_each(|index| endpoints.fail(&endpoints.list[index], Failure::Connect, clock::steady()));
            let balancer = Balancer::default();
            let mut tried = TriedEndpoints::default();
            let mut chosen = Vec::new();
            while let Some(index) = endpoints.choose(&balancer, &head(1), &mut tried) {
                chosen.push(index);
                tried.set.insert(index);
            }
            assert_eq!((chosen.len(), chosen[0]), (2, 3), "{policy:?}: {chosen:?}");
        }
    }

    #[test]
    fn ejected_endpoints_take_requests_in_a_panic() {
        for policy in POLICIES {
            let endpoints = endpoints(2, policy);
            eject(&endpoints, 0);
            eject(&endpoints, 1);
            assert_eq!(chosen(&endpoints, []), [0, 1000], "{policy:?}: at most half are ejected");
            endpoints.tick(clock::steady());
            assert!(chosen(&endpoints, []).iter().all(|count| *count > 200), "{policy:?}");
        }
    }

    #[test]
    fn endpoint_whose_checks_fail_takes_requests_in_a_panic_only() {
        let health = every_second();
        for policy in POLICIES {
            let endpoints = endpoints(2, policy);
            let check = |index: usize, ok: bool| {
                let report = CheckReport { time: Micros(0), ok, detail: String::new() };
                endpoints.end_check(&endpoints.list[index], report, &health);
                endpoints.tick(clock::steady());
            };
            check(0, false);
            assert_eq!(chosen(&endpoints, []), [0, 1000], "{policy:?}");
            check(1, false);
            assert!(chosen(&endpoints, []).iter().all(|count| *count > 200), "{policy:?}");
            check(1, true);
            assert_eq!(chosen(&endpoints, []), [0, 1000], "{policy:?}");
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
            let first = chosen(&endpoints, [])[0];
            assert!((45..140).contains(&first), "{policy:?}: {first}");
        }
    }

    /// Signal of an endpoint, by its place.
    #[derive(Clone, Copy, Debug)]
    enum Signal {
        Fails(usize, Failure),
        Succeeds(usize),
        Connects(usize),
        /// It answers 503 with this `Retry-After`, in seconds.
        AsksForPause(usize, u64),
        Checked(usize, bool),
        /// Time passes, in milliseconds; ejections and panics are looked at.
        Waits(u64),
        /// A probe ends.
        Probed(usize, bool),
    }

    fn signals(count: usize) -> impl Strategy<Value = Vec<Signal>> {
        let kind =
            prop::sample::select(vec![Failure::ServerError, Failure::GatewayError, Failure::Connect, Failure::Timeout]);
        let signal = prop_oneof![
            8 => (0..count, kind).prop_map(|(index, failure)| Signal::Fails(index, failure)),
            1 => (0..count).prop_map(Signal::Succeeds),
            1 => (0..count).prop_map(Signal::Connects),
            8 => (0..count, 1..40_u64).prop_map(|(index, seconds)| Signal::AsksForPause(index, seconds)),
            2 => (0..count, any::<bool>()).prop_map(|(index, ok)| Signal::Checked(index, ok)),
            3 => (1..20_000_u64).prop_map(Signal::Waits),
            1 => (0..count, any::<bool>()).prop_map(|(index, connected)| Signal::Probed(index, connected)),
        ];
        prop::collection::vec(signal, 1..120)
    }

    fn apply(endpoints: &Endpoints, signal: Signal, now: &mut Micros) {
        let list = &endpoints.list;
        match signal {
            Signal::Fails(index, failure) => endpoints.fail(&list[index], failure, *now),
            Signal::Succeeds(index) => {
                list[index].ejection.succeed();
                list[index].pause.interrupt();
            }
            Signal::Connects(index) => endpoints.note_connected(&list[index]),
            Signal::AsksForPause(index, seconds) => {
                endpoints.ask_for_pause(&list[index], Duration::from_secs(seconds), *now);
            }
            Signal::Checked(index, ok) => {
                let health = every_second();
                endpoints.end_check(&list[index], CheckReport { time: *now, ok, detail: String::new() }, &health);
            }
            Signal::Waits(milliseconds) => {
                *now = now.after(Duration::from_millis(milliseconds));
                endpoints.tick(*now);
            }
            Signal::Probed(index, connected) => endpoints.end_probe(&list[index], connected, *now),
        }
    }

    /// Rank of an endpoint: unreachable, out, paused.
    fn rank(endpoints: &Endpoints, index: usize, now: Micros) -> (bool, bool, bool) {
        let endpoint = &endpoints.list[index];
        let is_unreachable = endpoint.ejection.phase() == Phase::Unreachable;
        (is_unreachable, endpoint.ejection.is_out(), endpoint.pause.lasts(now))
    }

    /// Checks the choices of a request that was tried at these endpoints.
    fn check_choices(endpoints: &Endpoints, tried: &EndpointSet, user: u64) -> Result<(), TestCaseError> {
        // The choice reads the steady clock, which stands nearly still meanwhile.
        let now = clock::steady();
        let balancer = Balancer::default();
        let is_panic = endpoints.detector.is_panic();
        let rank = |index| rank(endpoints, index, now);
        let untried = || (0..endpoints.list.len()).filter(|index| !tried.contains(*index));
        let best = untried().map(rank).min();
        let chosen = endpoints.choose(&balancer, &head(user), &mut self::tried(tried.clone()));
        prop_assert_eq!(chosen.map(|index| tried.contains(index)), best.map(|_| false));
        if let (Some(chosen), Some(best)) = (chosen, best) {
            // In a panic the ejected ones have their shares, beside the healthy ones.
            let ignored = |(unreachable, ..): (bool, bool, bool)| (unreachable, false, false);
            let heeded = |rank| if is_panic { ignored(rank) } else { rank };
            prop_assert_eq!(
                heeded(rank(chosen)),
                heeded(best),
                "{} of {:?}",
                chosen,
                untried().map(rank).collect::<Vec<_>>()
            );
        }
        if let Some(retried) = endpoints.choose_for_retry(&balancer, &head(user), tried) {
            let (unreachable, out, paused) = rank(retried);
            prop_assert!(!unreachable && !paused && (is_panic || !out), "{}", retried);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn healthy_endpoint_is_never_passed_over_for_one_that_is_out(
            (count, signals) in (2..8_usize).prop_flat_map(|count| (Just(count), signals(count))),
            policy in prop::sample::select(POLICIES.to_vec()),
            (tried, user) in (any::<u8>(), any::<u64>()),
        ) {
            let endpoints = endpoints(count, policy);
            let mut now = clock::steady();
            for signal in signals {
                apply(&endpoints, signal, &mut now);
                let members = (0..count).filter(|index| tried >> index & 1 == 1);
                let tried = members.fold(EndpointSet::default(), |set, index| set.with(index));
                for tried in [EndpointSet::default(), tried] {
                    check_choices(&endpoints, &tried, user)?;
                }
                let paused = endpoints.list.iter().filter(|endpoint| endpoint.pause.lasts(now)).count();
                prop_assert!(paused <= count / 2, "{} of {} are paused", paused, count);
            }
        }
    }
}
