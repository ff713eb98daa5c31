//! Revocations: their two writes, the log that all gateways read, and the assertion on new primaries. It follows
//! `crates/state/src/redis/directory/{keys,revocation_log}.rs`, `revocation_reader.rs` and `revocations/assertion.rs`;
//! the kept revocations are the product's own.

use std::rc::Rc;
use std::sync::Arc;

use domain::clock::Micros;
use state::redis::{Kept, RecordNames, Replication, Revocation};

use super::database::Bytes;
use super::event::{Call, Event, Pending, Process};
use super::lua::Script;
use super::options::Break;
use super::trace::{Entry, NONE};
use super::world::World;

/// As `INTERVAL` of `crates/state/src/redis/revocation_reader.rs`.
pub const READ_INTERVAL: u64 = 150_000;
/// As `GATHER` of `crates/state/src/redis/revocations/assertion.rs`.
const GATHER: u64 = 10_000;
/// Pause of an operator, or a program, before a change that failed is tried again.
const RETRY: u64 = 200_000;

/// A revocation that is being made.
pub struct Revoking {
    pub key: usize,
    /// The gateway on which it is made.
    pub process: Process,
    /// With `durability: { replicas: 1 }`.
    pub durable: bool,
    /// The key's record has it; the log does not yet.
    is_written: bool,
    pub acknowledged: Option<u64>,
}

impl Revoking {
    /// Returns whether the key's record has it.
    pub fn is_written(&self) -> bool {
        self.is_written
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
        self.revoking.push(Revoking { key, process, durable, is_written: false, acknowledged: None });
        self.step_revocation(self.revoking.len() - 1);
    }

    /// The next step of a revocation. It is tried until it is acknowledged, on another gateway when the first has died.
    pub fn step_revocation(&mut self, number: usize) {
        let Revoking { key, process, durable, is_written, acknowledged } = self.revoking[number];
        if acknowledged.is_some() || self.now > self.end {
            return;
        }
        if !self.is_live(process) {
            let other = self.gateways[self.chance.index(self.gateways.len())].process;
            (self.revoking[number].process, self.revoking[number].is_written) = (other, false);
            return self.queue.add(self.now + RETRY, Event::Revoke(number));
        }
        let (shard, call) = match is_written {
            false => (self.directory.shard_of_key(key), Call::RevokeKey { key, durable }),
            true => (self.log_shard, Call::AppendLog { key, durable }),
        };
        if self.send(process, shard, call, Pending::Revocation { number }).is_err() {
            self.queue.add(self.now + RETRY, Event::Revoke(number));
        }
    }

    /// A step was made; `durable` when as many replicas have it as were asked for.
    pub fn complete_revocation(&mut self, number: usize, durable: bool) {
        let (key, process) = (self.revoking[number].key, self.revoking[number].process);
        self.gateways[process.gateway].decisions.end_verdicts();
        if !durable {
            return self.queue.add(self.now + RETRY, Event::Revoke(number));
        }
        if !self.revoking[number].is_written {
            self.revoking[number].is_written = true;
            self.keep(process, key);
            return self.step_revocation(number);
        }
        self.revoking[number].acknowledged = Some(self.now);
        self.terminate(process, key);
        let (shard, durable) = (self.directory.shard_of_key(key), self.revoking[number].durable);
        let what = if durable { "revocation acknowledged (durable)" } else { "revocation acknowledged" };
        self.note(what, process.gateway, key, shard);
        self.checks.revocation.acknowledge(process, key, self.now, durable);
        self.plan_failover_after_revocation(shard);
    }

    fn note(&mut self, what: &'static str, gateway: usize, key: usize, shard: usize) {
        self.trace.add(Entry { time: self.now, what, gateway, key, org: NONE, shard, number: 0 });
    }

    /// A gateway keeps a revocation, and asserts it.
    fn keep(&mut self, process: Process, key: usize) {
        self.note_known(process, key);
        if self.is_broken_on_purpose(Break::Revocation) {
            return;
        }
        let (now, shard) = (self.now, self.directory.shard_of_key(key));
        let gateway = &mut self.gateways[process.gateway];
        let id = self.directory.keys[key].id;
        if !gateway.kept.has_key(id) {
            gateway.kept.add(Revocation::Key { key: id, at: Micros(1) });
            self.queue.add(now + GATHER, Event::Assert(process, shard));
        }
    }

