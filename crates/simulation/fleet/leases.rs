//! Background work of a gateway that concerns slots and shares: visits to its leases, resyncs, registration, and
//! reports of uses that were admitted without Redis. It follows `crates/state/src/redis/slots` and `maintenance`; what
//! is decided about a lease, and the membership, are the product's own.

use std::rc::Rc;

use state::redis::{HeartbeatAction, HeartbeatRound, Membership, Resync, TICK, VisitedLease, retry_interval};

use super::event::{Call, Event, Pending, Process};
use super::gateway::{LEASE_US, REGISTRATION, RENEW};
use super::lua::Script;
use super::shard::number_at;
use super::trace::{Entry, NONE};
use super::world::World;

/// Interval of heartbeats while Redis does not confirm them, and until the gateways know of each other.
fn retry_pause(gateways: u32) -> u64 {
    (retry_interval(gateways).as_micros() as u64).min(RENEW)
}

impl World {
    /// One round of visits to the active leases, as `visit_leases` of the product; and the reports of uses.
    pub fn visit_leases(&mut self, process: Process, early: bool) {
        let (now, base) = (self.now, self.base);
        let Some(gateway) = self.live(process) else { return };
        let instant = gateway.instant(base, now);
        let renew_interval = std::time::Duration::from_micros(RENEW);
        let round = HeartbeatRound { now: instant, near_limit_only: early, renew_interval };
        let (mut retired, mut due) = (Vec::new(), Vec::new());
        for lease in gateway.active.all() {
            match lease.begin_visit(round) {
                HeartbeatAction::None => {}
                HeartbeatAction::Retire => retired.push(lease),
                action => due.push((VisitedLease(lease), action)),
            }
        }
        gateway.active.remove(&retired);
        for (visited, action) in due {
            self.carry_out(process, visited, action);
        }
        if !early {
            self.flush_unreported(process);
            let tick = u64::try_from(TICK.as_micros()).unwrap();
            self.queue.add(now + tick, Event::Visit(process, false));
        }
    }

    fn carry_out(&mut self, process: Process, visited: VisitedLease, action: HeartbeatAction) {
        let org = self.directory.org_of(visited.0.tag);
        match action {
            HeartbeatAction::Report(report, deregister) => {
                let call = self.slot_report(process, org, None, report.released, report.generation, deregister);
                let pending = Pending::Report { visited, org, report };
                if let Err(Pending::Report { report, .. }) =
                    self.send(process, self.directory.orgs[org].shard, call, pending)
                {
                    report.not_sent();
                }
            }
            HeartbeatAction::Resync => self.resync(process, org, None, Some(visited)),
            HeartbeatAction::None | HeartbeatAction::Retire => {}
        }
    }

    /// The call of `slot_report.lua`, as `SlotLeases::send_slot_report` packs it.
    fn slot_report(
        &self,
        process: Process,
        org: usize,
        absolute: Option<u32>,
        released: u32,
        generation: u64,
        deregister: bool,
    ) -> Call {
        let numbers = [
            absolute.map_or(-1.0, f64::from),
            f64::from(released),
            LEASE_US as f64,
            generation as f64,
            f64::from(u8::from(deregister)),
            0.0,
        ];
        let packed = numbers.map(f64::to_le_bytes).as_flattened().to_vec();
        let keys = vec![Rc::from(&self.directory.orgs[org].record[..])];
        Call::Script {
            script: Script::SlotReport,
            keys,
            arguments: vec![self.gateways[process.gateway].id.clone(), packed],
        }
    }

