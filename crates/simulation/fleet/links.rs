//! Links of gateways to the primaries of the shards: how they are lost, and come up again.

use super::event::{Event, Process};
use super::trace::{Entry, NONE};
use super::world::World;

/// Pauses before connecting, as in `crates/redis-client/src/reconnect.rs`.
const PAUSES: (u64, u64) = (10_000, 400_000);

impl World {
    /// A gateway notices that its link is down: replies on it are lost.
    pub fn link_down(&mut self, process: Process, shard: usize, connection: u32) {
        let now = self.now;
        let Some(gateway) = self.live(process) else { return };
        let link = &mut gateway.links[shard];
        if !link.is_up || link.connection != connection {
            return;
        }
        (link.is_up, link.down_since, link.pause) = (false, Some(now), PAUSES.0);
        self.trace.add(Entry {
            time: now,
            what: "link down",
            gateway: process.gateway,
            key: NONE,
            org: NONE,
            shard,
            number: 0,
        });
        let is_of_link = |id: &&u64| {
            let command = self.commands.get(id);
            command.is_some_and(|command| command.shard == shard && command.connection == connection)
        };
        let lost: Vec<u64> = self.gateways[process.gateway].sent.iter().filter(is_of_link).copied().collect();
        let pause = self.jittered(PAUSES.0);
        self.queue.add(now + pause, Event::Connect(process, shard));
        for id in lost {
            self.give_up(id);
        }
    }

    fn jittered(&mut self, pause: u64) -> u64 {
        pause / 2 + self.network.below(pause)
    }

    /// A gateway tries to connect to the primary of a shard.
    pub fn connect(&mut self, process: Process, shard: usize) {
        let now = self.now;
        let server = &self.shards[shard];
        let history = server.history;
        let lossy_history = server.lossy_history;
        let is_reachable = server.is_alive && server.hangs_until <= now;
        let Some(gateway) = self.live(process) else { return };
        let is_cut = gateway.cut_until[shard] > now;
        let link = &mut gateway.links[shard];
        if link.is_up {
            return;
        }
        if !is_reachable || is_cut {
            link.pause = (link.pause * 2).clamp(PAUSES.0, PAUSES.1);
            let pause = link.pause;
            let pause = self.jittered(pause);
            return self.queue.add(now + pause, Event::Connect(process, shard));
        }
        (link.is_up, link.late, link.down_since, link.troubled) = (true, 0, None, now);
        link.connection += 1;
        let before = std::mem::replace(&mut link.history, history);
        let is_failover = before != 0 && before != history;
        if before < lossy_history {
            link.restored_from = now;
        }
        if is_failover {
            self.gateways[process.gateway].count_failover();
        }
        let connection = self.gateways[process.gateway].links[shard].connection;
        self.queue.add(now, Event::Sign(process, shard, connection));
        self.queue.add(now + 1000, Event::Assert(process, shard));
        self.trace.add(Entry {
            time: now,
            what: "link up",
            gateway: process.gateway,
            key: NONE,
            org: NONE,
            shard,
            number: 0,
        });
        self.check_noticed(process, shard);
    }
}
