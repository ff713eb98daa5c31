//! Commands that a server does not run: their hash slot has moved or is on its way, or its memory is full.

use super::event::{Call, Command, Event, Pending};
use super::gateway::DEADLINE;
use super::identity::Confirming;
use super::lua::Script;
use super::world::World;

/// As `TRY_AGAIN_PAUSE` of `crates/redis-client/src/redis_client.rs`.
const TRY_AGAIN_PAUSE: u64 = 5_000;

impl World {
    /// Sends a command on whose hash slot has moved (`MOVED`), or again while it is on its way (`TRYAGAIN`), as
    /// `RedisClient::follow` does. Returns whether it was.
    pub fn is_redirected(&mut self, id: u64) -> bool {
        let now = self.now;
        let Some(command) = self.commands.get(&id) else { return false };
        // A command that its gateway has given up is sent on to no other server.
        let Some(org) = command.org.filter(|_| command.pending.is_some()) else { return false };
        let shard = self.directory.orgs[org].shard;
        let process = command.process;
        let is_moving = self.moving.contains(&self.directory.orgs[org].hash_slot);
        if is_moving && now < command.sent + DEADLINE {
            self.queue.add(now + TRY_AGAIN_PAUSE, Event::Arrive(id));
            return true;
        }
        let link = self.gateways[process.gateway].links[shard].clone();
        if shard == command.shard || !link.is_up {
            return false;
        }
        if let Some(command) = self.commands.get_mut(&id) {
            (command.shard, command.connection, command.history) = (shard, link.connection, link.history);
        }
        let latency = self.latency() + self.latency();
        self.queue.add(now + latency, Event::Arrive(id));
        true
    }

    /// Returns whether the server refuses a command: its hash slot is elsewhere or on its way, or the memory is full
    /// and the command withdraws nothing.
    pub fn refuses(&mut self, command: &Command) -> bool {
        let is_elsewhere = command.org.is_some_and(|org| {
            let org = &self.directory.orgs[org];
            org.shard != command.shard || self.moving.contains(&org.hash_slot)
        });
        let writes = matches!(
            &command.call,
            Call::Script { script: Script::Decide | Script::SlotReport | Script::Heartbeat | Script::SignOfLife, .. }
        );
        let is_refused = is_elsewhere || writes && self.shards[command.shard].full_until > self.now;
        self.counts.refused += u64::from(is_refused);
        is_refused
    }

    /// The organization whose records a command needs.
    pub fn org_of_command(&self, pending: &Pending) -> Option<usize> {
        match pending {
            Pending::Read { request } => self.requests.get(request).map(|request| self.directory.keys[request.key].org),
            Pending::Revocation { number } => {
                let revoking = &self.revoking[*number];
                (!revoking.is_written()).then(|| self.directory.keys[revoking.key].org)
            }
            Pending::Confirm { request, step: Confirming::Org } => {
                self.requests.get(request).map(|request| self.directory.keys[request.key].org)
            }
            other => self.subjects_of_pending(other).first().map(|subject| self.directory.org_of_subject(*subject)),
        }
    }
}