    /// Reads the log on from the position.
    pub fn read_log(&mut self, process: Process) {
        let Some(gateway) = self.live(process) else { return };
        let from = gateway.position.as_ref().map_or(0, |(number, _)| *number);
        if self.send(process, self.log_shard, Call::ReadLog { from }, Pending::ReadLog).is_err() {
            self.queue.add(self.now + READ_INTERVAL, Event::ReadLog(process));
        }
    }

    /// As `RevocationReader::read_on`: when the entry at the position is another one, every open exchange is checked,
    /// and the reader goes on from the end.
    pub fn complete_read_log(&mut self, process: Process, last: u64, at_position: Option<Bytes>, entries: Vec<Bytes>) {
        let gateway = &mut self.gateways[process.gateway];
        let follows =
            gateway.position.as_ref().is_some_and(|(number, content)| *content == at_position && last >= *number);
        if follows {
            let first = gateway.position.as_ref().map_or(0, |(number, _)| *number);
            for (number, entry) in (first + 1..).zip(entries) {
                let text = String::from_utf8(entry.to_vec()).unwrap();
                let key: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
                self.gateways[process.gateway].position = Some((number, Some(entry)));
                self.keep(process, key);
                self.terminate(process, key);
            }
        } else {
            let content = self.shards[self.log_shard].field(&self.log_record, last.to_string().as_bytes()).cloned();
            gateway.position = Some((last, content));
            self.check_open(process);
        }
        self.queue.add(self.now + READ_INTERVAL, Event::ReadLog(process));
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
            self.finish_request(id, true);
        }
    }

    /// Checks every open exchange of a gateway against the directory, as far as it is reachable.
    pub fn check_open(&mut self, process: Process) {
        if !self.is_live(process) {
            return;
        }
        let gateway = &self.gateways[process.gateway];
        let mut keys: Vec<usize> = gateway.open.iter().map(|id| self.requests[id].key).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            let (shard, directory_key) = (self.directory.shard_of_key(key), &self.directory.keys[key]);
            let gateway = &self.gateways[process.gateway];
            let is_kept = gateway.kept.has_key(directory_key.id);
            let is_reachable =
                gateway.links[shard].is_up && gateway.cut_until[shard] <= self.now && self.shards[shard].is_alive;
            if is_kept || is_reachable && self.shards[shard].field(&directory_key.record, b"revoked").is_some() {
                self.terminate(process, key);
            }
        }
    }

    /// Writes to the primary of a shard the kept revocations that its history has not confirmed.
    pub fn assert_revocations(&mut self, process: Process, shard: usize) {
        let Some(gateway) = self.live(process) else { return };
        if !gateway.links[shard].is_up {
            return;
        }
        let history = self.history(shard);
        let serves = |slot: u16| self.directory.shard_of_slot(slot) == shard;
        let mut missing = self.gateways[process.gateway].kept.unconfirmed(&history, serves);
        let names = RecordNames::new("keygate");
        missing.sort_by_key(|kept| (kept.slot, kept.revocation.writes(&names)));
        // One script for each hash slot.
        for kept in missing.chunk_by(|one, other| one.slot == other.slot) {
            let writes: Vec<(String, String)> = kept.iter().flat_map(|kept| kept.revocation.writes(&names)).collect();
            let keys = writes.iter().map(|(record, _)| Rc::from(record.as_bytes())).collect();
            let version = self.chance.next().to_le_bytes().to_vec();
            let arguments = std::iter::once(version).chain(writes.iter().map(|(_, write)| write.clone().into_bytes()));
            let call = Call::Script { script: Script::AssertRevocations, keys, arguments: arguments.collect() };
            let pending = Pending::Assert { kept: kept.to_vec(), history: Arc::clone(&history) };
            drop(self.send(process, shard, call, pending));
        }
    }

    /// The server has these revocations.
    pub fn complete_assertion(&mut self, process: Process, shard: usize, kept: &[Kept], history: Arc<str>) {
        self.gateways[process.gateway]
            .kept
            .confirm(kept, &Replication { history, is_primary: true, ..Default::default() });
        for kept in kept {
            if let Revocation::Key { key, .. } = &*kept.revocation {
                let key = self.directory.key_of(*key);
                self.note("revocation asserted", process.gateway, key, shard);
            }
        }
    }
}
