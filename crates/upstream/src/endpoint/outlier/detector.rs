//! Decisions over all endpoints of an upstream.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::ejection::Ejection;
use super::settings::OutlierSettings;
use super::state::{Event, Jitter, Phase, Reason};
use crate::endpoint::failure::Failure;
use domain::clock::Micros;

/// Decisions over the endpoints of one upstream.
#[derive(Debug)]
pub(crate) struct Detector {
    settings: OutlierSettings,
    /// True while a worker decides. Shared with the detectors of earlier configurations, which may still be in use.
    deciding: Arc<AtomicBool>,
    /// True while an endpoint over its threshold stays in, because too many others are out.
    panic: AtomicBool,
}

/// Change of an endpoint's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) from: Phase,
    pub(crate) to: Phase,
    pub(crate) reason: Reason,
    /// Microseconds that the new phase lasts.
    pub(crate) micros: u64,
}

/// Permission to change states. One worker has it at a time.
pub(crate) struct Decision<'a>(&'a AtomicBool);

impl Drop for Decision<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl Detector {
    pub(crate) fn new(settings: OutlierSettings) -> Self {
        Self { settings, deciding: Arc::default(), panic: AtomicBool::new(false) }
    }

    /// Detector of a changed configuration, over endpoints that may be the same.
    #[must_use]
    pub(crate) fn changed(&self, settings: OutlierSettings) -> Self {
        let panic = AtomicBool::new(self.is_panic());
        Self { settings, deciding: Arc::clone(&self.deciding), panic }
    }

    /// Returns whether ejections say nothing any more, because too many endpoints fail.
    pub(crate) fn is_panic(&self) -> bool {
        self.panic.load(Relaxed)
    }

    /// Counts a failure, and sets the endpoint aside when a threshold is reached. Returns the change.
    pub(crate) fn fail<'a>(
        &self,
        endpoint: &Ejection,
        failure: Failure,
        all: impl Iterator<Item = &'a Ejection> + Clone,
        now: Micros,
        jitter: Jitter,
    ) -> Option<Change> {
        let streaks = endpoint.count_failure(failure);
        let reason = match endpoint.phase() {
            Phase::In => streaks.exceeded(&self.settings),
            Phase::Returning => Some(Reason::of(failure)).filter(|reason| self.settings.threshold(*reason) > 0),
            Phase::Ejected | Phase::Unreachable => None,
        }?;
        // Another worker decides: the next failure finds what it decided.
        let _decision = self.begin_decision()?;
        if !endpoint.phase().takes_requests() {
            return None;
        }
        if !Limit::of(all).allows(reason) {
            // The next sweep decides about a panic: it sees all endpoints.
            return None;
        }
        self.apply(endpoint, Event::Failed(reason), now, jitter)
    }

    /// Notes that a connection was made to the endpoint. Returns the change.
    pub(crate) fn connect(&self, endpoint: &Ejection, now: Micros) -> Option<Change> {
        endpoint.count_connection();
        if endpoint.phase() != Phase::Unreachable {
            return None;
        }
        let _decision = self.begin_decision()?;
        self.apply(endpoint, Event::Connected, now, Jitter::NONE)
    }

    /// Ends the phase of an endpoint when its time is over. Returns the change, and whether the
    /// endpoint is to be probed.
    pub(crate) fn tick(&self, endpoint: &Ejection, now: Micros) -> (Option<Change>, bool) {
        // When a worker decides, the next tick does it.
        let change = self.begin_decision().and_then(|_decision| self.apply(endpoint, Event::Tick, now, Jitter::NONE));
        (change, endpoint.take_probe(now))
    }

    /// Ends a probe that could connect, or not.
    pub(crate) fn end_probe(
        &self,
        endpoint: &Ejection,
        is_connected: bool,
        now: Micros,
        jitter: Jitter,
    ) -> Option<Change> {
        endpoint.end_probe();
        // A request may have connected meanwhile.
        if endpoint.phase() != Phase::Unreachable {
            return None;
        }
        let event = if is_connected { Event::Connected } else { Event::Failed(Reason::Unreachable) };
        let _decision = self.begin_decision()?;
        self.apply(endpoint, event, now, jitter)
    }

    /// Notes that the active checks of an endpoint fail from now on, or pass again. Returns the change of its phase.
    pub(crate) fn end_checks(&self, endpoint: &Ejection, fails: bool, now: Micros) -> Option<Change> {
        endpoint.set_failing(fails);
        if fails {
            return None;
        }
        let _decision = self.begin_decision()?;
        self.apply(endpoint, Event::Recovered, now, Jitter::NONE)
    }

    /// Finds out whether too many endpoints fail. Returns a change of that.
    pub(crate) fn update_panic<'a>(&self, all: impl Iterator<Item = &'a Ejection> + Clone) -> Option<bool> {
        let fails = |endpoint: &Ejection| {
            endpoint.streaks().exceeded(&self.settings).filter(|_| endpoint.phase().takes_requests())
        };
        let limit = Limit::of(all.clone());
        let stays = |endpoint: &Ejection| fails(endpoint).is_some_and(|reason| !limit.allows(reason));
        // Ejections keep the limit themselves, active checks do not.
        let out = all.clone().filter(|endpoint| endpoint.is_out() && endpoint.phase() != Phase::Unreachable).count();
        let panic = out > limit.count / 2 || all.clone().any(stays);
        (self.panic.swap(panic, Relaxed) != panic).then_some(panic)
    }

    /// Begins a decision; none while another worker decides.
    pub(crate) fn begin_decision(&self) -> Option<Decision<'_>> {
        self.deciding.compare_exchange(false, true, Acquire, Relaxed).ok().map(|_| Decision(&self.deciding))
    }

    fn apply(&self, endpoint: &Ejection, event: Event, now: Micros, jitter: Jitter) -> Option<Change> {
        let before = endpoint.state();
        let after = before.after(event, &self.settings, now, jitter);
        if after == before {
            return None;
        }
        endpoint.store(after);
        let micros = after.until.since(after.since);
        Some(Change { from: before.phase, to: after.phase, reason: after.reason, micros })
    }
}

