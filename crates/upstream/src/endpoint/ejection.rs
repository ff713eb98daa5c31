//! Ejection of endpoints: applies the decisions of [`super::outlier`] to their shared state, logs and counts each
//! change. Pauses that endpoints ask for are begun here as well, for at most half of the endpoints.

use std::sync::Arc;
use std::time::Duration;

use super::balance::Random;
use super::endpoints::{EndpointState, Endpoints};
use super::failure::Failure;
use super::health::{CheckReport, HealthSettings};
use super::outlier::{Change, Ejection, Jitter, Phase};
use domain::clock::{self, Micros};

impl Endpoints {
    /// Counts a failure of an endpoint, and sets it aside when there were too many.
    pub(crate) fn fail(&self, endpoint: &EndpointState, failure: Failure, now: Micros) {
        let change = self.detector.fail(&endpoint.ejection, failure, self.ejections(), now, Jitter::of(chance()));
        self.announce(endpoint, change);
    }

    /// Notes that a connection to an endpoint was made.
    pub(crate) fn note_connected(&self, endpoint: &EndpointState) {
        let change = self.detector.connect(&endpoint.ejection, clock::steady());
        self.announce(endpoint, change);
    }

    /// Ends the phases whose time is over. Returns the endpoints that are to be probed.
    pub(crate) fn tick(&self, now: Micros) -> Vec<Arc<EndpointState>> {
        let mut probes = Vec::new();
        for endpoint in &*self.list {
            let (change, is_probe_due) = self.detector.tick(&endpoint.ejection, now);
            self.announce(endpoint, change);
            endpoint.end_outage(now);
            if is_probe_due {
                probes.push(Arc::clone(endpoint));
            }
        }
        self.update_panic();
        self.circuit.tick(now);
        self.retry_budget.tick(now);
        probes
    }

    /// Notes a response of an endpoint that asks for a pause, which begins with the second one in a row, unless half of
    /// the endpoints are paused. That of a single endpoint stops only the retries to it.
    pub(crate) fn ask_for_pause(&self, endpoint: &EndpointState, duration: Duration, now: Micros) {
        if !endpoint.pause.ask() {
            return;
        }
        // While another worker decides, the next response begins it.
        let Some(_decision) = self.detector.begin_decision() else { return };
        let is_other = |other: &&Arc<EndpointState>| !std::ptr::eq(&***other, endpoint);
        let others = self.list.iter().filter(is_other).filter(|other| other.pause.lasts(now)).count();
        if !self.has_choice() || others < self.list.len() / 2 {
            endpoint.pause.begin(duration, now);
        }
    }

    /// Keeps the result of an active check, and acts on it when enough speak alike.
    pub(crate) fn end_check(&self, endpoint: &EndpointState, report: CheckReport, health: &HealthSettings) {
        endpoint.metrics.count_check(report.ok);
        let detail = report.detail.clone();
        let fails = endpoint.ejection.fails_checks();
        match endpoint.check.end(report, fails, health) {
            Some(true) => {
                tracing::warn!(upstream = %self.name, endpoint = %endpoint.label, detail,
                    "active checks of an endpoint of the upstream fail; requests go to the others");
                self.note_checks(endpoint, true);
            }
            Some(false) => {
                tracing::info!(upstream = %self.name, endpoint = %endpoint.label, detail,
                    "active checks of an endpoint of the upstream pass again");
                self.note_checks(endpoint, false);
            }
            None => {}
        }
    }

    /// Forgets the results of active checks that are no longer configured.
    pub(crate) fn reset_checks(&self, endpoint: &EndpointState) {
        endpoint.check.reset();
        if endpoint.ejection.fails_checks() {
            self.note_checks(endpoint, false);
        }
    }

    fn note_checks(&self, endpoint: &EndpointState, fail: bool) {
        let change = self.detector.end_checks(&endpoint.ejection, fail, clock::steady());
        self.announce(endpoint, change);
        endpoint.show_up();
    }

    /// Ends a probe that could connect, or not.
    pub(crate) fn end_probe(&self, endpoint: &EndpointState, is_connected: bool, now: Micros) {
        if is_connected {
            endpoint.note_reachable();
        }
        let change = self.detector.end_probe(&endpoint.ejection, is_connected, now, Jitter::of(chance()));
        self.announce(endpoint, change);
    }

    fn update_panic(&self) {
        match self.detector.update_panic(self.ejections()) {
            Some(true) => {
                self.metrics.panic.set(1);
                tracing::error!(
                    upstream = %self.name,
                    endpoints = self.list.len(),
                    "too many endpoints of the upstream fail; requests go to the failing ones as well"
                );
            }
            Some(false) => {
                self.metrics.panic.set(0);
                tracing::info!(upstream = %self.name,
                    "enough endpoints of the upstream work again; requests go to those only");
            }
            None => {}
        }
    }

    fn ejections(&self) -> impl Iterator<Item = &Ejection> + Clone {
        self.list.iter().map(|endpoint| &endpoint.ejection)
    }

    /// Logs and counts a change, once.
    fn announce(&self, endpoint: &EndpointState, change: Option<Change>) {
        let Some(Change { from, to, reason, micros }) = change else { return };
        let name = &endpoint.label;
        let seconds = Duration::from_micros(micros).as_secs_f64();
        match to {
            Phase::Ejected => {
                endpoint.metrics.count_ejection(reason.label());
                tracing::warn!(upstream = %self.name, endpoint = %name, reason = reason.label(), seconds,
                    "ejected an endpoint of the upstream; requests go to the others");
            }
            // A probe that fails changes nothing that is new.
            Phase::Unreachable if from.takes_requests() => endpoint.metrics.count_ejection(reason.label()),
            Phase::Returning => {
                tracing::info!(upstream = %self.name, endpoint = %name, seconds,
                    "an endpoint of the upstream returns; its share of the requests grows");
            }
            Phase::In | Phase::Unreachable => {}
        }
        endpoint.show_up();
    }
}

/// Random number from 0 to 1. Decisions are rare.
pub(crate) fn chance() -> f64 {
    f64::from(Random::default().unit())
}
