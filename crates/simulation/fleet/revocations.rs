//! Revocations: their two writes, the log that all gateways read, and the assertion on new primaries. The steps are the
//! product's own; this file performs them on simulated servers.

use std::ops::ControlFlow;
use std::time::Duration;

use domain::clock::Micros;
use redis_client::CommandError;
use state::RevocationEntry;
use state::redis::{ASSERTION_GATHER, ChangeSteps, ChangeWrite, CommitError, Durability, LOG_READ_INTERVAL, LogRead};

use super::budgets::End;
use super::event::{Call, Event, Pending, Process};
use super::identity::Purpose;
use super::trace::{Entry, NONE};
use super::withdrawal::{revocation, withdrawal};
use super::world::World;

/// Pause of an operator, or a program, before a change that failed is tried again.
const RETRY: u64 = 200_000;

/// A revocation that is being made.
pub struct Revoking {
    pub key: usize,
    /// The gateway on which it is made.
    pub process: Process,
    /// With `durability: { replicas: 1 }`.
    pub durable: bool,
    /// Progress of the change; none before it is tried, or tried again by the operator.
    steps: Option<ChangeSteps>,
    /// Writes that were made in this attempt, and the least number of replicas that has one of them.
    writes: usize,
    replicas: u32,
    pub acknowledged: Option<u64>,
    /// Number of the changes of the state before this attempt; none before it was verified.
    pub changes: Option<u64>,
    /// A write of this attempt went into a shard that had lost its data.
    pub is_lost: bool,
}

impl Revoking {
    /// Returns whether the key's record has it.
    pub fn is_written(&self) -> bool {
        ChangeWrite::ORDER[self.writes] != ChangeWrite::Records
    }

    fn durability(&self) -> Durability {
        Durability { replicas: self.durable.into(), timeout: Duration::from_secs(1) }
    }

    fn begin_attempt(&mut self) {
        (self.writes, self.replicas, self.changes, self.is_lost) = (0, u32::MAX, None, false);
    }
}

impl World {
    /// Begins the revocation of some key.
    pub fn begin_revocation(&mut self) {
        // A popular key, or any; but not the most popular ones, without which there would be little to see.
        let keys = self.directory.keys.len();
        let key = if self.chance.one_in(2) { self.chance.index(keys) } else { self.directory.draw(&mut self.chance) };
        let key = key.max(keys / 20);
        let process = self.gateways[self.chance.index(self.gateways.len())].process;
        if self.revoking.iter().any(|revoking| revoking.key == key) || !self.is_live(process) {
            return;
        }
        let durable = process.gateway % 2 == 1;
        self.counts.revocations += 1;
        self.revoking.push(Revoking {
            key,
            process,
            durable,
            steps: None,
            writes: 0,
            replicas: u32::MAX,
            acknowledged: None,
            changes: None,
            is_lost: false,
        });
        self.step_revocation(self.revoking.len() - 1);
    }

    /// The next step of a revocation. It is tried until it is acknowledged, on another gateway when the first has died.
    pub fn step_revocation(&mut self, number: usize) {
        let Revoking { key, process, durable, acknowledged, .. } = self.revoking[number];
        if acknowledged.is_some() || self.now > self.end {
            return;
        }
        if !self.is_live(process) {
            let other = self.gateways[self.chance.index(self.gateways.len())].process;
            self.revoking[number].process = other;
            return self.begin_anew(number);
        }
        let instant = self.gateways[process.gateway].instant(self.base, self.now);
        let revoking = &mut self.revoking[number];
        let durability = revoking.durability();
        revoking.steps.get_or_insert_with(|| ChangeSteps::begin(durability, instant));
        if revoking.changes.is_none() {
            return self.send_identity(process, Purpose::Change(number));
        }
        let (shard, call) = match ChangeWrite::ORDER[revoking.writes] {
            ChangeWrite::Records => (self.directory.shard_of_key(key), Call::RevokeKey { key, durable }),
            ChangeWrite::Log => {
                let identity = self.gateways[process.gateway].identity.memory().map(|memory| memory.id);
                (self.log_shard, Call::AppendLog { key, durable, identity })
            }
        };
        if self.send(process, shard, call, Pending::Revocation { number }).is_err() {
            self.complete_revocation(number, Err(CommandError::Unreachable.into()));
        }
    }

    /// The change has failed: it is made once more, from its beginning.
    fn begin_anew(&mut self, number: usize) {
        self.revoking[number].begin_attempt();
        self.revoking[number].steps = None;
        self.queue.add(self.now + RETRY, Event::Revoke(number));
    }

    /// A write was made, and so many replicas have it; or it failed.
    pub fn complete_revocation(&mut self, number: usize, result: Result<u32, CommitError>) {
        let Revoking { key, process, .. } = self.revoking[number];
        if let Ok(replicas) = result {
            if self.revoking[number].is_written() {
                self.note_own_change(number);
            } else {
                self.keep(process, key);
            }
            let revoking = &mut self.revoking[number];
            revoking.replicas = revoking.replicas.min(replicas);
            if revoking.writes + 1 < ChangeWrite::ORDER.len() {
                revoking.writes += 1;
                return self.step_revocation(number);
            }
        }
        let gateway = &self.gateways[process.gateway];
        let revoking = &mut self.revoking[number];
        let result = result.map(|_| revoking.replicas);
        let durability = revoking.durability();
        let Some(steps) = &mut revoking.steps else { return };
        let ended = steps.after_attempt(result, durability, gateway.instant(self.base, self.now));
        revoking.begin_attempt();
        match ended {
            ControlFlow::Continue(pause) => self.queue.add(self.now + micros(pause), Event::Revoke(number)),
            ControlFlow::Break(result) => {
                gateway.decisions.end_verdicts();
                match result {
                    Ok(()) => self.acknowledge_revocation(number),
                    Err(_) => self.begin_anew(number),
                }
            }
        }
    }