/// Limit of the endpoints that are set aside.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// All endpoints.
    count: usize,
    /// Those that are out.
    out: usize,
}

impl Limit {
    fn of<'a>(all: impl Iterator<Item = &'a Ejection>) -> Self {
        let add = |Self { count, out }, endpoint: &Ejection| Self {
            count: count + 1,
            out: out + usize::from(endpoint.is_out()),
        };
        all.fold(Self { count: 0, out: 0 }, add)
    }

    /// Returns whether one more endpoint may be set aside.
    fn allows(self, reason: Reason) -> bool {
        match reason {
            // Nothing can be sent to it: only the last one stays.
            Reason::Unreachable => self.out + 1 < self.count,
            _ => self.out < self.count / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::state::EjectionState;
    use super::*;

    /// Event at one of the endpoints.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Succeeds(usize),
        Fails(usize, Failure),
        Connects(usize),
        /// Time passes, and all is looked at.
        Waits(u64),
        /// The probe that is under way at the endpoint ends.
        Probed(usize, bool),
    }

    fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
        let kind =
            prop::sample::select(vec![Failure::ServerError, Failure::GatewayError, Failure::Connect, Failure::Timeout]);
        let step = prop_oneof![
            2 => (0..count).prop_map(Step::Succeeds),
            8 => (0..count, kind).prop_map(|(index, failure)| Step::Fails(index, failure)),
            1 => (0..count).prop_map(Step::Connects),
            3 => (1..20_000_u64).prop_map(Step::Waits),
            1 => (0..count, any::<bool>()).prop_map(|(index, connected)| Step::Probed(index, connected)),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// Endpoint of the reference model: what an operator was promised, kept in the plainest way.
    #[derive(Clone, Debug, Default)]
    struct Model {
        failures: Vec<Failure>,
        out: bool,
        unreachable: bool,
        returning: bool,
        since: u64,
        times: u32,
        probing: bool,
    }

    impl Model {
        fn row(&self, kinds: &[Failure]) -> usize {
            let failures = self.failures.iter().rev();
            let relevant = failures.filter(|failure| kinds.contains(failure) || **failure != Failure::Connect);
            relevant.take_while(|failure| kinds.contains(failure)).count()
        }

        fn is_over_threshold(&self, settings: &OutlierSettings) -> Option<Reason> {
            use Failure::{Connect, GatewayError, ServerError, Timeout};
            let rows: [(&[Failure], u16, Reason); 4] = [
                (&[Connect], settings.connect_failures, Reason::Unreachable),
                (&[Timeout], settings.timeouts, Reason::Timeouts),
                (&[GatewayError, Timeout], settings.gateway_errors, Reason::GatewayErrors),
                (&[ServerError, GatewayError, Timeout], settings.server_errors, Reason::ServerErrors),
            ];
            let reached = rows.into_iter().find(|(kinds, threshold, _)| self.row(kinds) >= usize::from(*threshold));
            reached.map(|(_, _, reason)| reason)
        }
    }

    fn world(count: usize) -> (Detector, Vec<Ejection>, Vec<Model>) {
        world_with(count, OutlierSettings::default())
    }

    fn world_with(count: usize, settings: OutlierSettings) -> (Detector, Vec<Ejection>, Vec<Model>) {
        let endpoints = (0..count).map(|_| Ejection::default()).collect();
        (Detector::new(settings), endpoints, vec![Model::default(); count])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Runs the same steps through the detector and through the model, and compares who is in.
        #[test]
        fn endpoints_are_set_aside_as_the_model_says(
            (count, steps) in (1..8_usize).prop_flat_map(|count| (Just(count), steps(count))),
            connect_failures in 1..4_u16,
        ) {
            let settings = OutlierSettings { connect_failures, ..OutlierSettings::default() };
            let (detector, endpoints, mut models) = world_with(count, settings);
            let settings = detector.settings;
            let mut now = 1_000_000_u64;
            for step in steps {
                let out = models.iter().filter(|model| model.out).count();
                match step {
                    Step::Succeeds(index) => {
                        endpoints[index].succeed();
                        models[index].failures.clear();
                    }
                    Step::Fails(index, failure) => {
                        detector.fail(&endpoints[index], failure, endpoints.iter(), Micros(now), Jitter::NONE);
                        let model = &mut models[index];
                        model.failures.push(failure);
                        let reason = if model.returning { Some(Reason::of(failure)) }
                            else { model.is_over_threshold(&settings) };
                        let allowed = |reason| if reason == Reason::Unreachable { out + 1 < count }
                            else { out < count / 2 };
                        if let Some(reason) = reason.filter(|reason| !model.out && allowed(*reason)) {
                            let times = model.times + 1;
                            *model = Model { out: true, unreachable: reason == Reason::Unreachable, since: now, times,
                                probing: model.probing, ..Model::default() };
                        }
                    }
                    Step::Connects(index) => {
                        detector.connect(&endpoints[index], Micros(now));
                        let model = &mut models[index];
                        model.failures.retain(|failure| *failure != Failure::Connect);
                        if model.unreachable {
                            *model = Model { returning: true, since: now, times: model.times, probing: model.probing,
                                ..Model::default() };
                        }
                    }
                    Step::Waits(milliseconds) => {
                        now += milliseconds * 1000;
                        for (endpoint, model) in endpoints.iter().zip(&mut models) {
                            let (_, probe) = detector.tick(endpoint, Micros(now));
                            let passed = Duration::from_micros(now - model.since);
                            let whole = (Duration::from_secs(5) * 2_u32.saturating_pow(model.times.saturating_sub(1)))
                                .min(Duration::from_mins(5));
                            let pause = (whole / 5).min(Duration::from_secs(5));
                            prop_assert_eq!(probe, model.unreachable && passed >= pause && !model.probing);
                            model.probing |= probe;
                            if model.unreachable {
                            } else if model.out && passed >= whole {
                                *model = Model { returning: true, since: now, times: model.times,
                                    probing: model.probing, ..Model::default() };
                            } else if model.returning && passed >= Duration::from_secs(10) {
                                *model = Model { since: now, times: model.times, failures: model.failures.clone(),
                                    probing: model.probing, ..Model::default() };
                            } else if !model.out && !model.returning && model.times > 0 && passed >= whole {
                                *model = Model { since: now, times: model.times - 1, failures: model.failures.clone(),
                                    probing: model.probing, ..Model::default() };
                            }
                        }
                    }
                    Step::Probed(index, connected) if models[index].probing => {
                        detector.end_probe(&endpoints[index], connected, Micros(now), Jitter::NONE);
                        let model = &mut models[index];
                        model.probing = false;
                        if model.unreachable && connected {
                            *model = Model { returning: true, since: now, times: model.times, probing: model.probing,
                                ..Model::default() };
                        } else if model.unreachable {
                            (model.since, model.times) = (now, model.times + 1);
                        }
                    }
                    Step::Probed(..) => {}
                }
                for (endpoint, model) in endpoints.iter().zip(&models) {
                    prop_assert_eq!(endpoint.phase().takes_requests(), !model.out, "{:?}: {:?}", step, model);
                }
                prop_assert!(endpoints.iter().any(|endpoint| endpoint.phase().takes_requests()), "the last one stays");
                let ejected = endpoints.iter().filter(|endpoint| endpoint.phase() == Phase::Ejected).count();
                prop_assert!(ejected <= count / 2, "at most half are ejected");
            }
        }

        #[test]
        fn jitter_is_at_most_a_fifth(chance in 0.0..1.0_f64, times in 0..30_u32) {
            let settings = OutlierSettings::default();
            let before = EjectionState { times, ..EjectionState::default() };
            let after = before.after(Event::Failed(Reason::ServerErrors), &settings, Micros(0), Jitter::of(chance));
            let middle = before.after(Event::Failed(Reason::ServerErrors), &settings, Micros(0), Jitter::NONE);
            let part = after.until.0 as f64 / middle.until.0 as f64;
            prop_assert!((part - (0.8 + 0.4 * chance)).abs() < 0.001, "{part}");
            prop_assert!(middle.until.0 <= 300_000_000);
        }
    }

    /// Four workers each reach the threshold of another endpoint at the same moment: two of them may eject theirs.
    #[test]
    fn thresholds_reached_at_once_eject_half() {
        for _ in 0..500 {
            let (detector, endpoints, _) = world(4);
            let fail = |endpoint: &Ejection| {
                detector.fail(endpoint, Failure::ServerError, endpoints.iter(), Micros(1), Jitter::NONE);
            };
            endpoints.iter().for_each(|endpoint| (0..4).for_each(|_| fail(endpoint)));
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for endpoint in &endpoints {
                    scope.spawn(|| {
                        start.wait();
                        fail(endpoint);
                    });
                }
            });
            let out = endpoints.iter().filter(|endpoint| !endpoint.phase().takes_requests()).count();
            assert!((1..=2).contains(&out), "{out} are out");
        }
    }

    /// Workers that fail all endpoints at the same time never eject more than half of them.
    #[test]
    fn workers_that_decide_at_once_keep_the_limit() {
        for _ in 0..50 {
            let (detector, endpoints, _) = world(4);
            std::thread::scope(|scope| {
                for worker in 0..4 {
                    let detector = &detector;
                    let endpoints = &endpoints;
                    scope.spawn(move || {
                        for step in 0..200 {
                            let endpoint = &endpoints[(step + worker) % 4];
                            detector.fail(endpoint, Failure::ServerError, endpoints.iter(), Micros(1), Jitter::NONE);
                            let out = endpoints.iter().filter(|endpoint| !endpoint.phase().takes_requests()).count();
                            assert!(out <= 2, "{out} are out");
                        }
                    });
                }
            });
            let out = endpoints.iter().filter(|endpoint| !endpoint.phase().takes_requests()).count();
            assert_eq!(out, 2);
        }
    }

    #[test]
    fn too_many_failures_are_a_panic_until_enough_work() {
        let (detector, endpoints, _) = world(2);
        let fail = |index: usize| {
            for _ in 0..5 {
                detector.fail(&endpoints[index], Failure::ServerError, endpoints.iter(), Micros(1), Jitter::NONE);
            }
        };
        fail(0);
        assert_eq!(detector.update_panic(endpoints.iter()), None);
        fail(1);
        assert_eq!(detector.update_panic(endpoints.iter()), Some(true));
        assert_eq!(detector.update_panic(endpoints.iter()), None, "told once");
        assert!(detector.changed(detector.settings).is_panic(), "a reload changes nothing about it");
        endpoints[1].succeed();
        assert_eq!(detector.update_panic(endpoints.iter()), Some(false));
    }

    #[test]
    fn failing_checks_set_aside_and_passed_ones_begin_the_slow_start() {
        let (detector, endpoints, _) = world(2);
        assert_eq!(detector.end_checks(&endpoints[0], true, Micros(1)), None);
        assert!(endpoints[0].is_out() && !endpoints[1].is_out());
        for _ in 0..5 {
            detector.fail(&endpoints[1], Failure::ServerError, endpoints.iter(), Micros(1), Jitter::NONE);
        }
        assert_eq!(endpoints[1].phase(), Phase::In, "half of the endpoints are out");
        let change = detector.end_checks(&endpoints[0], false, Micros(1)).unwrap();
        assert_eq!((change.to, endpoints[0].is_out()), (Phase::Returning, false));
        for endpoint in &endpoints {
            detector.end_checks(endpoint, true, Micros(1));
        }
        assert_eq!(detector.update_panic(endpoints.iter()), Some(true), "all fail their checks");
    }
}
