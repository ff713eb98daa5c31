//! Decisions of requests with Redis. Their steps are the product's own; this file performs them on simulated servers.

use std::rc::Rc;
use std::sync::Arc;

use domain::refusal::Refusal;
use redis::Value;
use redis_client::CommandError;
use state::redis::{
    CachedKey, CallArguments, CallOutcome, CallResult, DecideError, DecideInput, DeciderShared, DecisionSteps,
    Evaluation, Next, Step, complete, encode_read, give_back, took_token,
};
use state::{DecideRequest, Decision};

use super::event::{Call, Event, Pending, PendingDecide, Process};
use super::identity::Phase;
use super::lua::Script;
use super::requests::Request;
use super::revocations::micros;
use super::world::World;

/// Time between two looks at releases in flight, for which the product is woken.
const RELEASES_LOOK: u64 = 500;

impl World {
    /// Goes on with a decision after a step, if it is not made yet.
    pub fn go_on(
        &mut self,
        id: u64,
        after: impl FnOnce(&mut DecisionSteps, &DeciderShared, &DecideRequest<'_>) -> Next,
    ) {
        let is_open = |request: &&mut Request| request.phase == Phase::Deciding && !request.is_admitted();
        let Some(request) = self.requests.get_mut(&id).filter(is_open) else { return };
        let Some(steps) = &mut request.steps else { return };
        let asked = self.directory.request(request.key, request.asked);
        let next = after(steps, &self.gateways[request.process.gateway].decisions, &asked);
        self.perform(id, next);
    }

    /// Performs the next step of a decision.
    pub fn perform(&mut self, id: u64, next: Next) {
        match next {
            Next::Break(Ok(Decision::Admitted(admitted))) => self.admit(id, admitted.permit, false),
            Next::Break(Ok(Decision::Denied { refusal: Refusal::Unknown, .. })) => self.confirm_unknown(id),
            Next::Break(Ok(Decision::Denied { .. })) => self.refuse(id, "refused"),
            Next::Break(Err(error)) => self.fail(id, &error),
            Next::Continue(Step::Read) => self.read(id),
            Next::Continue(Step::Call(entry, evaluation)) => self.call(id, entry, evaluation),
            Next::Continue(Step::Resync(entry, lease)) => {
                let process = self.requests[&id].process;
                let subject = self.directory.subject(lease.subject);
                self.resync(process, subject, Some((id, entry)), None);
            }
            Next::Continue(Step::AwaitReleases(entry, decided)) => {
                let Some(request) = self.requests.get_mut(&id) else { return };
                request.denied = Some((entry, decided));
                let longest = self.product.settings.longest_wait_for_releases();
                self.await_releases(id, self.now + micros(longest));
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
        let input = match DecideInput::begin(
            &gateway.decisions,
            &entry,
            evaluation,
            asked,
            gateway.instant(self.base, self.now),
        ) {
            Ok(input) => input,
            Err(lease) => {
                let outcome = CallOutcome::LeaseInDoubt(lease);
                return self.go_on(id, |steps, shared, asked| steps.after_call(shared, asked, entry, outcome));
            }
        };
        let call = decide_call(&gateway.decisions, &entry, &input);
        let late = Arc::clone(&self.requests[&id].late);
        let pending = PendingDecide { request: id, key, entry, input, late, is_late: false };
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
        let denied = request.denied.as_ref();
        let has_arrived = denied.is_some_and(|(entry, decided)| !decided.exhausted_lease(entry).has_report_in_flight());
        if !has_arrived && self.now < until {
            return self.queue.add(self.now + RELEASES_LOOK, Event::Releases(id, until));
        }
        let Some(denied) = request.denied.take() else { return };
        self.go_on(id, |steps, shared, asked| steps.after_releases(shared, asked, denied, has_arrived));
    }

    /// A reply to a decide call, or why there is none.
    pub fn complete_decide(&mut self, process: Process, pending: PendingDecide, reply: Result<Value, CommandError>) {
        let PendingDecide { request, key, entry, input, late, is_late } = pending;
        self.note_answered(key, reply.as_ref());
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
        let cost = self.directory.keys[key].cost;
        let shared = &self.gateways[process.gateway].decisions;
        give_back(shared, &entry, cost.units(), result);
        if late.complete(ran) {
            shared.record_unreported(&entry, cost.tokens());
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
}

/// A call of `decide.lua`.
pub fn decide_call(shared: &DeciderShared, entry: &CachedKey, input: &DecideInput) -> Call {
    let encoded = CallArguments::new(shared, entry, input);
    let (keys, arguments) = encoded.keys_and_arguments(shared, entry);
    let keys = keys[..encoded.keys].iter().map(|key| Rc::from(*key)).collect();
    let arguments = arguments[..encoded.arguments].iter().map(|argument| argument.to_vec()).collect();
    Call::Script { script: Script::Decide, keys, arguments }
}
