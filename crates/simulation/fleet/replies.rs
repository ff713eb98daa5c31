//! Replies of Redis that reach a gateway, and replies that are lost, by what was asked.

use state::redis::{PendingReport, UnreportedUses};

use super::event::{Answer, Event, Pending, PendingDecide, Process};
use super::lua::Reply;
use super::revocations::READ_INTERVAL;
use super::shard::number_at;
use super::world::World;

impl World {
    /// A reply has arrived in time, or late.
    pub fn complete(&mut self, process: Process, shard: usize, pending: Pending, answer: Answer) {
        match (pending, answer) {
            (pending, Answer::Refused) => self.note_refused(process, shard, pending),
            (Pending::Read { request }, Answer::Script(Reply::Records(records))) => {
                let Some(found) = self.requests.get(&request) else { return };
                self.cache_records(process, found.key, &records);
                self.attempt(request);
            }
            (Pending::Read { request }, _) => self.decide_offline(request),
            (Pending::Decide(pending), Answer::Script(reply)) => self.complete_decide(process, pending, reply),
            (Pending::Status { key, uses }, Answer::Script(reply)) => self.complete_status(process, key, uses, reply),
            (Pending::Report { visited, org, report }, answer) => {
                let reply = packed(&answer).unwrap();
                match number_at(reply, 0) as u32 {
                    0 => {
                        report.acknowledged(false);
                        visited.0.note_answer(number_at(reply, 1) as u32);
                        self.gateways[process.gateway].noticed.remove(&org);
                    }
                    2 => report.acknowledged(true),
                    _ => report.unregistered(),
                }
            }
            (Pending::Resync { org, resync, request, visited }, answer) => {
                self.complete_resync(process, org, resync, packed(&answer).unwrap());
                drop(visited);
                self.end_resync(process, org);
                request.into_iter().for_each(|request| self.attempt(request));
            }
            (Pending::Register { beat, seen }, answer) => {
                self.complete_register(process, beat, seen, packed(&answer).unwrap());
            }
            (Pending::ReadLog, Answer::Log { last, at_position, entries }) => {
                self.complete_read_log(process, last, at_position, entries);
            }
            (Pending::Revocation { number }, Answer::Changed(durable)) => self.complete_revocation(number, durable),
            (Pending::Assert { kept, history }, _) => self.complete_assertion(process, shard, &kept, history),
            _ => {}
        }
    }

    fn complete_status(&mut self, process: Process, key: usize, uses: UnreportedUses, reply: Reply) {
        match reply {
            Reply::Records(records) => self.cache_records(process, key, &records),
            Reply::Packed(packed) if number_at(&packed, 0) != 1.0 => {
                self.confirm(process, key, number_at(&packed, 1), number_at(&packed, 3), Some(uses));
                self.apply_report(process, key, None, number_at(&packed, 0), number_at(&packed, 2) as u32);
            }
            _ => {}
        }
        let gateway = &mut self.gateways[process.gateway];
        if gateway.keys[&key].usage.unreported().is_some() && !gateway.unreported.contains(&key) {
            gateway.unreported.push(key);
        }
    }

    /// The server refused a command: what it would have reported is still to be reported.
    fn note_refused(&mut self, process: Process, shard: usize, mut pending: Pending) {
        match &mut pending {
            Pending::Decide(pending) => pending.report.take().into_iter().for_each(PendingReport::not_sent),
            Pending::Report { .. } => {
                let Pending::Report { report, .. } = pending else { unreachable!("matched above") };
                return report.not_sent();
            }
            _ => {}
        }
        self.lose(process, shard, pending);
    }

    /// A reply is lost, or is taken for lost.
    pub fn lose(&mut self, process: Process, shard: usize, pending: Pending) {
        let now = self.now;
        match pending {
            Pending::Read { request } => self.decide_offline_if_open(request),
            Pending::Decide(PendingDecide { request, key, report, late, is_late, .. }) => {
                // Dropped as lost, which puts the lease in doubt.
                drop(report);
                if !is_late {
                    return self.decide_offline_if_open(request);
                }
                if late.complete(false) {
                    self.record_unreported(process, key);
                }
                self.checks.bucket.end_waiting(key, request);
            }
            Pending::Status { key, .. } => {
                let gateway = &mut self.gateways[process.gateway];
                if !gateway.unreported.contains(&key) {
                    gateway.unreported.push(key);
                }
            }
            Pending::Resync { org, request, .. } => {
                self.end_resync(process, org);
                request.into_iter().for_each(|request| self.decide_offline_if_open(request));
            }
            Pending::Register { .. } => self.retry_register(process),
            Pending::ReadLog => self.queue.add(now + READ_INTERVAL, Event::ReadLog(process)),
            Pending::Revocation { number } => self.queue.add(now + 200_000, Event::Revoke(number)),
            Pending::Assert { .. } => self.queue.add(now + 25_000, Event::Assert(process, shard)),
            Pending::Report { .. } | Pending::Deregister => {}
        }
    }

    fn decide_offline_if_open(&mut self, request: u64) {
        if self.requests.get(&request).is_some_and(|request| !request.is_admitted()) {
            self.decide_offline(request);
        }
    }
}

/// A script's packed reply.
fn packed(answer: &Answer) -> Option<&[u8]> {
    match answer {
        Answer::Script(Reply::Packed(packed)) => Some(packed),
        _ => None,
    }
}
