//! Identity of the state, by which lost data is noticed: the readings of the gateways, and the confirmation before a
//! key counts as unknown.
//!
//! The product's own code judges a reading. The order of the readings follows `crates/state/src/redis/identity.rs`,
//! and their place in a decision that of `crates/state/src/redis/mod.rs`.

use std::ops::ControlFlow;

use domain::clock::Micros;
use domain::key::OrgTag;
use redis_client::CommandError;
use state::identity::{Continuity, Discontinuity, Reading};
use state::redis::{IDENTITY_INTERVAL, Listing, MISSED_FOR};
use state::{ChangeError, StateIdentity, StorageError, Unavailable};

use super::database::Write;
use super::event::{Answer, Call, Event, Pending, Process};
use super::options::Break;
use super::revocations::micros;
use super::shard::Shard;
use super::world::World;

/// The identity of the state of each run.
const IDENTITY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

/// Part of a request that decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The state is verified after a failover.
    Verifying,
    Deciding,
    /// Its key may be unknown.
    Confirming,
}

/// Purpose of a reading of the identity.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Watch,
    /// Of a request.
    Verify(u64),
    Confirm(u64),
    /// Of a revocation.
    Change(usize),
}

/// Reading after that of the identity, of a request whose key may be unknown.
#[derive(Clone, Copy, Debug)]
pub enum Confirming {
    Org,
    List,
    /// Mark of a state that has listed organizations.
    Mark,
}

impl World {
    /// The identity, the list of organizations, and the record of the gateways, which is that of a state that was new.
    pub fn seed_identity(&mut self) {
        let log = &mut self.shards[self.log_shard];
        for (field, value) in [(&b"identity"[..], &IDENTITY[..]), (b"changes", b"1"), (b"orgs", b"1")] {
            log.seed(&self.log_record, field, value);
        }
        for field in [&b"begun"[..], b"whole_from"] {
            self.shards[self.gateways_shard].seed(&self.registry_record, field, b"0");
        }
        for org in &self.directory.orgs {
            let id = org.id.to_string();
            self.shards[self.orgs_shard].seed(&self.tags_record, id.as_bytes(), org.tag.as_str().as_bytes());
        }
    }

    /// Reads the identity, again and again.
    pub fn watch_identity(&mut self, process: Process) {
        if self.is_live(process) {
            self.queue.add(self.now + micros(IDENTITY_INTERVAL), Event::ReadIdentity(process));
            self.send_identity(process, Purpose::Watch);
        }
    }

    pub fn send_identity(&mut self, process: Process, purpose: Purpose) {
        let gateway = &self.gateways[process.gateway];
        let reading = gateway.identity.begin_reading(gateway.seen_failovers());
        let pending = Pending::Identity { reading, purpose };
        if self.send(process, self.log_shard, Call::ReadIdentity, pending).is_err() {
            self.lose_identity(purpose, CommandError::Unreachable);
        }
    }

    /// Replies of a server about the identity and the organizations.
    pub fn answer_about_identity(&mut self, shard: usize, call: &Call) -> Answer {
        let now = self.now;
        let server = &mut self.shards[shard];
        match call {
            Call::ReadIdentity => {
                let until = server.field(&self.missed_record, b"until").map_or(0, number);
                let is_missed = server.clock(now) < until;
                let id = server.field(&self.log_record, b"identity").map(|id| text(id).parse().unwrap());
                let changes = server.field(&self.log_record, b"changes").map_or(0, number);
                let identity = |id| StateIdentity { id, changes, changed: Micros(0), replaces: Vec::new() };
                Answer::Identity(id.map(identity), is_missed)
            }
            Call::MissState => {
                let until = (server.clock(now) + micros(MISSED_FOR)).to_string();
                server.write(Write::set(&self.missed_record, b"until", until.as_bytes()), now);
                Answer::Missed
            }
            Call::HasOrg(org) => Answer::Exists(server.fields(&self.directory.orgs[*org].record).next().is_some()),
            Call::ListOrgs => {
                let tag = |value: &[u8]| text(value).parse::<OrgTag>().unwrap();
                Answer::Orgs(server.fields(&self.tags_record).map(|(_, value)| tag(value)).collect())
            }
            Call::HasOrgs => Answer::Exists(server.field(&self.log_record, b"orgs").is_some()),
            _ => unreachable!("the caller has one of these"),
        }
    }

    /// A gateway has read the identity.
    pub fn complete_identity(
        &mut self,
        process: Process,
        purpose: Purpose,
        reading: Reading,
        (found, is_missed): (Option<StateIdentity>, bool),
    ) {
        // Given up with its deadline.
        if !self.is_awaited(purpose) {
            return;
        }
        let (now, base) = (self.now, self.base);
        let gateway = &mut self.gateways[process.gateway];
        let instant = gateway.instant(base, now);
        let Some(continuity) = gateway.identity.complete_reading(reading, found, is_missed, instant) else {
            return self.send_identity(process, purpose);
        };
        let (is_broken, memory) = (gateway.identity.is_broken(), gateway.identity.memory());
        match purpose {
            Purpose::Watch if !is_broken => gateway.disk.memory.clone_from(&memory),
            _ => {}
        }
        if continuity == Continuity::Broken(Discontinuity::Absent) && memory.is_some() {
            drop(self.send(process, self.log_shard, Call::MissState, Pending::Missed));
        }
        match purpose {
            Purpose::Watch => {}
            Purpose::Verify(id) => self.decide_verified(id),
            Purpose::Confirm(id) if is_broken => self.refuse_lost(id),
            Purpose::Confirm(id) => self.confirm(id, Confirming::Org),
            Purpose::Change(number) => self.complete_verification(number),
        }
    }

