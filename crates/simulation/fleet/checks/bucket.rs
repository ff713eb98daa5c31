//! Bound of the buckets.
//!
//! docs/contract.md, Limits: "A token bucket admits requests of at most `burst + rate * T` tokens in any window of
//! length `T`". All requests of a key cost the same here, so that uses are tokens by its cost. docs/redis.md adds to
//! that
//!
//! - Failover: "as many requests as were lost may be admitted once more": lost uses count no more;
//! - While Redis is unavailable: "a window can exceed the bound by the inflow of the shares of those that are cut
//!   off, until they have reported it" and it is repaid: uses that are not reported yet may come on top of what Redis
//!   admits meanwhile, and so may those that put the bucket below zero. Each share is checked by itself: "it admits
//!   with each key at most what flows in since then, divided by the number of gateways".
//!
//! The loss of a shard's data undoes uses as a failover does. Uses that are not reported then may never be.
//!
//! Time is that of the primary's clock: steps forward, also by a promotion, let tokens flow in.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Worst;
use crate::event::{Call, Command, Pending, Process};
use crate::lua::{Reply, Script};
use crate::shard::number_at;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Part by which a gateway's clock may run faster than that of Redis: twice the drift of the simulation.
const DRIFT: f64 = 2e-4;
/// Time for which single admissions by Redis are remembered.
const REMEMBERED: u64 = 120_000_000;

/// Windows of one key.
#[derive(Default)]
struct Windows {
    /// Tokens of each use.
    cost: f64,
    /// The most tokens by which a window that ends now exceeds its inflow.
    excess: f64,
    /// Time of the primary's clock to which that is computed.
    at: u64,
    /// Uses that were admitted locally while the reply of Redis is awaited.
    waiting: FxHashSet<u64>,
    /// Admissions by Redis.
    online: VecDeque<u64>,
}

/// Uses of a share.
#[derive(Clone, Copy)]
struct ShareUses {
    /// Steady and true time from which inflow counts.
    begin: (u64, u64),
    uses: u64,
}

pub struct BucketCheck {
    windows: Vec<Windows>,
    shares: FxHashMap<(usize, usize), ShareUses>,
    pub window: Worst,
    pub share: Worst,
}

impl BucketCheck {
    /// Of keys whose requests cost so many tokens each.
    pub fn new(costs: impl Iterator<Item = u32>) -> Self {
        let windows = costs.map(|cost| Windows { cost: cost.into(), ..Windows::default() }).collect();
        Self { windows, shares: FxHashMap::default(), window: Worst::default(), share: Worst::default() }
    }

    /// These uses are lost, or never repaid: windows may have as many more.
    pub fn forgive(&mut self, key: usize, uses: u64) {
        let windows = &mut self.windows[key];
        windows.excess = (windows.excess - uses as f64 * windows.cost).max(0.0);
    }

    /// A key has moved from a server to another, whose clocks have stepped forward by so much; that of the second
    /// is ahead by `ahead`.
    pub fn move_key(&mut self, key: usize, stepped: [u64; 2], ahead: u64) {
        let at = &mut self.windows[key].at;
        *at = (*at + stepped[1]).saturating_sub(stepped[0] + ahead);
    }

    pub fn begin_waiting(&mut self, key: usize, request: u64) {
        self.windows[key].waiting.insert(request);
    }

    pub fn end_waiting(&mut self, key: usize, request: u64) {
        self.windows[key].waiting.remove(&request);
    }

    /// Redis has answered the gateway about the key: its next outage has another share.
    pub fn end_share(&mut self, gateway: usize, key: usize) {
        self.shares.remove(&(gateway, key));
    }
}

impl World {
    /// A script has run. A token that was taken for a request that still waits is an admission.
    pub fn note_script(&mut self, command: &Command, reply: &Reply) {
        let is_live = self.is_live(command.process);
        let Some(Pending::Decide(pending)) = &command.pending else { return };
        let (Call::Script { script: Script::Decide, .. }, Reply::Packed(packed)) = (&command.call, reply) else {
            return;
        };
        if number_at(packed, 0) != 0.0 || pending.is_late || !is_live {
            return;
        }
        let key = pending.key;
        let process = command.process;
        let now = self.now;
        let online = &mut self.checks.bucket.windows[key].online;
        online.push_back(now);
        while online.front().is_some_and(|time| time + REMEMBERED < now) {
            online.pop_front();
        }
        self.check_window(process, key);
        self.check_slots_online(process, key);
    }

