//! Bound of the requests in flight.
//!
//! docs/contract.md, Limits: "requests in flight per organization", and of a key with a limit of its own. docs/redis.md
//! adds to that
//!
//! - Failover: "every gateway re-registers the slots it holds with the new primary before it admits a request there":
//!   until it has, the primary does not count them;
//! - While Redis is unavailable: "a gateway keeps what it holds, and adds its share of the slots that were free by
//!   Redis's last answer about the organization; one slot of all gateways together, if none was. So an organization
//!   exceeds its limit by at most that one, and by what other gateways acquired after a gateway's last answer. Slots of
//!   a gateway that is cut off alone are given to others when its lease ends."
//!
//! So an admission by Redis may exceed the limit by what the primary cannot know:
//!
//! - all that a gateway holds that is cut off alone, or was until a second ago;
//! - all that a gateway holds that has not connected to a primary since its promotion, or did so
//!   less than a second ago;
//! - of any other gateway, what it acquired without Redis and has not reported yet.
//!
//! A server that hangs, restarts on its disk, is full or has a clock that steps excuses nothing.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Worst;
use crate::directory::Directory;
use crate::event::Process;
use crate::gateway::Gateway;
use crate::shard::number_at;
use crate::subjects::Subject;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Time after trouble within which a gateway has re-registered its slots.
const RESTORED_WITHIN: u64 = 1_000_000;

/// Slots of one organization or key.
#[derive(Default)]
struct SubjectSlots {
    /// Requests in flight.
    open: FxHashSet<u64>,
    /// Slots that Redis gave so far.
    acquired: u64,
    /// The same by the last answer to each gateway.
    answered: FxHashMap<usize, u64>,
    /// Requests in flight when the primary was lost, if it is.
    before: Option<usize>,
}

/// The worst cases of all subjects of a kind.
#[derive(Default)]
pub struct WorstSlots {
    pub online: Worst,
    pub outage: Worst,
}

pub struct SlotsCheck {
    orgs: Vec<SubjectSlots>,
    keys: Vec<SubjectSlots>,
    pub of_orgs: WorstSlots,
    pub of_keys: WorstSlots,
}

impl Subject {
    /// The name of its bound.
    fn bound(self) -> &'static str {
        match self {
            Self::Org(_) => "slots",
            Self::Key(_) => "key slots",
        }
    }

    fn text(self) -> String {
        match self {
            Self::Org(org) => format!("org {org}"),
            Self::Key(key) => format!("key {key}"),
        }
    }
}

impl SlotsCheck {
    pub fn new(directory: &Directory) -> Self {
        let new = |count| (0..count).map(|_| SubjectSlots::default()).collect();
        Self {
            orgs: new(directory.orgs.len()),
            keys: new(directory.keys.len()),
            of_orgs: WorstSlots::default(),
            of_keys: WorstSlots::default(),
        }
    }

    fn slots(&self, subject: Subject) -> &SubjectSlots {
        match subject {
            Subject::Org(org) => &self.orgs[org],
            Subject::Key(key) => &self.keys[key],
        }
    }

    fn slots_mut(&mut self, subject: Subject) -> &mut SubjectSlots {
        match subject {
            Subject::Org(org) => &mut self.orgs[org],
            Subject::Key(key) => &mut self.keys[key],
        }
    }

    fn worst(&mut self, subject: Subject) -> &mut WorstSlots {
        match subject {
            Subject::Org(_) => &mut self.of_orgs,
            Subject::Key(_) => &mut self.of_keys,
        }
    }

    pub fn begin(&mut self, subject: Subject, request: u64) {
        self.slots_mut(subject).open.insert(request);
    }

    pub fn end(&mut self, subject: Subject, request: u64) {
        self.slots_mut(subject).open.remove(&request);
    }

    /// Redis answers a gateway about a subject; returns the number to be noted when the answer arrives.
    pub fn answer_number(&self, subject: Subject) -> u64 {
        self.slots(subject).acquired
    }

    pub fn note_answer(&mut self, subject: Subject, gateway: usize, number: u64) {
        self.slots_mut(subject).answered.insert(gateway, number);
    }

