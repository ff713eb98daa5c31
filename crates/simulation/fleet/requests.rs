//! Requests: the decision of a gateway, with Redis or without, and the exchange that follows.
//!
//! The steps of a decision are the product's own; this file performs them on simulated servers.

use std::rc::Rc;
use std::sync::Arc;

use domain::clock::Micros;
use redis::Value;
use redis_client::CommandError;
use state::redis::{
    CachedKey, CallArguments, CallOutcome, CallResult, DecideError, DecideInput, Decided, DeciderShared, DecisionSteps,
    Evaluation, LateAnswer, Next, Step, complete, encode_read, took_token,
};
use state::{DecideRequest, Decision, Permit};

use super::event::{Call, Event, Pending, PendingDecide, Process};
use super::gateway::{DEADLINE, Gateway};
use super::journal::Line;
use super::lua::Script;
use super::trace::Entry;
use super::world::World;

/// Time between two looks at releases in flight, for which the product is woken.
const RELEASES_LOOK: u64 = 500;

/// A request of a client.
pub struct Request {
    pub process: Process,
    pub key: usize,
    pub begun: u64,
    /// Time of the request by its gateway's clock.
    pub asked: Micros,
    steps: DecisionSteps,
    /// A denial that may be stale, while releases are in flight.
    denied: Option<(Arc<CachedKey>, Decided)>,
    pub late: Arc<LateAnswer>,
    /// The command that it waits for.
    command: Option<u64>,
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
}

impl World {
    /// A client sends a request to some gateway.
    pub fn next_request(&mut self) {
        let mean = 1e6 / self.options.requests as f64;
        let pause = self.load.exponential(mean);
        if self.now + pause < self.end {
            self.queue.add(self.now + pause, Event::NextRequest);
        }
        let (gateway, key) = (self.load.index(self.gateways.len()), self.directory.draw(&mut self.load));
        let Gateway { is_up, is_leaving, process, .. } = self.gateways[gateway];
        if !is_up || is_leaving {
            return;
        }
        self.counts.requests += 1;
        let id = self.id();
        let gateway = &self.gateways[gateway];
        let asked = gateway.steady(self.now);
        let (steps, first) = DecisionSteps::begin(&gateway.decisions, &self.directory.request(key, asked));
        let request = Request {
            process,
            key,
            begun: self.now,
            asked,
            steps,
            denied: None,
            late: Arc::default(),
            command: None,
            permit: None,
            provisional: false,
            is_awaited: false,
        };
        self.requests.insert(id, request);
        self.queue.add(self.now + DEADLINE, Event::Deadline(id));
        self.perform(id, first);
    }

