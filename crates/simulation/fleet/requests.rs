//! Requests: the decision of a gateway, with Redis or without, and the exchange that follows.
//!
//! The steps follow `crates/state/src/redis/decide`: `decider` (attempts, deadline), `decide_call` and `call_outcome`
//! (what a reply does). Permits, reports, shares, late answers and unreported uses are the product's own.

use std::sync::Arc;

use state::redis::Permit;
use state::redis::{LateAnswer, PendingReport, UnreportedUses};

use super::decide_calls::read_call;
use super::event::{Event, Pending, PendingDecide, Process};
use super::gateway::{DEADLINE, Gateway};
use super::journal::Line;
use super::lua::Reply;
use super::shard::number_at;
use super::trace::Entry;
use super::world::World;

/// As `MAX_ATTEMPTS` of `crates/state/src/redis/decide/decider.rs`.
const MAX_ATTEMPTS: u8 = 5;
/// Codes of `decide.lua`.
const UNKNOWN: f64 = 1.0;
const REVOKED: f64 = 2.0;
const UNREGISTERED: f64 = 9.0;

/// A request of a client.
pub struct Request {
    pub process: Process,
    pub key: usize,
    pub begun: u64,
    attempts: u8,
    pub late: Arc<LateAnswer>,
    /// The command that it waits for.
    command: Option<u64>,
    /// Held while it is forwarded.
    permit: Option<Permit>,
    pub provisional: bool,
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
        let late = Arc::default();
        let request = Request {
            process,
            key,
            begun: self.now,
            attempts: 0,
            late,
            command: None,
            permit: None,
            provisional: false,
        };
        self.requests.insert(id, request);
        self.queue.add(self.now + DEADLINE, Event::Deadline(id));
        self.attempt(id);
    }

    /// One attempt at a decision.
    pub fn attempt(&mut self, id: u64) {
        let Some(request) = self.requests.get_mut(&id).filter(|request| request.permit.is_none()) else { return };
        request.attempts += 1;
        let (process, key) = (request.process, request.key);
        if request.attempts > MAX_ATTEMPTS {
            return self.refuse(id, "contended");
        }
        let shard = self.directory.shard_of_key(key);
        let (now, base, directory) = (self.now, self.base, &self.directory);
        let (org, directory_key) = (directory.keys[key].org, &directory.keys[key]);
        let gateway = &mut self.gateways[process.gateway];
        let Some(cached) = gateway.cached(key, directory_key.id) else {
            let call = read_call(&gateway.id, &directory_key.record, &directory.orgs[org].record);
            return match self.send(process, shard, call, Pending::Read { request: id }) {
                Ok(command) => self.wait_for(id, command),
                Err(_) => self.decide_offline(id),
            };
        };
        let (versions, uses, is_revoked) = (cached.versions, cached.usage.unreported(), cached.is_revoked);
        let lease = gateway.lease(org, &directory.orgs[org], base, now);
        // A refused request acquires nothing, and so needs no valid lease.
        let report = if is_revoked { None } else { PendingReport::begin(&lease, gateway.instant(base, now)) };
        if report.is_none() && !is_revoked {
            return self.resync(process, org, Some(id), None);
        }
        let code = if is_revoked { REVOKED } else { 0.0 };
        let call = self.decide_call(process, key, code, versions, report.as_ref(), uses);
        let late = Arc::clone(&self.requests[&id].late);
        let pending = PendingDecide { request: id, key, report, uses, late, is_late: false };
        match self.send(process, shard, call, Pending::Decide(pending)) {
            Ok(command) => self.wait_for(id, command),
            Err(pending) => {
                if let Pending::Decide(pending) = pending {
                    pending.report.into_iter().for_each(PendingReport::not_sent);
                }
                self.decide_offline(id);
            }
        }
    }

    pub fn wait_for(&mut self, id: u64, command: u64) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.command = Some(command);
        }
    }

    /// A reply to a decide call; as `call_outcome` and `decide_with_retry` treat it.
    pub fn complete_decide(&mut self, process: Process, pending: PendingDecide, reply: Reply) {
        let PendingDecide { request, key, report, uses, late, is_late } = pending;
        let mut ran = false;
        match reply {
            Reply::Records(records) => {
                report.into_iter().for_each(PendingReport::not_sent);
                self.cache_records(process, key, &records);
                if !is_late {
                    return self.attempt(request);
                }
            }
            Reply::Packed(packed) => {
                let [code, level, taken, uses_now] = [0, 1, 2, 3].map(|place| number_at(&packed, place));
                if code == UNKNOWN {
                    report.into_iter().for_each(PendingReport::not_sent);
                    if !is_late {
                        return self.refuse(request, "unknown key");
                    }
                } else if code == UNREGISTERED {
                    report.into_iter().for_each(PendingReport::unregistered);
                    if !is_late {
                        return self.attempt(request);
                    }
                } else {
                    ran = code == 0.0;
                    self.confirm(process, key, level, uses_now, uses);
                    let permit = self.apply_report(process, key, report, code, taken as u32);
                    if !is_late {
                        return match permit {
                            Some(permit) => self.admit(request, permit, false),
                            None if ran => self.refuse(request, "fenced"),
                            None => self.refuse(request, "refused by Redis"),
                        };
                    }
                }
            }
            Reply::Number => {}
        }
        if late.complete(ran) {
            self.record_unreported(process, key);
        }
        self.checks.bucket.end_waiting(key, request);
    }

    /// Applies a decision to the lease.
    pub fn apply_report(
        &mut self,
        process: Process,
        key: usize,
        report: Option<PendingReport>,
        code: f64,
        taken: u32,
    ) -> Option<Permit> {
        let (org, now, base) = (self.directory.keys[key].org, self.now, self.base);
        let gateway = &mut self.gateways[process.gateway];
        let mut permit = None;
        match report {
            // A fenced reply tells the lease nothing.
            Some(report) if code == 0.0 => permit = Some(report.acquired(taken, self.directory.orgs[org].limit)?),
            Some(report) => drop(report.denied(taken)),
            None => gateway.lease(org, &self.directory.orgs[org], base, now).note_answer(taken),
        }
        gateway.noticed.remove(&org);
        permit
    }

    /// Redis has answered about a key.
    pub fn confirm(&mut self, process: Process, key: usize, level: f64, uses: f64, reported: Option<UnreportedUses>) {
        let now = self.now;
        let gateway = &mut self.gateways[process.gateway];
        let steady = gateway.steady(now);
        if let Some(cached) = gateway.keys.get_mut(&key) {
            cached.confirmed = steady;
            cached.usage.confirm(level as i64, uses as u64, steady, None);
            if let Some(reported) = reported {
                cached.usage.mark_reported(reported);
            }
        }
        self.checks.bucket.end_share(process.gateway, key);
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
        if gateway.active.take_early_visit() {
            let pause = u64::try_from(state::redis::EARLY_REPORT.as_micros()).unwrap();
            self.queue.add(now + pause, Event::Visit(process, true));
        }
    }
}
