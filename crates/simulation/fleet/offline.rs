//! Decisions without Redis. What they admit is decided by the product.

use std::sync::Arc;

use state::Decision;

use super::directory::Org;
use super::world::World;

impl World {
    /// Decides without Redis.
    pub fn decide_offline(&mut self, id: u64) {
        let Some(request) = self.requests.get(&id).filter(|request| !request.is_admitted()) else { return };
        let process = request.process;
        let key = request.key;
        let late = Arc::clone(&request.late);
        let is_awaited = request.is_awaited;
        let asked = self.directory.request(key, request.asked);
        let org = self.directory.keys[key].org;
        let gateway = &mut self.gateways[process.gateway];
        let steady = gateway.steady(self.now);
        let Org { shard, moved, .. } = self.directory.orgs[org];
        let down_since = gateway.links[shard].down_since.map(|since| gateway.steady(since.max(moved)));
        gateway.noticed.entry(org).or_insert(down_since.map_or(steady, |since| since.min(steady)).0);
        match gateway.decisions.decide_offline(&asked, Some(&late), |_| down_since, steady) {
            Some(Decision::Admitted(admitted)) => {
                let cached = gateway.decisions.cached(asked.digest).expect("it has just been admitted");
                self.note_share(process, key, cached.usage.confirmed(), steady);
                if is_awaited {
                    self.checks.bucket.begin_waiting(key, id);
                }
                self.admit(id, admitted.permit, true);
            }
            Some(Decision::Denied { .. }) => self.refuse(id, "refused without Redis"),
            None => self.refuse(id, "unavailable"),
        }
    }
}