    fn is_awaited(&self, purpose: Purpose) -> bool {
        let is_in = |id: u64, phase| self.requests.get(&id).is_some_and(|request| request.phase == phase);
        match purpose {
            Purpose::Verify(id) => is_in(id, Phase::Verifying),
            Purpose::Confirm(id) => is_in(id, Phase::Confirming),
            Purpose::Watch | Purpose::Change(_) => true,
        }
    }

    /// The identity was not read.
    pub fn lose_identity(&mut self, purpose: Purpose, error: CommandError) {
        if !self.is_awaited(purpose) {
            return;
        }
        match purpose {
            Purpose::Watch => {}
            Purpose::Verify(id) => self.decide_verified(id),
            Purpose::Confirm(id) => self.refuse(id, "unavailable"),
            Purpose::Change(number) => self.complete_revocation(number, Err(error.into())),
        }
    }

    /// Verifies the state after a failover, before a request is decided.
    pub fn verify(&mut self, id: u64) {
        let process = self.requests[&id].process;
        let gateway = &self.gateways[process.gateway];
        if gateway.identity.is_verified(&gateway.failovers) || gateway.identity.is_broken() {
            return self.decide_verified(id);
        }
        self.begin_phase(id, Phase::Verifying);
        self.send_identity(process, Purpose::Verify(id));
    }

    /// Decides a request, unless the state is known to be lost.
    pub fn decide_verified(&mut self, id: u64) {
        let process = self.requests[&id].process;
        if self.gateways[process.gateway].identity.is_broken() { self.refuse_lost(id) } else { self.decide(id) }
    }

    /// Confirms that the key of a request is unknown.
    pub fn confirm_unknown(&mut self, id: u64) {
        // Broken on purpose: without a look at the state.
        if self.options.broken == Some(Break::Lost) {
            return self.refuse_unknown(id);
        }
        self.begin_phase(id, Phase::Confirming);
        self.send_identity(self.requests[&id].process, Purpose::Confirm(id));
    }

    fn confirm(&mut self, id: u64, step: Confirming) {
        let request = &self.requests[&id];
        let process = request.process;
        let org = self.directory.keys[request.key].org;
        let (shard, call) = match step {
            Confirming::Org => (self.directory.orgs[org].shard, Call::HasOrg(org)),
            Confirming::List => (self.orgs_shard, Call::ListOrgs),
            Confirming::Mark => (self.log_shard, Call::HasOrgs),
        };
        if self.send(process, shard, call, Pending::Confirm { request: id, step }).is_err() {
            self.refuse(id, "unavailable");
        }
    }

    /// The reply to a reading of a confirmation.
    pub fn complete_confirmation(&mut self, id: u64, step: Confirming, answer: Answer) {
        if !self.is_awaited(Purpose::Confirm(id)) {
            return;
        }
        match (step, answer) {
            (Confirming::Org, Answer::Exists(true)) | (Confirming::Mark, Answer::Exists(false)) => {
                self.conclude_unknown(id);
            }
            (Confirming::Mark, Answer::Exists(true)) => self.refuse_lost(id),
            (Confirming::Org, _) => self.look_at_list(id),
            (_, Answer::Orgs(tags)) => {
                let gateway = &mut self.gateways[self.requests[&id].process.gateway];
                let instant = gateway.instant(self.base, self.now);
                let end = (0, gateway.seen_failovers());
                gateway.listed.add(tags, end, instant);
                self.look_at_list(id);
            }
            _ => unreachable!("each reading has its reply"),
        }
    }

    fn look_at_list(&mut self, id: u64) {
        let request = &self.requests[&id];
        let tag = self.directory.orgs[self.directory.keys[request.key].org].tag;
        let gateway = &mut self.gateways[request.process.gateway];
        let instant = gateway.instant(self.base, self.now);
        match gateway.listed.find(tag, gateway.seen_failovers(), instant) {
            ControlFlow::Break(Listing::Listed) => self.refuse_lost(id),
            ControlFlow::Break(Listing::NotListed) => self.conclude_unknown(id),
            ControlFlow::Break(Listing::Empty) => self.confirm(id, Confirming::Mark),
            ControlFlow::Continue(_) => self.confirm(id, Confirming::List),
        }
    }

    /// The state has its data. What the decision found missing may have been restored since it was made.
    fn conclude_unknown(&mut self, id: u64) {
        let request = &self.requests[&id];
        let is_changed = request.failovers != self.gateways[request.process.gateway].seen_failovers();
        if is_changed { self.refuse(id, "unavailable") } else { self.refuse_unknown(id) }
    }

    /// The state was read for a revocation.
    fn complete_verification(&mut self, number: usize) {
        let identity = &self.gateways[self.revoking[number].process.gateway].identity;
        let changes = identity.found().map(|found| found.changes).filter(|_| !identity.is_broken());
        self.revoking[number].changes = changes;
        match changes {
            Some(_) => self.step_revocation(number),
            None => {
                let lost = ChangeError::Unavailable(StorageError::Redis(Unavailable::Lost));
                self.complete_revocation(number, Err(lost.into()));
            }
        }
    }

    /// A gateway has counted its own change.
    pub fn note_own_change(&mut self, number: usize) {
        let revoking = &self.revoking[number];
        let gateway = &self.gateways[revoking.process.gateway];
        let changes = revoking.changes.expect("it was verified") + 1;
        gateway.identity.note_changes(changes, gateway.instant(self.base, self.now));
    }
}

/// Counts a change of the state.
pub fn count_change(log: &mut Shard, record: &[u8], now: u64) {
    let changes = log.field(record, b"changes").map_or(0, number) + 1;
    log.write(Write::set(record, b"changes", changes.to_string().as_bytes()), now);
}

fn number(value: &super::database::Bytes) -> u64 {
    text(value).parse().unwrap()
}

fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap()
}
