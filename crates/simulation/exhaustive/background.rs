//! Background work of a gateway: visits to its leases, resyncs, reports of uses, the log, revocations, registration.
//! The decisions about them are the product's own.

use std::ops::ControlFlow;
use std::sync::Arc;

use domain::clock::Micros;
use redis::Value;
use redis_client::{CommandError, Replication};
use state::redis::{
    CachedKey, DecideInput, Evaluation, HeartbeatAction, HeartbeatRound, Kept, LeaseVisit, Resync, SlotReport,
    SlotReportReply, SlotSubject, after_status_call, complete, round_trips, sign_argument,
};

use crate::database::Bytes;
use crate::gateway::ResyncFor;
use crate::lua::{Reply, Script};
use crate::messages::{Call, Pending, Visited};
use crate::mutants::Fault;
use crate::world::{World, instant, steady};

impl World {
    /// All that a connected gateway does again and again, delivered at once.
    pub fn do_background(&mut self, gateway: usize) {
        self.send_sign(gateway);
        if self.scene.reads_identity {
            self.watch_identity(gateway);
        }
        self.read_log(gateway);
        for work in [Self::assert_revocations, Self::visit_leases, Self::report_uses] {
            work(self, gateway);
            self.deliver_all(gateway);
        }
    }

    /// Delivers what a gateway has in flight.
    pub fn deliver_all(&mut self, gateway: usize) {
        while let Some(number) = self.messages.iter().position(|message| {
            let awaits = |one: &&crate::messages::Message| one.gateway == gateway && one.pending.is_some();
            message.as_ref().filter(awaits).is_some_and(|one| one.answer.is_some() || self.can_arrive(one))
        }) {
            self.arrive(number);
            self.answer(number);
        }
    }

    /// One round of visits to the active leases.
    pub fn visit_leases(&mut self, gateway: usize) {
        let renew_interval = self.directory.settings.renew_interval();
        let round = HeartbeatRound { now: instant(self.now), near_limit_only: false, renew_interval };
        for LeaseVisit { lease, action } in self.gateways[gateway].decisions.slots.due_visits(round, usize::MAX) {
            let subject = lease.0.subject;
            match action {
                HeartbeatAction::Report(report, deregister) => {
                    let call = self.slot_report(gateway, subject, &SlotReport::new(&report, deregister));
                    let pending = Pending::Report(Visited(lease), report);
                    if let Err(Pending::Report(_, report)) = self.send(gateway, call, pending) {
                        report.complete(Err(CommandError::Unreachable));
                    }
                }
                HeartbeatAction::Resync => self.resync(gateway, subject, None, Some(Visited(lease))),
                HeartbeatAction::None | HeartbeatAction::Retire => {}
            }
        }
    }

    fn lease_of(&self, gateway: usize, subject: SlotSubject) -> Arc<state::redis::SlotLease> {
        let slots = &self.gateways[gateway].decisions.slots;
        match subject {
            SlotSubject::Org(tag) => slots.lease_of(tag),
            SlotSubject::Key(id) => slots.key_lease_of(id),
        }
    }

    /// The call of `slot_report.lua`.
    fn slot_report(&self, gateway: usize, subject: SlotSubject, report: &SlotReport) -> Call {
        let keys = self.lease_of(gateway, subject).report_keys().into_iter().map(Bytes::from).collect();
        let sign = self.gateways[gateway].decisions.slots.sign_of(0);
        let arguments = vec![self.gateways[gateway].id.clone(), report.encode(&self.directory.settings, sign)];
        Call::Script(Script::SlotReport, keys, arguments)
    }