    fn acknowledge_revocation(&mut self, number: usize) {
        let Revoking { key, process, durable, .. } = self.revoking[number];
        self.revoking[number].acknowledged = Some(self.now);
        let shard = self.directory.shard_of_key(key);
        let what = if durable { "revocation acknowledged (durable)" } else { "revocation acknowledged" };
        self.note(what, process.gateway, key, shard);
        self.check_acknowledged(number);
        self.checks.revocation.acknowledge(process, key, self.now, durable);
        self.plan_failover_after_revocation(shard);
    }

    pub fn note(&mut self, what: &'static str, gateway: usize, key: usize, shard: usize) {
        self.trace.add(Entry { time: self.now, what, gateway, key, org: NONE, shard, number: 0 });
    }

    /// A gateway keeps the revocation that it has made.
    fn keep(&mut self, process: Process, key: usize) {
        if self.product.keeps_revocations {
            self.gateways[process.gateway].kept.add(revocation(key, self.directory.keys[key].id));
        }
        self.note_kept(process, key);
    }

    /// A gateway knows a revocation, and asserts it.
    fn note_kept(&mut self, process: Process, key: usize) {
        self.note_known(process, key);
        let shard = self.directory.shard_of_key(key);
        self.queue.add(self.now + micros(ASSERTION_GATHER), Event::Assert(process, shard));
    }

    /// Begins to read on in the shared log.
    pub fn read_log(&mut self, process: Process) {
        let Some(gateway) = self.live(process) else { return };
        let read = gateway.follower.begin();
        self.send_reading(process, read);
    }

    fn send_reading(&mut self, process: Process, read: LogRead) {
        let call = Call::ReadLog { fields: read.fields() };
        if self.send(process, self.log_shard, call, Pending::ReadLog(read)).is_err() {
            self.end_reading(process);
        }
    }

    pub fn complete_read_log(&mut self, process: Process, read: LogRead, values: Vec<Option<Vec<u8>>>) {
        let next = self.gateways[process.gateway].follower.after(read, values, Micros(1));
        self.obey_log(process);
        match next {
            Some(next) => self.send_reading(process, next),
            None => self.end_reading(process),
        }
    }

    /// A round of reading has ended, or failed.
    pub fn end_reading(&mut self, process: Process) {
        let now = self.now;
        let base = self.base;
        let gateway = &mut self.gateways[process.gateway];
        let instant = gateway.instant(base, now);
        gateway.follower.request_due_checks(instant);
        self.obey_log(process);
        self.queue.add(now + micros(LOG_READ_INTERVAL), Event::ReadLog(process));
    }

    /// Ends the exchanges that the log of the process names; at a gap, all open ones are checked.
    fn obey_log(&mut self, process: Process) {
        let gateway = &mut self.gateways[process.gateway];
        let last = *gateway.log.subscribe().borrow();
        let before = std::mem::replace(&mut gateway.obeyed, last);
        for entry in gateway.log.range(before, last) {
            if let RevocationEntry::Key(key) | RevocationEntry::Policy { key, disabled: true, .. } = entry {
                let key = self.directory.key_of(key);
                self.note_kept(process, key);
                self.terminate(process, key);
            } else {
                self.check_open(process);
            }
        }
    }

    /// Ends the exchanges of a key at a gateway.
    fn terminate(&mut self, process: Process, key: usize) {
        let of_key = |id: &&u64| self.requests.get(id).is_some_and(|request| request.key == key);
        let mut open: Vec<u64> = self.gateways[process.gateway].open.iter().filter(of_key).copied().collect();
        open.sort_unstable();
        if !open.is_empty() {
            self.check_termination(process, key);
        }
        for id in open {
            self.counts.terminated += 1;
            self.finish_request(id, End::Recorded);
        }
    }

    /// Checks every open exchange of a gateway against the directory, as far as it is reachable.
    fn check_open(&mut self, process: Process) {
        if !self.is_live(process) {
            return;
        }
        let gateway = &self.gateways[process.gateway];
        let mut keys: Vec<usize> = gateway.open.iter().map(|id| self.requests[id].key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let shard = self.directory.shard_of_key(key);
            let directory_key = &self.directory.keys[key];
            let gateway = &self.gateways[process.gateway];
            let is_kept = gateway.kept.has_key(directory_key.id);
            let is_reachable =
                gateway.links[shard].is_up && gateway.cut_until[shard] <= self.now && self.shards[shard].is_alive;
            let field = self.shards[shard].field(&directory_key.record, withdrawal(key)[0].0);
            if is_kept || is_reachable && field.is_some() {
                self.terminate(process, key);
            }
        }
    }
}

pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}