    /// The primary of these subjects is lost, or is back.
    pub fn note_primary(&mut self, subjects: Vec<Subject>, is_lost: bool) {
        for subject in subjects {
            let slots = self.slots_mut(subject);
            slots.before = is_lost.then_some(slots.open.len());
        }
    }
}

impl World {
    /// Redis has given slots to a request.
    pub fn check_slots_online(&mut self, process: Process, key: usize) {
        for subject in self.directory.subjects_of_key(key) {
            let slots = self.checks.slots.slots_mut(subject);
            slots.acquired += 1;
            let open = slots.open.len() + 1;
            let limit = self.directory.slot_limit(subject);
            let allowed = if open > limit { limit + self.unknown_slots(subject) } else { limit };
            let text = || format!("{}: {open} in flight by Redis, limit {limit}, allowed {allowed}", subject.text());
            // Of cases that use the whole bound, the one farthest over the limit is shown.
            let part = open as f64 / allowed as f64 + open.saturating_sub(limit) as f64 * 1e-9;
            self.checks.slots.worst(subject).online.note(part, self.now, text);
            if open > allowed {
                self.break_bound(subject.bound(), text(), self.slot_offender(process, subject));
            }
        }
    }

    /// Slots that are held and that the primary cannot know.
    fn unknown_slots(&self, subject: Subject) -> usize {
        let number = self.directory.shard_of_subject(subject);
        let shard = &self.shards[number];
        let mut unknown = 0;
        for gateway in self.gateways.iter().filter(|gateway| gateway.is_up) {
            let entry = shard.field(self.directory.slot_record(subject), &gateway.id);
            let counted = entry.map_or(0, |entry| number_at(entry, 0) as u32);
            let held = gateway.lease_of(&self.directory, subject).held();
            let missing = held.saturating_sub(counted) as usize;
            if missing == 0 {
                continue;
            }
            let link = &gateway.links[number];
            let is_cut_off = gateway.cut_until[number] + RESTORED_WITHIN >= self.now;
            let is_lost = link.history < shard.lossy_history || link.restored_from + RESTORED_WITHIN >= self.now;
            let is_provisional = |id: &&u64| {
                let request = &self.requests[*id];
                request.provisional && self.directory.subjects_of_key(request.key).any(|held| held == subject)
            };
            let provisional = gateway.open.iter().filter(is_provisional).count();
            unknown += if is_cut_off || is_lost { missing } else { missing.min(provisional) };
        }
        unknown
    }

    /// A gateway has taken slots without Redis. While the primary is lost for all, the bound is exact.
    pub fn check_slots_offline(&mut self, process: Process, key: usize) {
        for subject in self.directory.subjects_of_key(key) {
            let slots = self.checks.slots.slots(subject);
            let Some(before) = slots.before else { continue };
            let open = slots.open.len();
            let limit = self.directory.slot_limit(subject);
            let stale = |gateway: &Gateway| {
                let answered = slots.answered.get(&gateway.process.gateway).copied().unwrap_or(slots.acquired);
                slots.acquired - answered
            };
            let org = self.directory.org_of_subject(subject);
            let cut_off = self.gateways.iter().filter(|gateway| gateway.is_up && gateway.noticed.contains_key(&org));
            let later = cut_off.map(stale).max().unwrap_or(0) as usize;
            let allowed = limit.max(before) + 1 + later;
            let of = subject.text();
            let text = || {
                format!("{of}: {open} in flight without Redis, limit {limit}, {before} before, acquired later {later}")
            };
            self.checks.slots.worst(subject).outage.note(open as f64 / allowed as f64, self.now, text);
            if open > allowed {
                self.break_bound(subject.bound(), text(), self.slot_offender(process, subject));
            }
        }
    }

    fn slot_offender(&self, process: Process, subject: Subject) -> Offender {
        let shard = self.directory.shard_of_subject(subject);
        match subject {
            Subject::Org(org) => Offender { gateway: process.gateway, key: NONE, org, shard },
            Subject::Key(key) => Offender { gateway: process.gateway, key, org: NONE, shard },
        }
    }
}