    /// Counts a use, and checks all windows that end with it.
    pub fn check_window(&mut self, process: Process, key: usize) {
        let now = self.now;
        let shard = self.directory.shard_of_key(key);
        let quota = self.directory.keys[key].quota;
        let time = now + self.shards[shard].stepped;
        let rate = f64::from(quota.inflow()) / quota.per_micros() as f64 * (1.0 + DRIFT);
        let windows = &mut self.checks.bucket.windows[key];
        windows.excess = (windows.excess - time.saturating_sub(windows.at) as f64 * rate).max(0.0) + windows.cost;
        windows.at = time;
        let excess = windows.excess;
        let burst = f64::from(quota.burst);
        let allowed = if excess > burst { self.excess_allowed(key) } else { 0.0 };
        let offender = Offender { gateway: process.gateway, key, org: NONE, shard };
        let text = || {
            format!(
                "key {key}: {excess:.1} beyond the inflow of the window, burst {burst}, lost, not reported or not \
                 repaid {allowed:.1}"
            )
        };
        // Of cases that use the whole bound, the one farthest over the burst is shown.
        self.checks.bucket.window.note(excess / (burst + allowed) + allowed * 1e-9, now, text);
        if excess > burst + allowed + 1e-3 {
            self.break_bound("bucket", text(), offender);
        }
    }

    /// Tokens by which a window may exceed the bound now: those that are not reported, if Redis admitted as many since;
    /// and those that were charged to the bucket below zero, until what flows in has repaid them.
    fn excess_allowed(&self, key: usize) -> f64 {
        let bucket = &self.checks.bucket;
        let mut unreported = bucket.windows[key].waiting.len() as u64;
        let mut first = self.now;
        if unreported > 0 {
            first = first.saturating_sub(10_000_000);
        }
        for gateway in &self.gateways {
            let number = gateway.process.gateway;
            let cached = gateway.decisions.cached(&self.directory.keys[key].digest).filter(|_| gateway.is_up);
            let Some(uses) = cached.and_then(|cached| cached.usage.unreported()) else { continue };
            unreported += uses.pending();
            let begin = bucket.shares.get(&(number, key)).map_or(0, |share| share.begin.1);
            first = first.min(begin);
        }
        let online = bucket.windows[key].online.iter().filter(|time| **time >= first).count() as u64;
        unreported.min(online) as f64 * bucket.windows[key].cost + self.debt(key)
    }

    /// Tokens that the bucket of a key is below zero.
    fn debt(&self, key: usize) -> f64 {
        let quota = self.directory.keys[key].quota;
        let shard = &self.shards[self.directory.shard_of_key(key)];
        let live = shard.last_field(&self.directory.keys[key].record, b"live").unwrap();
        let [level, at] = [1, 2].map(|place| number_at(live, place));
        let inflow = (shard.clock(self.now) as f64 - at).max(0.0) * f64::from(quota.inflow());
        (-(level + inflow)).max(0.0) / quota.per_micros() as f64
    }

    /// Checks the share of a gateway, which has admitted one more use.
    pub fn note_share(
        &mut self,
        process: Process,
        key: usize,
        confirmed: domain::clock::Micros,
        steady: domain::clock::Micros,
    ) {
        let now = self.now;
        let org = self.directory.keys[key].org;
        let quota = self.directory.keys[key].quota;
        let gateway = &self.gateways[process.gateway];
        let noticed = gateway.noticed.get(&org).copied().unwrap_or(steady.0).max(confirmed.0);
        let begin = (noticed, now.saturating_sub(steady.0 - noticed.min(steady.0)));
        let time = gateway.portion_of_time(noticed, steady.0, quota.burst);
        let share = self.checks.bucket.shares.entry((process.gateway, key)).or_insert(ShareUses { begin, uses: 0 });
        if share.begin.0 != begin.0 {
            *share = ShareUses { begin, uses: 0 };
        }
        share.uses += 1;
        let uses = share.uses as f64 * self.checks.bucket.windows[key].cost;
        let inflow = time * f64::from(quota.inflow()) / quota.per_micros() as f64;
        let text = || format!("gateway {}, key {key}: {uses} tokens of an inflow of {inflow:.2}", process.gateway);
        self.checks.bucket.share.note(uses / inflow.max(1e-9), now, text);
        if uses > inflow + 1e-6 {
            let shard = self.directory.shard_of_key(key);
            self.break_bound("bucket", text(), Offender { gateway: process.gateway, key, org: NONE, shard });
        }
    }
}