    /// Goes on with a decision after a step, if it is not made yet.
    pub fn go_on(
        &mut self,
        id: u64,
        after: impl FnOnce(&mut DecisionSteps, &DeciderShared, &DecideRequest<'_>) -> Next,
    ) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.permit.is_none()) else { return };
        let asked = self.directory.request(request.key, request.asked);
        let next = after(&mut request.steps, &self.gateways[request.process.gateway].decisions, &asked);
        self.perform(id, next);
    }

    /// Performs the next step of a decision.
    fn perform(&mut self, id: u64, next: Next) {
        match next {
            Next::Break(Ok(Decision::Admitted(admitted))) => self.admit(id, admitted.permit, false),
            Next::Break(Ok(Decision::Denied { .. })) => self.refuse(id, "refused"),
            Next::Break(Err(error)) => self.fail(id, &error),
            Next::Continue(Step::Read) => self.read(id),
            Next::Continue(Step::Call(entry, evaluation)) => self.call(id, entry, evaluation),
            Next::Continue(Step::Resync(entry)) => {
                let (process, org) = (self.requests[&id].process, self.directory.org_of(entry.lease.tag));
                self.resync(process, org, Some((id, entry)), None);
            }
            Next::Continue(Step::AwaitReleases(entry, decided)) => {
                let Some(request) = self.requests.get_mut(&id) else { return };
                request.denied = Some((entry, decided));
                let longest = self.product.settings.longest_wait_for_releases();
                self.await_releases(id, self.now + u64::try_from(longest.as_micros()).unwrap());
            }
        }
    }

    /// A decision has failed: without an answer of Redis it is made offline.
    pub fn fail(&mut self, id: u64, error: &DecideError) {
        if error.allows_offline() {
            self.decide_offline(id);
        } else {
            self.refuse(id, "fenced");
        }
    }

    fn read(&mut self, id: u64) {
        let Request { process, key, .. } = self.requests[&id];
        let key = &self.directory.keys[key];
        let org = &self.directory.orgs[key.org];
        let keys = [&key.record, &org.record].map(|name| Rc::from(&name[..])).into();
        let arguments = vec![self.gateways[process.gateway].id.clone(), encode_read().to_vec()];
        let call = Call::Script { script: Script::Decide, keys, arguments };
        match self.send(process, org.shard, call, Pending::Read { request: id }) {
            Ok(command) => self.wait_for(id, command),
            Err(_) => self.fail(id, &CommandError::Unreachable.into()),
        }
    }

    fn call(&mut self, id: u64, entry: Arc<CachedKey>, evaluation: Evaluation) {
        let Request { process, key, asked, .. } = self.requests[&id];
        let gateway = &self.gateways[process.gateway];
        let Some(input) = DecideInput::begin(&entry, evaluation, asked, gateway.instant(self.base, self.now)) else {
            return self
                .go_on(id, |steps, shared, asked| steps.after_call(shared, asked, entry, CallOutcome::LeaseInDoubt));
        };
        let call = decide_call(&gateway.decisions, &entry, &input);
        let late = Arc::clone(&self.requests[&id].late);
        let pending = PendingDecide { request: id, key, entry, input, late, is_late: false, is_counted: false };
        match self.send(process, self.directory.shard_of_key(key), call, Pending::Decide(Box::new(pending))) {
            Ok(command) => self.wait_for(id, command),
            Err(Pending::Decide(pending)) => self.complete_decide(process, *pending, Err(CommandError::Unreachable)),
            Err(_) => unreachable!("a decide call was sent"),
        }
    }

    pub fn wait_for(&mut self, id: u64, command: u64) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.command = Some(command);
        }
    }

    /// Looks whether releases in flight have reached Redis, for which a request waits until a time.
    pub fn await_releases(&mut self, id: u64, until: u64) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let has_arrived = request.denied.as_ref().is_some_and(|(entry, _)| !entry.lease.has_report_in_flight());
        if !has_arrived && self.now < until {
            return self.queue.add(self.now + RELEASES_LOOK, Event::Releases(id, until));
        }
        let Some(denied) = request.denied.take() else { return };
        self.go_on(id, |steps, shared, asked| steps.after_releases(shared, asked, denied, has_arrived));
    }

    /// A reply to a decide call, or why there is none.
    pub fn complete_decide(&mut self, process: Process, pending: PendingDecide, reply: Result<Value, CommandError>) {
        let PendingDecide { request, key, entry, input, late, is_late, is_counted } = pending;
        let gateway = &self.gateways[process.gateway];
        let result = complete(&gateway.decisions, &entry, input, reply, gateway.steady(self.now));
        self.note_result(process, key, &result);
        if !is_late {
            return match result {
                Ok(outcome) => {
                    self.go_on(request, |steps, shared, asked| steps.after_call(shared, asked, entry, outcome));
                }
                Err(error) => self.fail(request, &error),
            };
        }
        let ran = took_token(&result);
        if late.complete(ran) {
            self.gateways[process.gateway].decisions.record_unreported(&entry);
        }
        self.checks.bucket.end_waiting(key, request);
    }

    /// Notes that Redis has answered about a key, and about its organization.
    pub fn note_result(&mut self, process: Process, key: usize, result: &CallResult) {
        let is_decided =
            matches!(result, Ok(CallOutcome::Admitted(..) | CallOutcome::Refused(..) | CallOutcome::StaleDenial(_)));
        if is_decided || took_token(result) {
            self.checks.bucket.end_share(process.gateway, key);
        }
        // A fenced reply tells the lease nothing.
        if is_decided {
            self.gateways[process.gateway].noticed.remove(&self.directory.keys[key].org);
        }
    }

    /// A request is admitted: it is recorded, and forwarded.
    pub fn admit(&mut self, id: u64, permit: Permit, provisional: bool) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.permit = Some(permit);
        request.provisional = provisional;
        let (process, key, begun) = (request.process, request.key, request.begun);
        let now = self.now;
        self.counts.admitted += 1;
        self.counts.provisional += u64::from(provisional);
        let gateway = &mut self.gateways[process.gateway];
        gateway.open.insert(id);
        gateway.journal.lines.push(Line::Use { id, time: now });
        let (org, shard) = (self.directory.keys[key].org, self.directory.shard_of_key(key));
        let what = if provisional { "admitted by a share" } else { "admitted by Redis" };
        self.trace.add(Entry { time: now, what, gateway: process.gateway, key, org, shard, number: id.cast_signed() });
        self.check_admission(process, id, begun, provisional);
        let duration = match self.load.below(100) {
            0..80 => self.load.exponential(30_000.0),
            80..98 => self.load.exponential(400_000.0),
            _ => self.load.between(3_000_000, 40_000_000),
        };
        // All exchanges end soon after the last request.
        let finish = (now + duration + 1).min(self.end + 5_000_000);
        self.queue.add(finish, Event::Finish(id));
    }

    pub fn refuse(&mut self, id: u64, why: &'static str) {
        let Some(request) = self.requests.remove(&id) else { return };
        self.counts.unavailable += u64::from(why == "unavailable");
        let key = request.key;
        let (org, shard) = (self.directory.keys[key].org, self.directory.shard_of_key(key));
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

    /// The deadline of a decision has passed.
    pub fn reach_deadline(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.permit.is_none()) else { return };
        let (process, command) = (request.process, request.command.take());
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
                if let Some(Pending::Resync { org, .. }) = pending.take() {
                    self.end_resync(process, org);
                }
            }
            _ => {}
        }
        self.decide_offline(id);
    }

    /// An exchange ends; with `recorded`, its outcome is in the journal.
    pub fn finish_request(&mut self, id: u64, recorded: bool) {
        let Some(request) = self.requests.remove(&id) else { return };
        let process = request.process;
        let org = self.directory.keys[request.key].org;
        self.checks.slots.end(org, id);
        drop(request.permit);
        let now = self.now;
        let gateway = &mut self.gateways[process.gateway];
        gateway.open.remove(&id);
        if recorded {
            gateway.journal.lines.push(Line::Outcome { id });
        }
        if gateway.decisions.slots.active.take_early_visit() {
            let pause = u64::try_from(state::redis::EARLY_REPORT.as_micros()).unwrap();
            self.queue.add(now + pause, Event::Visit(process, true));
        }
    }
}

/// A call of `decide.lua`.
pub fn decide_call(shared: &DeciderShared, entry: &CachedKey, input: &DecideInput) -> Call {
    let encoded = CallArguments::new(shared, entry, input);
    let (keys, arguments) = encoded.keys_and_arguments(shared, entry);
    let keys = keys[..encoded.keys].iter().map(|key| Rc::from(*key)).collect();
    let arguments = arguments[..encoded.keys - 1].iter().map(|argument| argument.to_vec()).collect();
    Call::Script { script: Script::Decide, keys, arguments }
}
