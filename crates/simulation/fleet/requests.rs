//! Requests: their decision, and the exchange that follows.

use std::sync::Arc;

use domain::clock::Micros;
use state::redis::{CachedKey, Decided, DecisionSteps, LateAnswer};
use state::{Permit, Reservation};

use super::budgets::End;
use super::event::{Event, Pending, Process};
use super::gateway::{DEADLINE, Gateway};
use super::identity::Phase;
use super::trace::Entry;
use super::world::World;

/// A request of a client.
pub struct Request {
    pub process: Process,
    pub key: usize,
    pub begun: u64,
    /// Time at which it was admitted, and its use appended.
    pub recorded: u64,
    /// Time of the request by its gateway's clock.
    pub asked: Micros,
    pub phase: Phase,
    /// End of the time for the phase.
    deadline: u64,
    /// Failovers that the gateway had seen when the decision began.
    pub failovers: u64,
    /// None before the decision begins.
    pub steps: Option<DecisionSteps>,
    /// A denial that may be stale, while releases are in flight.
    pub denied: Option<(Arc<CachedKey>, Decided)>,
    pub late: Arc<LateAnswer>,
    /// The command that it waits for.
    pub command: Option<u64>,
    /// Held while it is forwarded.
    permit: Option<Permit>,
    pub provisional: bool,
    /// The reply of Redis is awaited although the deadline has passed.
    pub is_awaited: bool,
}

impl Request {
    pub fn is_admitted(&self) -> bool {
        self.permit.is_some()
    }

    /// Its reservation in a budget.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.permit.as_ref()?.reservation()
    }
}

impl World {
    /// A client sends a request to some gateway.
    pub fn next_request(&mut self) {
        let mean = 1e6 / self.options.requests as f64;
        let pause = self.load.exponential(mean);
        if self.now + pause < self.end {
            self.queue.add(self.now + pause, Event::NextRequest);
        }
        let gateway = self.load.index(self.gateways.len());
        let key = self.directory.draw(&mut self.load);
        let Gateway { is_up, is_leaving, process, .. } = self.gateways[gateway];
        if !is_up || is_leaving {
            return;
        }
        self.counts.requests += 1;
        let id = self.id();
        let gateway = &self.gateways[gateway];
        let asked = gateway.steady(self.now);
        let request = Request {
            process,
            key,
            begun: self.now,
            recorded: 0,
            asked,
            phase: Phase::Verifying,
            deadline: 0,
            failovers: 0,
            steps: None,
            denied: None,
            late: Arc::default(),
            command: None,
            permit: None,
            provisional: false,
            is_awaited: false,
        };
        self.requests.insert(id, request);
        self.verify(id);
    }

    /// Begins the decision.
    pub fn decide(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let gateway = &self.gateways[request.process.gateway];
        request.failovers = gateway.seen_failovers();
        let asked = self.directory.request(request.key, request.asked);
        let (steps, first) = DecisionSteps::begin(&gateway.decisions, &asked);
        request.steps = Some(steps);
        self.begin_phase(id, Phase::Deciding);
        self.perform(id, first);
    }

    /// Begins a phase of a request, which has a deadline of its own.
    pub fn begin_phase(&mut self, id: u64, phase: Phase) {
        let deadline = self.now + DEADLINE;
        self.requests.entry(id).and_modify(|request| (request.phase, request.deadline) = (phase, deadline));
        self.queue.add(deadline, Event::Deadline(id));
    }

