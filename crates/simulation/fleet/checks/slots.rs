//! Bound of the requests in flight.
//!
//! docs/contract.md, Limits: "requests in flight per organization". docs/redis.md adds to that
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
use crate::event::Process;
use crate::shard::number_at;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Time after trouble within which a gateway has re-registered its slots.
const RESTORED_WITHIN: u64 = 1_000_000;

/// Slots of one organization.
#[derive(Default)]
struct OrgSlots {
    /// Requests in flight.
    open: FxHashSet<u64>,
    /// Slots that Redis gave so far.
    acquired: u64,
    /// The same by the last answer to each gateway.
    answered: FxHashMap<usize, u64>,
    /// Requests in flight when the primary was lost, if it is.
    before: Option<usize>,
}

pub struct SlotsCheck {
    orgs: Vec<OrgSlots>,
    pub online: Worst,
    pub outage: Worst,
}

impl SlotsCheck {
    pub fn new(orgs: usize) -> Self {
        let orgs = (0..orgs).map(|_| OrgSlots::default()).collect();
        Self { orgs, online: Worst::default(), outage: Worst::default() }
    }

    pub fn begin(&mut self, org: usize, request: u64) {
        self.orgs[org].open.insert(request);
    }

    pub fn end(&mut self, org: usize, request: u64) {
        self.orgs[org].open.remove(&request);
    }

    /// Redis answers a gateway about an organization; returns the number to be noted when the answer arrives.
    pub fn answer_number(&self, org: usize) -> u64 {
        self.orgs[org].acquired
    }

    pub fn note_answer(&mut self, org: usize, gateway: usize, number: u64) {
        self.orgs[org].answered.insert(gateway, number);
    }

    /// The primary of these organizations is lost, or is back.
    pub fn note_primary(&mut self, orgs: impl Iterator<Item = usize>, is_lost: bool) {
        for org in orgs {
            let slots = &mut self.orgs[org];
            slots.before = is_lost.then_some(slots.open.len());
        }
    }
}

impl World {
    /// Redis has given a slot to a request.
    pub fn check_slots_online(&mut self, process: Process, key: usize) {
        let org = self.directory.keys[key].org;
        self.checks.slots.orgs[org].acquired += 1;
        let open = self.checks.slots.orgs[org].open.len() + 1;
        let limit = self.directory.orgs[org].limit as usize;
        let allowed = if open > limit { limit + self.unknown_slots(org) } else { limit };
        let text = || format!("org {org}: {open} in flight by Redis, limit {limit}, allowed {allowed}");
        // Of cases that use the whole bound, the one farthest over the limit is shown.
        let part = open as f64 / allowed as f64 + open.saturating_sub(limit) as f64 * 1e-9;
        self.checks.slots.online.note(part, self.now, text);
        if open > allowed {
            let shard = self.directory.orgs[org].shard;
            self.break_bound("slots", text(), Offender { gateway: process.gateway, key: NONE, org, shard });
        }
    }

    /// Slots that are held and that the primary cannot know.
    fn unknown_slots(&self, org: usize) -> usize {
        let directory_org = &self.directory.orgs[org];
        let shard = &self.shards[directory_org.shard];
        let mut unknown = 0;
        for gateway in self.gateways.iter().filter(|gateway| gateway.is_up) {
            let entry = shard.field(&directory_org.record, &gateway.id);
            let counted = entry.map_or(0, |entry| number_at(entry, 0) as u32);
            let missing = gateway.held(directory_org.tag).saturating_sub(counted) as usize;
            if missing == 0 {
                continue;
            }
            let link = &gateway.links[directory_org.shard];
            let is_cut_off = gateway.cut_until[directory_org.shard] + RESTORED_WITHIN >= self.now;
            let is_lost = link.history < shard.lossy_history || link.restored_from + RESTORED_WITHIN >= self.now;
            let is_provisional = |id: &&u64| {
                let request = &self.requests[*id];
                request.provisional && self.directory.keys[request.key].org == org
            };
            let provisional = gateway.open.iter().filter(is_provisional).count();
            unknown += if is_cut_off || is_lost { missing } else { missing.min(provisional) };
        }
        unknown
    }

    /// A gateway has taken a slot without Redis. While the primary is lost for all, the bound is exact.
    pub fn check_slots_offline(&mut self, process: Process, key: usize) {
        let org = self.directory.keys[key].org;
        let slots = &self.checks.slots.orgs[org];
        let Some(before) = slots.before else { return };
        let open = slots.open.len();
        let limit = self.directory.orgs[org].limit as usize;
        let stale = |gateway: &crate::gateway::Gateway| {
            let answered = slots.answered.get(&gateway.process.gateway).copied().unwrap_or(slots.acquired);
            slots.acquired - answered
        };
        let cut_off = self.gateways.iter().filter(|gateway| gateway.is_up && gateway.noticed.contains_key(&org));
        let later = cut_off.map(stale).max().unwrap_or(0) as usize;
        let allowed = limit.max(before) + 1 + later;
        let text = || {
            format!("org {org}: {open} in flight without Redis, limit {limit}, {before} before, acquired later {later}")
        };
        self.checks.slots.outage.note(open as f64 / allowed as f64, self.now, text);
        if open > allowed {
            let shard = self.directory.orgs[org].shard;
            self.break_bound("slots", text(), Offender { gateway: process.gateway, key: NONE, org, shard });
        }
    }
}
