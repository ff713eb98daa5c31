//! Requests: their decision, by the product's own steps, and their end.

use std::rc::Rc;
use std::sync::Arc;

use domain::refusal::Refusal;
use redis::Value;
use redis_client::CommandError;
use state::redis::{
    CachedKey, CallArguments, CallOutcome, DecideError, DecideInput, Decided, DeciderShared, DecisionSteps, Evaluation,
    LateAnswer, Next, Step, complete, decode_read, encode_read, give_back, took_token,
};
use state::{DecideRequest, Decision, Permit};

use crate::database::Bytes;
use crate::directory::Credential;
use crate::gateway::GATEWAYS;
use crate::lua::Script;
use crate::messages::{Call, Message, Pending, PendingDecide, value};
use crate::mutants::Fault;
use crate::oracle::Began;
use crate::world::{World, instant, steady};

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The state is verified after a failover.
    Verifying,
    Deciding,
    AwaitingReleases,
    /// Its key may be unknown.
    Confirming,
    /// It is admitted.
    Open,
}

/// A request of a client.
pub struct Request {
    pub gateway: usize,
    pub credential: Credential,
    pub phase: Phase,
    /// Facts that held when it began.
    pub began: Began,
    /// Time of the request.
    asked: u64,
    /// Failovers that the gateway had seen when the decision began.
    pub failovers: u64,
    pub steps: Option<DecisionSteps>,
    /// A denial that may be stale, while releases are in flight.
    pub denied: Option<(Arc<CachedKey>, Decided)>,
    pub late: Arc<LateAnswer>,
    /// Held while it is open.
    pub permit: Option<Permit>,
    pub is_provisional: bool,
    /// The reply of the server is awaited although the deadline is over.
    pub is_awaited: bool,
}

impl World {
    fn asked(&self, request: usize) -> (DecideRequest<'_>, usize) {
        let request = self.requests[request].as_ref().expect("it is there");
        (self.directory.request(steady(request.asked), self.scene.cost), request.gateway)
    }

    /// A client sends a request.
    pub fn begin_request(&mut self, gateway: usize, credential: Credential) {
        let request = Request {
            gateway,
            credential,
            phase: Phase::Verifying,
            began: self.oracle.begin(),
            asked: self.now,
            failovers: 0,
            steps: None,
            denied: None,
            late: Arc::default(),
            permit: None,
            is_provisional: false,
            is_awaited: false,
        };
        let free = self.requests.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[number] = Some(request);
        let guard = &self.gateways[gateway];
        if !self.scene.reads_identity || guard.is_verified() || guard.identity.is_broken() {
            return self.decide_verified(number);
        }
        self.send_identity(number);
    }

    pub fn request(&mut self, number: usize) -> Option<&mut Request> {
        self.requests.get_mut(number)?.as_mut()
    }

    /// Begins the decision.
    pub fn decide(&mut self, number: usize) {
        let Some(request) = self.request(number) else { return };
        let (gateway, credential) = (request.gateway, request.credential);
        request.phase = Phase::Deciding;
        let failovers = self.gateways[gateway].seen_failovers();
        if credential != Credential::Key {
            if self.send(gateway, Call::Find(credential), Pending::Find(number)).is_err() {
                self.refuse(number, "unavailable");
            }
            return;
        }
        let (asked, gateway) = self.asked(number);
        let (steps, next) = DecisionSteps::begin(&self.gateways[gateway].decisions, &asked);
        let request = self.request(number).expect("it is there");
        (request.steps, request.failovers) = (Some(steps), failovers);
        self.perform(number, next);
    }

