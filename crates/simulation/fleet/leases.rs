//! Background work of a gateway that concerns slots and shares: visits to its leases, resyncs, registration, and
//! reports of uses that were admitted without Redis. What is decided about them is the product's own.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use redis::Value;
use redis_client::CommandError;
use state::redis::{
    CachedKey, DecideInput, Evaluation, HeartbeatAction, HeartbeatRound, LeaseVisit, Membership, Resync, SlotReport,
    SlotReportReply, TICK, VisitedLease, after_status_call, complete,
};

use super::decisions::decide_call;
use super::event::{Call, Event, Pending, PendingStatus, Process, ResyncFor};
use super::lua::Script;
use super::subjects::Subject;
use super::trace::{Entry, NONE};
use super::world::World;

impl World {
    /// One round of visits to the active leases; and the reports of uses.
    pub fn visit_leases(&mut self, process: Process, early: bool) {
        let now = self.now;
        let base = self.base;
        let renew_interval = self.product.settings.renew_interval();
        let Some(gateway) = self.live(process) else { return };
        let instant = gateway.instant(base, now);
        let round = HeartbeatRound { now: instant, near_limit_only: early, renew_interval };
        for LeaseVisit { lease, action } in gateway.decisions.slots.due_visits(round, usize::MAX) {
            self.carry_out(process, lease, action);
        }
        if !early {
            self.flush_unreported(process);
            let tick = u64::try_from(TICK.as_micros()).unwrap();
            self.queue.add(now + tick, Event::Visit(process, false));
        }
    }

    fn carry_out(&mut self, process: Process, visited: VisitedLease, action: HeartbeatAction) {
        let subject = self.directory.subject(visited.0.subject);
        match action {
            HeartbeatAction::Report(report, deregister) => {
                let call = self.slot_report(process, subject, &SlotReport::new(&report, deregister));
                let pending = Pending::Report { visited, subject, report };
                if let Err(Pending::Report { report, .. }) =
                    self.send(process, self.directory.shard_of_subject(subject), call, pending)
                {
                    report.complete(Err(CommandError::Unreachable));
                }
            }
            HeartbeatAction::Resync => self.resync(process, subject, None, Some(visited)),
            HeartbeatAction::None | HeartbeatAction::Retire => {}
        }
    }

    /// The call of `slot_report.lua`.
    fn slot_report(&self, process: Process, subject: Subject, report: &SlotReport) -> Call {
        let gateway = &self.gateways[process.gateway];
        let lease = gateway.lease_of(&self.directory, subject);
        let keys = lease.report_keys().into_iter().map(Rc::from).collect();
        let sign = gateway.decisions.slots.sign_of(self.hash_slot_of(subject));
        let arguments = vec![gateway.id.clone(), report.encode(&self.product.settings, sign)];
        Call::Script { script: Script::SlotReport, keys, arguments }
    }

    /// Resyncs the lease of a subject, for a request that waits for it or for a visit; one at a time, as
    /// `SlotLeases::resync`.
    pub fn resync(
        &mut self,
        process: Process,
        subject: Subject,
        request: Option<ResyncFor>,
        visited: Option<VisitedLease>,
    ) {
        let gateway = &mut self.gateways[process.gateway];
        if let Some(waiting) = gateway.resyncing.get_mut(&subject) {
            // The visit leaves it to the one that goes on.
            waiting.extend(request);
            return;
        }
        let lease = gateway.lease_of(&self.directory, subject);
        let Some(resync) = lease.begin_resync(gateway.instant(self.base, self.now)) else {
            return self.go_on_after_resync(request, true);
        };
        gateway.resyncing.insert(subject, Vec::new());
        let call = self.slot_report(process, subject, &resync.into());
        let id = request.as_ref().map(|(id, _)| *id);
        let pending = Pending::Resync { subject, resync, request, visited };
        match self.send(process, self.directory.shard_of_subject(subject), call, pending) {
            Ok(command) => id.into_iter().for_each(|id| self.wait_for(id, command)),
            Err(_) => {
                self.end_resync(process, subject);
                id.into_iter().for_each(|id| self.fail(id, &CommandError::Unreachable.into()));
            }
        }
    }

    /// A resync is over: those that waited for it go on, or begin the next one.
    pub fn end_resync(&mut self, process: Process, subject: Subject) {
        let waiting = self.gateways[process.gateway].resyncing.remove(&subject).unwrap_or_default();
        waiting.into_iter().for_each(|request| self.resync(process, subject, Some(request), None));
    }

    pub fn complete_resync(
        &mut self,
        process: Process,
        subject: Subject,
        (resync, request): (Resync, Option<ResyncFor>),
        reply: SlotReportReply,
    ) {
        let gateway = &self.gateways[process.gateway];
        let exists = gateway.lease_of(&self.directory, subject).complete_resync(resync, reply);
        self.note_slots(process, subject, reply);
        self.end_resync(process, subject);
        self.go_on_after_resync(request, exists);
    }

