//! Decisions without Redis, as `crates/state/src/redis/decide/offline.rs` makes them with `known_keys`. What a
//! share admits is the product's own.

use std::sync::Arc;

use state::redis::ExactShare;

use super::event::Process;
use super::gateway::{LEASE, MAX_STALENESS};
use super::world::World;

impl World {
    /// Decides without Redis, as `crates/state/src/redis/decide/offline.rs` does with `known_keys`.
    pub fn decide_offline(&mut self, id: u64) {
        let Some(request) = self.requests.get(&id) else { return };
        let (process, key, late) = (request.process, request.key, Arc::clone(&request.late));
        let (now, base) = (self.now, self.base);
        let org = self.directory.keys[key].org;
        let shard = self.directory.orgs[org].shard;
        let gateway = &mut self.gateways[process.gateway];
        let steady = gateway.steady(now);
        let down_since = gateway.links[shard].down_since.map(|since| gateway.steady(since));
        gateway.noticed.entry(org).or_insert(down_since.map_or(steady, |since| since.min(steady)).0);
        let lease = gateway.lease(org, &self.directory.orgs[org], base, now);
        let membership = gateway.membership;
        let Some(cached) = gateway.cached(key, self.directory.keys[key].id) else {
            return self.refuse(id, "unavailable");
        };
        if cached.is_revoked || cached.confirmed.after(MAX_STALENESS) < steady {
            return self.refuse(id, "unavailable");
        }
        let (quota, concurrent) = (self.directory.keys[key].quota, self.directory.orgs[org].limit);
        let share = ExactShare { usage: &cached.usage, lease: &lease, quota, concurrent };
        match share.take(down_since, steady, |since| membership?.portion(since, LEASE)) {
            Some(Ok((permit, ..))) => {
                let confirmed = cached.confirmed;
                self.note_share(process, key, confirmed, steady);
                if late.admit_locally() {
                    self.record_unreported(process, key);
                } else {
                    self.checks.bucket.begin_waiting(key, id);
                }
                self.admit(id, permit, true);
            }
            Some(Err(_)) => self.refuse(id, "refused by the share"),
            None => self.refuse(id, "unavailable"),
        }
    }

    /// Records a use that Redis has not counted, as `DeciderShared::record_unreported` does.
    pub fn record_unreported(&mut self, process: Process, key: usize) {
        let name = self.chance.next().to_le_bytes();
        let gateway = &mut self.gateways[process.gateway];
        if gateway.keys[&key].usage.add_unreported(name) == 1 {
            gateway.unreported.push(key);
        }
    }
}
