//! Faults of a server that lose nothing: it is restarted on its disk, its memory is full, its hash slots move.

use super::event::Event;
use super::trace::NONE;
use super::world::World;

impl World {
    /// The process of a primary ends, and is started again before a replica is promoted: at once, or after a lease.
    pub fn stop_primary(&mut self, shard: usize) {
        let server = &mut self.shards[shard];
        if !server.is_sound(self.now) {
            return;
        }
        server.kill(self.now);
        self.counts.restarts += 1;
        self.note_fault("primary stops", NONE, shard, 0);
        let subjects = self.directory.subjects_on(shard);
        self.checks.slots.note_primary(subjects, true);
        self.drop_links(shard, false);
        let pause = self.chance.between(500_000, 20_000_000);
        self.queue.add(self.now + pause, Event::Restart(shard));
    }

    pub fn restart_primary(&mut self, shard: usize) {
        self.shards[shard].restart();
        self.shards[shard].note_trouble(self.now);
        self.note_fault("primary restarts", NONE, shard, 0);
        let subjects = self.directory.subjects_on(shard);
        self.checks.slots.note_primary(subjects, false);
    }

    /// The memory of a primary is full: for moments, or for longer than a lease.
    pub fn fill(&mut self, shard: usize) {
        let time = self.chance.between(300_000, 20_000_000);
        if self.shards[shard].full_until > self.now || self.shards[shard].is_lost() {
            return;
        }
        self.shards[shard].full_until = self.now + time;
        self.shards[shard].note_trouble(self.now + time);
        self.counts.full += 1;
        self.note_fault("memory full", NONE, shard, i64::try_from(time).unwrap());
        self.queue.add(self.now + time, Event::EndFull(shard));
    }

    pub fn end_full(&mut self, shard: usize) {
        self.note_fault("memory has room", NONE, shard, 0);
    }

    /// Begins to move a hash slot of a shard to another one.
    pub fn begin_move(&mut self, from: usize) {
        let orgs = self.orgs_of(from);
        let to = self.chance.index(self.shards.len());
        if orgs.is_empty() || to == from {
            return;
        }
        let hash_slot = self.directory.orgs[orgs[self.chance.index(orgs.len())]].hash_slot;
        if !self.moving.insert(hash_slot) {
            return;
        }
        self.note_fault("hash slot moves", NONE, from, hash_slot.into());
        let time = self.chance.between(1_000, 2_000_000);
        self.queue.add(self.now + time, Event::EndMove { hash_slot, from, to });
    }

    /// A hash slot has moved, unless a server is away: then it stays where it was.
    pub fn end_move(&mut self, hash_slot: u16, from: usize, to: usize) {
        self.moving.remove(&hash_slot);
        let now = self.now;
        let can_move = [from, to].iter().all(|shard| {
            let server = &self.shards[*shard];
            server.is_sound(now) && server.full_until <= now
        });
        if !can_move {
            return self.note_fault("hash slot stays", NONE, from, hash_slot.into());
        }
        self.counts.moves += 1;
        let (keys, records) = self.directory.move_slot(hash_slot, to, now);
        let names: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let taken = self.shards[from].take_records(&names);
        self.shards[to].put_records(taken);
        [from, to].into_iter().for_each(|shard| self.shards[shard].note_trouble(now));
        // A clock that is ahead lets as much flow in as belongs to the difference.
        let ahead = self.shards[to].clock(now).saturating_sub(self.shards[from].clock(now));
        let stepped = [from, to].map(|shard| self.shards[shard].stepped);
        keys.into_iter().for_each(|key| self.checks.bucket.move_key(key, stepped, ahead));
        self.note_fault("hash slot moved", NONE, to, hash_slot.into());
    }
}
