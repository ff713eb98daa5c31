//! Bound of the revocations.
//!
//! docs/contract.md: "Revoking it takes effect at once, and ends its open requests", "Within a second of the
//! acknowledgement, on every gateway, each exchange of the revoked key … is reset". docs/redis.md adds to that
//!
//! - Failover: gateways that know the revocation "write it to the new primary as soon as one of their links has noticed
//!   it, at the latest a quarter of a second later … from then on every gateway refuses them"; "undone only when all
//!   gateways that know of it die together with the primary";
//! - With `durability: { replicas: 1 }` "a change is acknowledged only when a replica has it as well";
//! - The loss of a shard's data is no failover: it undoes what the restored copy lacks, durable or not;
//! - While Redis is unavailable: "keys that Redis confirmed within `max_staleness` are admitted".

use rustc_hash::{FxHashMap, FxHashSet};

use super::Worst;
use crate::event::Process;
use crate::gateway::DEADLINE;
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Time from the notice of the new primary to the confirmed write, and the decisions that are on their way meanwhile.
const ASSERTED_WITHIN: u64 = 250_000 + DEADLINE;
const OPEN_WITHIN: u64 = 1_000_000;
const STALE_WITHIN: u64 = 60_000_000;
/// Microseconds of a second by which a gateway's clock may be slower.
const DRIFT: u64 = 1_000_000 / 5_000;

/// An acknowledged revocation.
struct Revoked {
    at: u64,
    durable: bool,
    /// A failover has undone it, and so no gateway that knew it has noticed the new primary before this time.
    undone: bool,
    noticed: Option<u64>,
    /// Processes that know it: the one that made it, and those that have read it in the log.
    known: FxHashSet<(usize, u32)>,
    /// All gateways that knew it have died.
    is_forgotten: bool,
}

#[derive(Default)]
pub struct RevocationCheck {
    revoked: FxHashMap<usize, Revoked>,
    /// Processes that have read a revocation before its acknowledgement arrived.
    read_early: FxHashMap<usize, FxHashSet<(usize, u32)>>,
    pub connected: Worst,
    pub failover: Worst,
    pub cut_off: Worst,
    pub open: Worst,
}

impl RevocationCheck {
    pub fn acknowledge(&mut self, process: Process, key: usize, at: u64, durable: bool) {
        let known = self.read_early.remove(&key).unwrap_or_default();
        let mut revoked = Revoked { at, durable, undone: false, noticed: None, known, is_forgotten: false };
        revoked.known.insert((process.gateway, process.start));
        self.revoked.insert(key, revoked);
    }

    /// A failover has undone the revocation of a key.
    pub fn undo(&mut self, key: usize) -> bool {
        let Some(revoked) = self.revoked.get_mut(&key) else { return false };
        (revoked.undone, revoked.noticed) = (true, None);
        true
    }

    /// The restored copy of lost data lacks the revocation of a key.
    pub fn undo_by_loss(&mut self, key: usize) -> bool {
        let Some(revoked) = self.revoked.get_mut(&key) else { return false };
        (revoked.durable, revoked.noticed) = (false, None);
        !std::mem::replace(&mut revoked.undone, true)
    }
}

impl World {
    /// A gateway has connected to the primary of a shard: it may know a revocation that was undone there.
    pub fn check_noticed(&mut self, process: Process, shard: usize) {
        for (key, revoked) in &mut self.checks.revocation.revoked {
            let directory_key = &self.directory.keys[*key];
            if revoked.undone
                && revoked.noticed.is_none()
                && self.directory.orgs[directory_key.org].shard == shard
                && revoked.known.contains(&(process.gateway, process.start))
            {
                revoked.noticed = Some(self.now);
            }
        }
    }

    /// A gateway has read a revocation in the log.
    pub fn note_known(&mut self, process: Process, key: usize) {
        let check = &mut self.checks.revocation;
        let known = match check.revoked.get_mut(&key) {
            Some(revoked) => &mut revoked.known,
            None => check.read_early.entry(key).or_default(),
        };
        if known.insert((process.gateway, process.start)) {
            let shard = self.directory.shard_of_key(key);
            let link = &self.gateways[process.gateway].links[shard];
            if link.is_up && self.shards[shard].is_alive && link.history == self.shards[shard].history {
                self.check_noticed(process, shard);
            }
        }
    }

    /// Checks an admission, whose decision began at `begun`.
    pub fn check_revocation(&mut self, process: Process, key: usize, begun: u64, provisional: bool) {
        let now = self.now;
        let check = &mut self.checks.revocation;
        let Some(revoked) = check.revoked.get(&key).filter(|revoked| begun > revoked.at) else { return };
        let gateway = process.gateway;
        let delay = begun - revoked.at;
        let text =
            || format!("key {key}: begun {:.3} s after the acknowledgement, at gateway {gateway}", delay as f64 / 1e6);
        let is_broken = if provisional {
            check.cut_off.note(delay as f64 / STALE_WITHIN as f64, now, text);
            delay > STALE_WITHIN + STALE_WITHIN / 1_000_000 * DRIFT
        } else if revoked.undone && !revoked.durable {
            let since = revoked.noticed.map_or(0, |noticed| begun.saturating_sub(noticed));
            let text = || format!("{}, {:.3} s after the notice of the new primary", text(), since as f64 / 1e6);
            check.failover.note((since + 1) as f64 / ASSERTED_WITHIN as f64, now, text);
            since > ASSERTED_WITHIN && !revoked.is_forgotten
        } else {
            check.connected.note(f64::INFINITY, now, text);
            true
        };
        if is_broken {
            let shard = self.directory.shard_of_key(key);
            self.break_bound("revocation", text(), Offender { gateway, key, org: NONE, shard });
        }
    }

    /// Checks the end of an exchange that a revocation ends.
    pub fn check_termination(&mut self, process: Process, key: usize) {
        let now = self.now;
        let Some(revoked) = self.checks.revocation.revoked.get(&key) else { return };
        let delay = now.saturating_sub(revoked.at);
        let gateway = &self.gateways[process.gateway];
        let link = &gateway.links[self.log_shard];
        let log = &self.shards[self.log_shard];
        let trouble = gateway.cut_until[self.log_shard].max(log.hangs_until).max(link.troubled);
        // While the log cannot be read, nothing ends; after a failover of the log every exchange is checked for 15 s.
        if trouble + 16_000_000 > revoked.at || !link.is_up {
            return;
        }
        let text = || {
            format!(
                "key {key}: ended {:.3} s after the acknowledgement, at gateway {}",
                delay as f64 / 1e6,
                process.gateway
            )
        };
        self.checks.revocation.open.note(delay as f64 / OPEN_WITHIN as f64, now, text);
        if delay > OPEN_WITHIN {
            let shard = self.log_shard;
            self.break_bound("revocation", text(), Offender { gateway: process.gateway, key, org: NONE, shard });
        }
    }

    /// A process has died: revocations that no other one knows may be undone.
    pub fn note_death_of_keeper(&mut self) {
        for revoked in self.checks.revocation.revoked.values_mut() {
            let knows = |gateway: &crate::gateway::Gateway| {
                gateway.is_up && revoked.known.contains(&(gateway.process.gateway, gateway.process.start))
            };
            if revoked.undone && revoked.noticed.is_none() && !self.gateways.iter().any(knows) {
                revoked.is_forgotten = true;
            }
        }
    }
}
