//! Loss of all data of a shard, on primary and replica, and its restoration by an operator.

use super::event::Event;
use super::trace::NONE;
use super::withdrawal::withdrawal;
use super::world::World;

impl World {
    /// A shard loses its data: it is restarted on an empty disk, or emptied as by `FLUSHALL`, which leaves connections
    /// and history as they are.
    pub fn lose_shard(&mut self, shard: usize) {
        let now = self.now;
        let server = &mut self.shards[shard];
        if !server.is_sound(now) || server.full_until > now {
            return;
        }
        let is_restart = self.chance.one_in(2);
        let pause = self.chance.between(2_000_000, 20_000_000);
        server.end_stream(now);
        server.note_trouble(now + pause);
        self.count_losses(shard);
        self.note_lost_counters(shard);
        self.forgive_unreported(shard);
        self.shards[shard].lose_data(is_restart);
        self.counts.shard_losses += 1;
        self.note_fault(if is_restart { "restarts without data" } else { "emptied" }, NONE, shard, 0);
        let subjects = self.directory.subjects_on(shard);
        self.checks.slots.note_primary(subjects, true);
        if is_restart {
            self.drop_links(shard, false);
        }
        self.queue.add(now + pause, Event::Restore(shard));
    }

    /// An operator restores what the replica had.
    pub fn restore_shard(&mut self, shard: usize) {
        let now = self.now;
        self.shards[shard].restore_data(now);
        self.shards[shard].note_trouble(now);
        self.note_fault("data restored", NONE, shard, 0);
        self.forgive_unreported(shard);
        for (number, key) in self.directory.keys.iter().enumerate() {
            let is_here = self.directory.orgs[key.org].shard == shard;
            if is_here && self.shards[shard].field(&key.record, withdrawal(number)[0].0).is_none() {
                self.counts.lost_revocations += u64::from(self.checks.revocation.undo_by_loss(number));
            }
        }
        let subjects = self.directory.subjects_on(shard);
        self.checks.slots.note_primary(subjects, false);
        self.drop_links(shard, false);
    }

    /// Uses that gateways have not reported: they forget those of keys that the shard does not have.
    fn forgive_unreported(&mut self, shard: usize) {
        for (number, key) in self.directory.keys.iter().enumerate() {
            if self.directory.orgs[key.org].shard != shard {
                continue;
            }
            for gateway in self.gateways.iter().filter(|gateway| gateway.is_up) {
                let cached = gateway.decisions.cached(&key.digest);
                let uses = cached.and_then(|cached| cached.usage.unreported()).map_or(0, |uses| uses.pending());
                self.checks.bucket.forgive(number, uses);
                self.counts.unrepaid_uses += uses;
            }
        }
    }
}