    /// Resyncs the lease of an organization, for a request that waits for it or for a visit; as `SlotLeases::resync`.
    pub fn resync(&mut self, process: Process, org: usize, request: Option<u64>, visited: Option<VisitedLease>) {
        let (now, base) = (self.now, self.base);
        let gateway = &mut self.gateways[process.gateway];
        if let Some(waiting) = gateway.resyncing.get_mut(&org) {
            // One at a time. The visit leaves it to the one that goes on.
            waiting.extend(request);
            return;
        }
        let lease = gateway.lease(org, &self.directory.orgs[org], base, now);
        let Some(resync) = lease.begin_resync(gateway.instant(base, now)) else {
            return request.into_iter().for_each(|request| self.attempt(request));
        };
        let call = self.slot_report(process, org, Some(resync.held), 0, resync.generation, resync.held == 0);
        self.gateways[process.gateway].resyncing.insert(org, Vec::new());
        let pending = Pending::Resync { org, resync, request, visited };
        match self.send(process, self.directory.orgs[org].shard, call, pending) {
            Ok(command) => {
                if let Some(request) = request {
                    self.wait_for(request, command);
                }
            }
            Err(_) => {
                self.end_resync(process, org);
                request.into_iter().for_each(|request| self.decide_offline(request));
            }
        }
    }

    /// A resync is over: those that waited for it go on.
    pub fn end_resync(&mut self, process: Process, org: usize) {
        let waiting = self.gateways[process.gateway].resyncing.remove(&org).unwrap_or_default();
        waiting.into_iter().for_each(|request| self.attempt(request));
    }

    pub fn complete_resync(&mut self, process: Process, org: usize, resync: Resync, reply: &[u8]) {
        let (now, base) = (self.now, self.base);
        let [code, taken] = [0, 1].map(|place| number_at(reply, place));
        let gateway = &mut self.gateways[process.gateway];
        let lease = gateway.lease(org, &self.directory.orgs[org], base, now);
        // The codes of `slot_report.lua`.
        match code as u32 {
            0 => {
                lease.finish_resync(resync, false);
                lease.note_answer(taken as u32);
                gateway.noticed.remove(&org);
            }
            2 => lease.finish_resync(resync, true),
            _ => {}
        }
    }

    /// Reports the uses that were admitted without Redis, as `Decider::flush_unreported`.
    fn flush_unreported(&mut self, process: Process) {
        let keys = std::mem::take(&mut self.gateways[process.gateway].unreported);
        for key in keys {
            let cached = self.gateways[process.gateway].keys.get(&key);
            let Some(uses) = cached.and_then(|cached| cached.usage.unreported()) else { continue };
            let Some(call) = self.status_call(process, key, uses) else { continue };
            let shard = self.directory.shard_of_key(key);
            if self.send(process, shard, call, Pending::Status { key, uses }).is_err() {
                self.gateways[process.gateway].unreported.push(key);
            }
        }
    }

    /// A heartbeat of the registration, as `keep_registered` of the product.
    pub fn register(&mut self, process: Process) {
        let now = self.now;
        if now > self.end {
            return;
        }
        let Some(gateway) = self.live(process) else { return };
        let (beat, seen) = (gateway.steady(now), gateway.membership.map_or(0, |membership| membership.latest_join));
        let call = self.heartbeat_call(process, REGISTRATION, seen);
        if self.send(process, self.gateways_shard, call, Pending::Register { beat, seen }).is_err() {
            self.retry_register(process);
        }
    }

    /// A heartbeat was not sent, or not answered.
    pub fn retry_register(&mut self, process: Process) {
        let gateways = self.gateways[process.gateway].membership.map_or(1, |membership| membership.gateways());
        self.queue.add(self.now + retry_pause(gateways), Event::Register(process));
    }

    pub fn heartbeat_call(&self, process: Process, lifetime: u64, seen: u64) -> Call {
        let keys = vec![Rc::from(&self.gateways_record[..])];
        let id = self.gateways[process.gateway].id.clone();
        let arguments = vec![id, lifetime.to_string().into_bytes(), seen.to_string().into_bytes()];
        Call::Script { script: Script::Heartbeat, keys, arguments }
    }

    pub fn complete_register(&mut self, process: Process, beat: domain::clock::Micros, seen: u64, reply: &[u8]) {
        let now = self.now;
        let membership = Membership::decode(reply, beat).unwrap();
        let gateway = &mut self.gateways[process.gateway];
        let steady = gateway.steady(now);
        gateway.membership = Some(membership.following(gateway.membership, steady));
        let count = membership.gateways();
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
        let pause = if membership.is_settled(seen) { RENEW } else { retry_pause(membership.gateways()) };
        self.queue.add(now + pause, Event::Register(process));
    }
}