    /// A request is admitted: it is recorded, and forwarded.
    pub fn admit(&mut self, id: u64, permit: Permit, provisional: bool) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.permit = Some(permit);
        request.provisional = provisional;
        request.recorded = self.now;
        let process = request.process;
        let key = request.key;
        let begun = request.begun;
        let now = self.now;
        self.counts.admitted += 1;
        self.counts.provisional += u64::from(provisional);
        let gateway = &mut self.gateways[process.gateway];
        gateway.open.insert(id);
        let org = self.directory.keys[key].org;
        let shard = self.directory.shard_of_key(key);
        let what = if provisional { "admitted by a share" } else { "admitted by Redis" };
        self.trace.add(Entry { time: now, what, gateway: process.gateway, key, org, shard, number: id.cast_signed() });
        self.check_admission(process, id, begun, provisional);
        self.record_use(process, id);
    }

    /// The use of an admitted request is as durable as configured.
    pub fn forward(&mut self, id: u64) {
        // Its key may have been revoked meanwhile.
        if !self.requests.contains_key(&id) {
            return;
        }
        let now = self.now;
        self.checks.audit.note_acknowledged(id);
        let duration = match self.load.below(100) {
            0..80 => self.load.exponential(30_000.0),
            80..98 => self.load.exponential(400_000.0),
            _ => self.load.between(3_000_000, 40_000_000),
        };
        // All exchanges end soon after the last request.
        let finish = (now + duration + 1).min(self.end + 5_000_000);
        self.queue.add(finish, Event::Finish(id));
    }

    /// The use of an admitted request cannot be recorded.
    pub fn refuse_unrecorded(&mut self, id: u64) {
        self.counts.unrecorded += 1;
        self.finish_request(id, End::Unrecorded);
    }

    pub fn refuse(&mut self, id: u64, why: &'static str) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.counts.unavailable += u64::from(why == "unavailable");
        let key = request.key;
        let org = self.directory.keys[key].org;
        let shard = self.directory.shard_of_key(key);
        self.trace.add(Entry {
            time: self.now,
            what: why,
            gateway: request.process.gateway,
            key,
            org,
            shard,
            number: 0,
        });
    }

    /// The deadline of a decision, or of a reading beside it, has passed.
    pub fn reach_deadline(&mut self, id: u64) {
        let now = self.now;
        let is_due = |request: &&mut Request| request.permit.is_none() && request.deadline == now;
        let Some(request) = self.requests.get_mut(&id).filter(is_due) else { return };
        match request.phase {
            Phase::Verifying => return self.decide_verified(id),
            Phase::Confirming => return self.refuse(id, "unavailable"),
            Phase::Deciding => {}
        }
        let process = request.process;
        let command = request.command.take();
        request.denied = None;
        if !self.is_live(process) {
            self.requests.remove(&id);
            return;
        }
        let waited = command.and_then(|command| self.commands.get_mut(&command));
        match waited.map(|command| &mut command.pending) {
            // A task awaits the reply from now on.
            Some(Some(Pending::Decide(pending))) => {
                pending.is_late = true;
                pending.late.mark_pending();
                self.requests.entry(id).and_modify(|request| request.is_awaited = true);
            }
            Some(pending @ (Some(Pending::Resync { .. }) | Some(Pending::Read { .. }))) => {
                if let Some(Pending::Resync { subject, .. }) = pending.take() {
                    self.end_resync(process, subject);
                }
            }
            _ => {}
        }
        self.decide_offline(id);
    }

    /// An exchange ends.
    pub fn finish_request(&mut self, id: u64, end: End) {
        let Some(request) = self.requests.remove(&id) else { return };
        let process = request.process;
        self.directory.subjects_of_key(request.key).for_each(|subject| self.checks.slots.end(subject, id));
        if let Some(reservation) = request.permit.and_then(Permit::into_reservation) {
            self.settle(id, request.key, reservation, end);
        }
        let gateway = &mut self.gateways[process.gateway];
        if gateway.open.remove(&id) && end == End::Recorded {
            self.record_outcome(process, id, request.recorded);
        }
        let gateway = &mut self.gateways[process.gateway];
        if gateway.decisions.slots.active.take_early_visit() {
            let pause = u64::try_from(state::redis::EARLY_REPORT.as_micros()).unwrap();
            self.queue.add(self.now + pause, Event::Visit(process, true));
        }
    }
}