    pub fn go_on(
        &mut self,
        number: usize,
        after: impl FnOnce(&mut DecisionSteps, &DeciderShared, &DecideRequest<'_>) -> Next,
    ) {
        let Some(request) = self.request(number).filter(|request| request.phase == Phase::Deciding) else { return };
        let Some(mut steps) = request.steps.take() else { return };
        let (asked, gateway) = self.asked(number);
        let next = after(&mut steps, &self.gateways[gateway].decisions, &asked);
        self.request(number).expect("it is there").steps = Some(steps);
        self.perform(number, next);
    }

    fn perform(&mut self, number: usize, next: Next) {
        match next {
            Next::Break(Ok(Decision::Admitted(admitted))) => self.admit(number, Some(admitted.permit), false),
            Next::Break(Ok(Decision::Denied { refusal: Refusal::Unknown, .. })) => self.confirm_unknown(number),
            Next::Break(Ok(Decision::Denied { refusal, .. })) => self.refuse(number, refusal.row().answer.code),
            Next::Break(Err(error)) => self.fail(number, &error),
            Next::Continue(Step::Read) => self.read(number),
            Next::Continue(Step::Call(entry, evaluation)) => self.call(number, entry, evaluation),
            Next::Continue(Step::Resync(entry, lease)) => {
                let gateway = self.asked(number).1;
                self.resync(gateway, lease.subject, Some((number, entry)), None);
            }
            Next::Continue(Step::AwaitReleases(entry, decided)) => {
                let Some(request) = self.request(number) else { return };
                (request.denied, request.phase) = (Some((entry, decided)), Phase::AwaitingReleases);
                self.await_releases(number, false);
            }
        }
    }

    /// A decision has failed: without an answer of the server it is made offline.
    pub fn fail(&mut self, number: usize, error: &DecideError) {
        if error.allows_offline() {
            self.decide_offline(number);
        } else {
            self.refuse(number, "fenced");
        }
    }

    fn read(&mut self, number: usize) {
        let gateway = self.asked(number).1;
        let call = self.read_call(gateway);
        if self.send(gateway, call, Pending::Read(number)).is_err() {
            self.fail(number, &CommandError::Unreachable.into());
        }
    }

    fn read_call(&self, gateway: usize) -> Call {
        let keys = [&self.directory.key_record, &self.directory.org_record].map(|name| Bytes::from(&name[..])).into();
        Call::Script(Script::Decide, keys, vec![self.gateways[gateway].id.clone(), encode_read().to_vec()])
    }

    /// A gateway reads the key, before the search begins.
    pub fn warm_up(&mut self, gateway: usize) {
        let directory = Rc::clone(&self.directory);
        let asked = directory.request(steady(self.now), self.scene.cost);
        let Call::Script(script, keys, arguments) = self.read_call(gateway) else { unreachable!("it is a script") };
        let reply = self.server.run(&self.scripts, self.now, &directory.key_record, (script, &keys, &arguments));
        let shared = &self.gateways[gateway].decisions;
        let (mut steps, _) = DecisionSteps::begin(shared, &asked);
        let found = decode_read(value(reply)).unwrap();
        drop(steps.after_read(shared, &asked, found.as_ref(), steady(self.now)));
    }

    pub fn complete_read(&mut self, number: usize, reply: Value) {
        let now = steady(self.now);
        match decode_read(reply) {
            Ok(found) => {
                self.go_on(number, |steps, shared, asked| steps.after_read(shared, asked, found.as_ref(), now))
            }
            Err(error) => self.fail(number, &error.into()),
        }
    }

    /// A session or a token was read.
    pub fn complete_find(&mut self, number: usize, found: Option<Vec<u8>>) {
        let Some(request) = self.request(number) else { return };
        let (gateway, credential) = (request.gateway, request.credential);
        let kept = &self.gateways[gateway].kept;
        if self.directory.is_live(credential, found.as_deref(), kept) {
            self.admit(number, None, false);
        } else {
            self.refuse(number, "ended");
        }
    }

    fn call(&mut self, number: usize, entry: Arc<CachedKey>, evaluation: Evaluation) {
        let request = self.requests[number].as_ref().expect("it is there");
        let (gateway, late, asked) = (request.gateway, Arc::clone(&request.late), steady(request.asked));
        let shared = &self.gateways[gateway].decisions;
        let input = match DecideInput::begin(shared, &entry, evaluation, asked, instant(self.now)) {
            Ok(input) => input,
            Err(lease) => {
                let outcome = CallOutcome::LeaseInDoubt(lease);
                return self.go_on(number, |steps, shared, asked| steps.after_call(shared, asked, entry, outcome));
            }
        };
        let call = self.decide_call(gateway, &entry, &input);
        let pending = PendingDecide { request: number, entry, input, late, is_late: false, is_local: false };
        if let Err(Pending::Decide(pending)) = self.send(gateway, call, Pending::Decide(Box::new(pending))) {
            self.complete_decide(gateway, *pending, Err(CommandError::Unreachable));
        }
    }

    /// A call of `decide.lua`.
    pub fn decide_call(&self, gateway: usize, entry: &CachedKey, input: &DecideInput) -> Call {
        let shared = &self.gateways[gateway].decisions;
        let encoded = CallArguments::new(shared, entry, input);
        let (keys, arguments) = encoded.keys_and_arguments(shared, entry);
        let keys = keys[..encoded.keys].iter().map(|key| Bytes::from(*key)).collect();
        let arguments = arguments[..encoded.arguments].iter().map(|argument| argument.to_vec()).collect();
        Call::Script(Script::Decide, keys, arguments)
    }

    /// Looks if releases in flight have reached the server; `is_over` ends the wait for them.
    pub fn await_releases(&mut self, number: usize, is_over: bool) {
        let Some(request) = self.request(number) else { return };
        let Some((entry, decided)) = &request.denied else { return };
        let has_arrived = !decided.exhausted_lease(entry).has_report_in_flight();
        if !has_arrived && !is_over {
            return;
        }
        request.phase = Phase::Deciding;
        let Some(denied) = request.denied.take() else { return };
        self.go_on(number, |steps, shared, asked| steps.after_releases(shared, asked, denied, has_arrived));
    }

    /// A reply to a decide call, or why there is none.
    pub fn complete_decide(&mut self, gateway: usize, pending: PendingDecide, reply: Result<Value, CommandError>) {
        let PendingDecide { request, entry, input, late, is_late, is_local } = pending;
        let result = complete(&self.gateways[gateway].decisions, &entry, input, reply, steady(self.now));
        if !is_late {
            return match result {
                Ok(outcome) => {
                    self.go_on(request, |steps, shared, asked| steps.after_call(shared, asked, entry, outcome));
                }
                Err(error) => self.fail(request, &error),
            };
        }
        let ran = took_token(&result);
        let cost = self.scene.cost;
        let shared = &self.gateways[gateway].decisions;
        give_back(shared, &entry, cost.units(), result);
        if late.complete(ran) {
            shared.record_unreported(&entry, cost.tokens());
        }
        if is_local {
            self.note_late_answer(ran);
        }
    }

    /// The deadline of a decision is over.
    pub fn reach_deadline(&mut self, number: usize) {
        let Some(request) = self.request(number) else { return };
        let (gateway, phase) = (request.gateway, request.phase);
        match phase {
            Phase::Open | Phase::AwaitingReleases => return,
            Phase::Verifying => return self.decide_verified(number),
            Phase::Confirming => return self.refuse(number, "unavailable"),
            Phase::Deciding => {}
        }
        for (_, waiting) in &mut self.gateways[gateway].resyncing {
            waiting.retain(|(request, _)| *request != number);
        }
        let is_of_request = |message: &&mut Option<Message>| match message.as_ref().map(|message| &message.pending) {
            Some(Some(Pending::Decide(pending))) => pending.request == number && !pending.is_late,
            Some(Some(Pending::Read(request) | Pending::Find(request))) => *request == number,
            Some(Some(Pending::Resync { request: Some((request, _)), .. })) => *request == number,
            _ => false,
        };
        let message = self.messages.iter_mut().find(is_of_request).and_then(Option::as_mut);
        let mut is_awaited = false;
        if let Some(message) = message {
            match &mut message.pending {
                // A task awaits the reply from now on.
                Some(Pending::Decide(pending)) => {
                    pending.is_late = true;
                    pending.late.mark_pending();
                    is_awaited = true;
                }
                pending => {
                    if let Some(Pending::Resync { subject, .. }) = pending.take() {
                        self.end_resync(gateway, subject);
                    }
                }
            }
        }
        self.request(number).expect("it is there").is_awaited = is_awaited;
        self.decide_offline(number);
    }

    /// Decides without the server.
    fn decide_offline(&mut self, number: usize) {
        let request = self.requests.get(number).and_then(Option::as_ref);
        let Some(request) = request.filter(|request| request.phase != Phase::Open) else { return };
        let (gateway, late, credential) = (request.gateway, Arc::clone(&request.late), request.credential);
        if credential != Credential::Key {
            return self.refuse(number, "unavailable");
        }
        let (asked, _) = self.asked(number);
        let now = steady(self.now);
        let decided = self.gateways[gateway].decisions.decide_offline(&asked, Some(&late), |_| None, now);
        match decided {
            Some(Decision::Admitted(admitted)) => self.admit(number, Some(admitted.permit), true),
            Some(Decision::Denied { refusal, .. }) => self.refuse(number, refusal.row().answer.code),
            None => self.refuse(number, "unavailable"),
        }
    }

    /// A request is admitted while a task awaits the reply about it.
    fn mark_local(&mut self, number: usize) {
        for message in self.messages.iter_mut().flatten() {
            if let Some(Pending::Decide(pending)) = &mut message.pending
                && pending.request == number
                && pending.is_late
            {
                pending.is_local = true;
            }
        }
    }

    /// A request is admitted.
    fn admit(&mut self, number: usize, permit: Option<Permit>, is_provisional: bool) {
        let Some(request) = self.request(number) else { return };
        (request.phase, request.permit, request.is_provisional) = (Phase::Open, permit, is_provisional);
        request.steps = None;
        let (gateway, credential) = (request.gateway, request.credential);
        if is_provisional && request.is_awaited {
            self.mark_local(number);
        }
        self.tell(|| {
            let without = if is_provisional { ", without Redis" } else { "" };
            format!("{}: /{number} is admitted{without}", name(gateway))
        });
        self.check_admission(number);
        // A session or token is only found; it holds nothing.
        if credential != Credential::Key {
            self.requests[number] = None;
        }
    }

    /// A request is refused.
    pub fn refuse(&mut self, number: usize, why: &'static str) {
        let Some(request) = self.request(number) else { return };
        let gateway = request.gateway;
        self.tell(|| format!("{}: /{number} is refused: {why}", name(gateway)));
        self.rest_refusal = Some(why);
        self.check_refusal(number, why);
        self.requests[number] = None;
    }

    /// An exchange ends; `cost` is the place of what its response says.
    pub fn end_request(&mut self, number: usize, cost: Option<usize>) {
        let Some(request) = self.requests[number].take() else { return };
        let Some(reservation) = request.permit.and_then(Permit::into_reservation) else { return };
        let reserved = reservation.units;
        let actual = cost.map_or(reserved, |cost| self.scene.costs[cost]);
        let start = reservation.start().0;
        reservation.settle(actual);
        self.oracle.settle(start, reserved, actual);
    }
}

/// Name of a gateway in a history.
pub fn name(gateway: usize) -> &'static str {
    ["A", "B"][gateway % GATEWAYS]
}

impl World {
    /// The steps of a confirmation are left out, where that is the fault.
    pub fn skips_confirmation(&self) -> bool {
        self.fault == Fault::NoConfirmation || !self.scene.reads_identity
    }
}
