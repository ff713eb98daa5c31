//! Bound of lost data.
//!
//! docs/redis.md: "A key, a token or a session is never refused for good because the state lost it. Restore the state,
//! and gateways serve on by themselves." So
//!
//! - no key is refused as unknown: all keys of the simulation exist. To a gateway on a new machine a lost state is a
//!   new one, until another gateway says there that it misses its state;
//! - no revocation is acknowledged of which a write went into a shard without its data. One that was written before the
//!   loss may be acknowledged after it: the loss undoes it, as a failover does;
//! - a request is refused for a lost state only while the shard of its key or of the identity is lost, or until its
//!   gateway could notice the restoration. An ordinary failover is no reason.

use crate::event::{Answer, Command, Pending};
use crate::trace::{NONE, Offender};
use crate::world::World;

/// Time from the end of all trouble of a restored shard until a gateway has read the identity again: one reading each
/// half a second, after one that has just failed.
const NOTICED_WITHIN: u64 = 1_000_000;

impl World {
    /// A key is refused as unknown.
    pub fn refuse_unknown(&mut self, id: u64) {
        let (process, key) = (self.requests[&id].process, self.requests[&id].key);
        let shard = self.directory.shard_of_key(key);
        if self.shards[self.log_shard].is_lost() && self.gateways[process.gateway].identity.memory().is_none() {
            return self.refuse(id, "unknown in a state that looks new");
        }
        let lost = if self.shards[shard].is_lost() { "which has lost its data" } else { "which has its data" };
        let text = format!("key {key}: refused as unknown at gateway {}, by shard {shard}, {lost}", process.gateway);
        self.break_bound("lost state", text, Offender { gateway: process.gateway, key, org: NONE, shard });
        self.refuse(id, "unknown");
    }

    /// A request is refused because the state, or the data of its organization, is lost.
    pub fn refuse_lost(&mut self, id: u64) {
        let (process, key) = (self.requests[&id].process, self.requests[&id].key);
        self.counts.refused_as_lost += 1;
        let gateway = &self.gateways[process.gateway];
        let mut since = None;
        for number in [self.log_shard, self.directory.shard_of_key(key)] {
            let (shard, link) = (&self.shards[number], &gateway.links[number]);
            let Some(restored) = shard.restored.or(shard.is_lost().then_some(self.now)) else { continue };
            let is_away = shard.is_lost() || !link.is_up || link.history != shard.history;
            let troubles = [restored, shard.troubled_until, gateway.cut_until[number], link.troubled];
            let end = if is_away { self.now } else { troubles.into_iter().max().unwrap_or(0) };
            since = since.max(Some(end));
        }
        let late = since.map(|since| self.now.saturating_sub(since));
        let text = || match late {
            Some(late) => {
                format!("key {key}: {:.3} s after the restoration, at gateway {}", late as f64 / 1e6, process.gateway)
            }
            None => format!("key {key}: refused for a lost state, and none was lost, at gateway {}", process.gateway),
        };
        self.checks.lost.note(late.map_or(f64::INFINITY, |late| late as f64 / NOTICED_WITHIN as f64), self.now, text);
        if late.is_none_or(|late| late > NOTICED_WITHIN) {
            let shard = self.log_shard;
            self.break_bound("lost state", text(), Offender { gateway: process.gateway, key, org: NONE, shard });
        }
        self.refuse(id, "state lost");
    }

    /// A server has made a write of a revocation.
    pub fn note_change_on(&mut self, shard: usize, command: &Command, answer: &Answer) {
        if let (Some(Pending::Revocation { number }), Answer::Changed(_)) = (&command.pending, answer) {
            self.revoking[*number].is_lost |= self.shards[shard].is_lost();
        }
    }

    /// A revocation is acknowledged.
    pub fn check_acknowledged(&mut self, number: usize) {
        let revoking = &self.revoking[number];
        if revoking.is_lost {
            let (gateway, key) = (revoking.process.gateway, revoking.key);
            let shard = self.directory.shard_of_key(key);
            let text = format!("key {key}: a revocation is acknowledged into lost data, at gateway {gateway}");
            self.break_bound("lost state", text, Offender { gateway, key, org: NONE, shard });
        }
    }
}