    /// Resyncs a lease, for a request that waits for it or for a visit; one at a time, as `SlotLeases::resync`.
    pub fn resync(
        &mut self,
        gateway: usize,
        subject: SlotSubject,
        request: Option<ResyncFor>,
        visited: Option<Visited>,
    ) {
        let resyncing = &mut self.gateways[gateway].resyncing;
        if let Some((_, waiting)) = resyncing.iter_mut().find(|(one, _)| *one == subject) {
            // The visit leaves it to the one that goes on.
            waiting.extend(request);
            return;
        }
        let Some(resync) = self.lease_of(gateway, subject).begin_resync(instant(self.now)) else {
            return self.go_on_after_resync(request, true);
        };
        self.gateways[gateway].resyncing.push((subject, Vec::new()));
        let call = self.slot_report(gateway, subject, &resync.into());
        let pending = Pending::Resync { subject, resync, request, visited };
        if let Err(pending) = self.send(gateway, call, pending) {
            self.lose(gateway, pending, CommandError::Unreachable);
        }
    }

    /// A resync is over: those that waited for it go on, or begin the next one.
    pub fn end_resync(&mut self, gateway: usize, subject: SlotSubject) {
        let resyncing = &mut self.gateways[gateway].resyncing;
        let Some(place) = resyncing.iter().position(|(one, _)| *one == subject) else { return };
        let (_, waiting) = resyncing.remove(place);
        if self.fault == Fault::ForgetsWaiting {
            return;
        }
        waiting.into_iter().for_each(|request| self.resync(gateway, subject, Some(request), None));
    }

    pub fn complete_resync(
        &mut self,
        gateway: usize,
        subject: SlotSubject,
        (resync, request): (Resync, Option<ResyncFor>),
        reply: SlotReportReply,
    ) {
        let exists = self.lease_of(gateway, subject).complete_resync(resync, reply);
        self.oracle.note_resync(gateway, subject, reply);
        self.end_resync(gateway, subject);
        self.go_on_after_resync(request, exists);
    }

    fn go_on_after_resync(&mut self, request: Option<ResyncFor>, exists: bool) {
        let Some((number, entry)) = request else { return };
        self.go_on(number, |steps, shared, asked| steps.after_resync(shared, asked, entry, exists));
    }

    /// Reports uses that were admitted without the server, and units that came back.
    pub fn report_uses(&mut self, gateway: usize) {
        if !self.is_linked(gateway) {
            return;
        }
        for listed in self.gateways[gateway].decisions.take_unreported_keys() {
            let entry = Arc::clone(&listed);
            self.send_status(gateway, listed, entry, 0);
        }
    }

    fn send_status(&mut self, gateway: usize, listed: Arc<CachedKey>, entry: Arc<CachedKey>, attempts: usize) {
        let shared = &self.gateways[gateway].decisions;
        let now = steady(self.now);
        let input = DecideInput::begin(shared, &entry, Evaluation::StatusOnly, now, instant(self.now))
            .unwrap_or_else(|_| panic!("nothing is acquired"));
        let call = self.decide_call(gateway, &entry, &input);
        let pending = Pending::Status { listed, entry, input, attempts };
        if let Err(pending) = self.send(gateway, call, pending) {
            self.lose(gateway, pending, CommandError::Unreachable);
        }
    }

    pub fn complete_status(
        &mut self,
        gateway: usize,
        (listed, entry, input, mut attempts): (Arc<CachedKey>, Arc<CachedKey>, DecideInput, usize),
        reply: Result<Value, CommandError>,
    ) {
        let result = complete(&self.gateways[gateway].decisions, &entry, input, reply, steady(self.now));
        match result.and_then(|outcome| after_status_call(&mut attempts, outcome)) {
            Ok(ControlFlow::Continue(fresh)) => self.send_status(gateway, listed, fresh, attempts),
            ended => {
                let is_gone = matches!(ended, Ok(ControlFlow::Break(None)));
                self.gateways[gateway].decisions.end_report(&listed, is_gone);
            }
        }
    }

