//! Assertion of kept revocations on primaries that may lack them.

use std::rc::Rc;
use std::sync::Arc;

use state::redis::{Kept, Replication, Revocation, round_trips};

use super::event::{Call, Pending, Process};
use super::lua::Script;
use super::world::World;

impl World {
    /// Writes to the primary of a shard the kept revocations that its history has not confirmed.
    pub fn assert_revocations(&mut self, process: Process, shard: usize) {
        let Some(gateway) = self.live(process) else { return };
        if !gateway.links[shard].is_up {
            return;
        }
        let history = self.history(shard);
        let serves = |slot: u16| self.directory.shard_of_slot(slot) == shard;
        let mut missing = self.gateways[process.gateway].kept.unconfirmed(&history, serves);
        // In an order that is the same in each run.
        let kept = Arc::clone(&self.gateways[process.gateway].kept);
        missing.sort_by_cached_key(|one| (one.slot, kept.writes(std::slice::from_ref(one))));
        for script in round_trips(&missing, false).into_iter().flatten() {
            let writes = kept.writes(script);
            let keys = writes.iter().map(|(record, _)| Rc::from(record.as_bytes())).collect();
            let version = self.chance.next().to_le_bytes().to_vec();
            let arguments = std::iter::once(version).chain(writes.iter().map(|(_, write)| write.clone().into_bytes()));
            let call = Call::Script { script: Script::AssertRevocations, keys, arguments: arguments.collect() };
            let pending = Pending::Assert { kept: script.to_vec(), history: Arc::clone(&history) };
            drop(self.send(process, shard, call, pending));
        }
    }

    /// The server has these revocations.
    pub fn complete_assertion(&mut self, process: Process, shard: usize, kept: &[Kept], history: Arc<str>) {
        self.gateways[process.gateway]
            .kept
            .confirm(kept, &Replication { history, is_primary: true, ..Default::default() });
        for kept in kept {
            if let Revocation::Key { key, .. } | Revocation::Disabled { key, .. } = &*kept.revocation {
                let key = self.directory.key_of(*key);
                self.note("revocation asserted", process.gateway, key, shard);
            }
        }
    }
}