    fn go_on_after_resync(&mut self, request: Option<ResyncFor>, exists: bool) {
        let Some((id, entry)) = request else { return };
        self.go_on(id, |steps, shared, asked| steps.after_resync(shared, asked, entry, exists));
    }

    /// Notes that Redis has answered about the slots of an organization.
    pub fn note_slots(&mut self, process: Process, subject: Subject, reply: SlotReportReply) {
        // An answer about a key alone says nothing about the slots of its organization.
        if let (SlotReportReply::Done(_), Subject::Org(org)) = (reply, subject) {
            self.gateways[process.gateway].noticed.remove(&org);
        }
    }

    /// Reports the uses that were admitted without Redis.
    fn flush_unreported(&mut self, process: Process) {
        for listed in self.gateways[process.gateway].decisions.take_unreported_keys() {
            let entry = Arc::clone(&listed);
            self.report_uses(process, listed, entry, 0);
        }
    }

    fn report_uses(&mut self, process: Process, listed: Arc<CachedKey>, entry: Arc<CachedKey>, attempts: usize) {
        let gateway = &self.gateways[process.gateway];
        let now = gateway.steady(self.now);
        let instant = gateway.instant(self.base, self.now);
        let input = DecideInput::begin(&gateway.decisions, &entry, Evaluation::StatusOnly, now, instant)
            .unwrap_or_else(|_| panic!("nothing is acquired"));
        let call = decide_call(&gateway.decisions, &entry, &input);
        let key = self.directory.key_of(entry.key_id().expect("the key of a client"));
        let pending = PendingStatus { key, listed, entry, input, attempts };
        if let Err(Pending::Status(pending)) =
            self.send(process, self.directory.shard_of_key(key), call, Pending::Status(Box::new(pending)))
        {
            self.complete_status(process, *pending, Err(CommandError::Unreachable));
        }
    }

    pub fn complete_status(&mut self, process: Process, pending: PendingStatus, reply: Result<Value, CommandError>) {
        let PendingStatus { key, listed, entry, input, mut attempts } = pending;
        let gateway = &self.gateways[process.gateway];
        let result = complete(&gateway.decisions, &entry, input, reply, gateway.steady(self.now));
        self.note_result(process, key, &result);
        match result.and_then(|outcome| after_status_call(&mut attempts, outcome)) {
            Ok(ControlFlow::Continue(fresh)) => self.report_uses(process, listed, fresh, attempts),
            ended => {
                let is_gone = matches!(ended, Ok(ControlFlow::Break(None)));
                self.gateways[process.gateway].decisions.end_report(&listed, is_gone);
            }
        }
    }

    /// A heartbeat of the registration.
    pub fn register(&mut self, process: Process) {
        let now = self.now;
        if now > self.end {
            return;
        }
        let Some(gateway) = self.live(process) else { return };
        let beat = gateway.steady(now);
        let told = gateway.decisions.slots.joins_to_tell(beat);
        let [seen, _] = told;
        let call = self.heartbeat_call(process, self.product.settings.registration_micros(), told);
        if self.send(process, self.gateways_shard, call, Pending::Register { beat, seen }).is_err() {
            self.retry_register(process);
        }
    }

    /// A heartbeat was not sent, or not answered.
    pub fn retry_register(&mut self, process: Process) {
        self.plan_heartbeat(process, false);
    }

    pub fn heartbeat_call(&self, process: Process, lifetime: u64, [seen, claimed]: [u64; 2]) -> Call {
        let keys = [&self.gateways_record, &self.registry_record].map(|name| Rc::from(&name[..])).to_vec();
        let id = self.gateways[process.gateway].id.clone();
        let numbers = [lifetime, seen, claimed].map(|number| number.to_string().into_bytes());
        let arguments = std::iter::once(id).chain(numbers).collect();
        Call::Script { script: Script::Heartbeat, keys, arguments }
    }

    pub fn complete_register(&mut self, process: Process, beat: domain::clock::Micros, seen: u64, reply: &[u8]) {
        let now = self.now;
        let gateway = &mut self.gateways[process.gateway];
        let steady = gateway.steady(now);
        let slots = &gateway.decisions.slots;
        let is_settled = slots.complete_heartbeat(reply, beat, seen, steady).unwrap();
        let count = slots.membership().map_or(1, Membership::gateways);
        if gateway.counts.last().is_none_or(|(_, last)| *last != count) {
            gateway.counts.push((steady.0, count));
            let entry = Entry {
                time: now,
                what: "number of gateways",
                gateway: process.gateway,
                key: NONE,
                org: NONE,
                shard: NONE,
                number: count.into(),
            };
            self.trace.add(entry);
        }
        self.plan_heartbeat(process, is_settled);
    }

    fn plan_heartbeat(&mut self, process: Process, is_settled: bool) {
        let pause = self.gateways[process.gateway].decisions.slots.next_heartbeat(is_settled);
        self.queue.add(self.now + u64::try_from(pause.as_micros()).unwrap(), Event::Register(process));
    }
}