    /// Reads the log of revocations to its end.
    pub fn read_log(&mut self, gateway: usize) {
        let mut next = Some(self.gateways[gateway].follower.begin());
        while let Some(read) = next {
            let value = |field: &String| self.server.field(&self.directory.log, field.as_bytes());
            let values = read.fields().iter().map(|field| value(field).map(|value| value.to_vec())).collect();
            next = self.gateways[gateway].follower.after(read, values, Micros(1));
        }
        self.gateways[gateway].follower.request_due_checks(instant(self.now));
        self.oracle_note_log(gateway);
    }

    /// Writes to the server the kept revocations that its history has not confirmed.
    pub fn assert_revocations(&mut self, gateway: usize) {
        if !self.is_linked(gateway) || self.fault == Fault::NoAssertion {
            return;
        }
        let history: Arc<str> = format!("history {}", self.server.history).into();
        let kept = Arc::clone(&self.gateways[gateway].kept);
        let mut missing = kept.unconfirmed(&history, |_| true);
        missing.sort_by_cached_key(|one| (one.slot, kept.writes(std::slice::from_ref(one))));
        for script in round_trips(&missing, false).into_iter().flatten() {
            let writes = kept.writes(script);
            let keys = writes.iter().map(|(record, _)| Bytes::from(record.as_bytes())).collect();
            let version = self.server.next_version().to_vec();
            let texts = writes.iter().map(|(_, write)| write.clone().into_bytes());
            let arguments = std::iter::once(version).chain(texts).collect();
            let call = Call::Script(Script::AssertRevocations, keys, arguments);
            drop(self.send(gateway, call, Pending::Assert(script.to_vec(), Arc::clone(&history))));
        }
    }

    pub fn complete_assertion(&mut self, gateway: usize, kept: &[Kept], history: Arc<str>) {
        let replication = Replication { history, is_primary: true, ..Default::default() };
        self.gateways[gateway].kept.confirm(kept, &replication);
        self.oracle_note_assertion(gateway);
    }

    /// Registers both gateways, until each has seen the other one. Only where a scene has shares: without, the gateways
    /// are the same but for their names.
    pub fn register_all(&mut self, first: usize) {
        let rounds = if self.scene.is_offline { 3 } else { 0 };
        for gateway in [first, 1 - first].repeat(rounds) {
            self.register(gateway);
        }
    }

    /// A heartbeat of the registration.
    fn register(&mut self, gateway: usize) {
        let beat = steady(self.now);
        let told = self.gateways[gateway].decisions.slots.joins_to_tell(beat);
        let names = &self.directory.names;
        let keys = [names.gateways(), names.registry()].map(|name| Bytes::from(name.as_bytes()));
        let id = self.gateways[gateway].id.clone();
        let numbers = [self.directory.settings.registration_micros(), told[0], told[1]];
        let numbers = numbers.map(|number| number.to_string().into_bytes());
        let arguments: Vec<_> = std::iter::once(id).chain(numbers).collect();
        let reply = self.run_at_once(Script::Heartbeat, &keys, &arguments);
        self.gateways[gateway].decisions.slots.complete_heartbeat(&reply, beat, told[0], beat).unwrap();
    }

    /// A heartbeat to the server.
    fn send_sign(&mut self, gateway: usize) {
        let keys = [Bytes::from(&b"keygate:{alive}"[..])];
        let reply = self.run_at_once(Script::SignOfLife, &keys, &[sign_argument(&self.directory.settings)]);
        self.gateways[gateway].decisions.slots.note_sign(std::iter::once(0..=u16::MAX).collect(), &reply);
    }

    fn run_at_once(&mut self, script: Script, keys: &[Bytes], arguments: &[Vec<u8>]) -> Vec<u8> {
        let key = &self.directory.key_record;
        match self.server.run(&self.scripts, self.now, key, (script, keys, arguments)) {
            Reply::Packed(packed) => packed,
            reply => unreachable!("{script:?} has a packed reply, not {reply:?}"),
        }
    }
}
