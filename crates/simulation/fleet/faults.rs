//! Faults: failovers, partitions, clocks that step, machines that die, and a database that is away. Each kind comes
//! again and again after a random pause. Those of a server that lose nothing are in `server_faults`.

use journal::audit::Durability;

use super::checks::audit::Death;
use super::event::Event;
use super::trace::{Entry, NONE};
use super::withdrawal::withdrawal;
use super::world::{CALM, World};

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A primary dies; its replica is promoted.
    Failover,
    /// The primary of this shard dies.
    Kill(usize),
    /// A replica falls behind.
    Lag,
    /// A shard does not answer.
    Hang,
    /// The same, for longer than a lease.
    Outage,
    /// The process of a primary ends, and is started again on its disk.
    Restart,
    /// The memory of a primary is full.
    Full,
    /// A hash slot moves from a shard to another.
    Reshard,
    /// Some gateways are cut off from one shard.
    Partition,
    /// Some gateways are cut off from all shards.
    Isolation,
    /// The clock of a primary steps.
    ClockStep,
    /// The same, by up to three leases.
    LongClockStep,
    /// A gateway dies, and comes back with its disk.
    Crash,
    /// A machine loses its power, and comes back with its disk.
    PowerLoss,
    /// A disk has no space.
    FullDisk,
    /// A sync of a journal fails.
    FailedSync,
    /// A machine is lost with its disk; another takes its place.
    Loss,
    /// A gateway leaves in order, and comes back.
    Leave,
    /// A shard loses its data.
    ShardLoss,
    /// The database is away.
    Database,
    /// Not a fault: a key is revoked.
    Revocation,
}

/// Faults with their mean pauses in a fleet of 1000 gateways and 100 shards, in microseconds.
const KINDS: &[(Fault, u64)] = &[
    (Fault::Failover, 2_000_000),
    (Fault::Lag, 3_000_000),
    (Fault::Hang, 4_000_000),
    (Fault::Outage, 8_000_000),
    (Fault::Restart, 8_000_000),
    (Fault::Full, 8_000_000),
    (Fault::Reshard, 4_000_000),
    (Fault::Partition, 1_500_000),
    (Fault::Isolation, 5_000_000),
    (Fault::ClockStep, 5_000_000),
    (Fault::LongClockStep, 8_000_000),
    (Fault::Crash, 1_000_000),
    (Fault::PowerLoss, 2_500_000),
    (Fault::FullDisk, 2_500_000),
    (Fault::FailedSync, 8_000_000),
    (Fault::Loss, 4_000_000),
    (Fault::Leave, 4_000_000),
    (Fault::ShardLoss, 8_000_000),
    (Fault::Database, 25_000_000),
    (Fault::Revocation, 700_000),
];
/// Largest step of a server's clock that is no more than what clocks differ by; and the largest of the long ones.
const STEP: u64 = 2_000_000;
const LONG_STEP: u64 = 30_000_000;

impl World {
    pub fn plan_faults(&mut self) {
        for (fault, _) in KINDS {
            self.plan(*fault, CALM);
        }
    }

    fn plan(&mut self, fault: Fault, after: u64) {
        let Some((_, mean)) =
            KINDS.iter().find(|(kind, _)| std::mem::discriminant(kind) == std::mem::discriminant(&fault))
        else {
            return;
        };
        // A small fleet has fewer faults, but more of them for each gateway.
        let least =
            if matches!(fault, Fault::Crash | Fault::PowerLoss | Fault::Loss | Fault::Leave) { 2.5 } else { 1.25 };
        let scale = (1000.0 / self.options.gateways as f64).sqrt().clamp(1.0, least);
        let at = after + self.chance.exponential(*mean as f64 * scale);
        if at < self.end {
            self.queue.add(at, Event::Fault(fault));
        }
    }

    pub fn begin_fault(&mut self, fault: Fault) {
        let shard = self.chance.index(self.shards.len());
        let gateway = self.chance.index(self.gateways.len());
        let process = self.gateways[gateway].process;
        match fault {
            Fault::Failover => self.kill(shard),
            Fault::Kill(shard) => self.kill(shard),
            Fault::Lag => self.fall_behind(shard),
            Fault::Hang => {
                let time = self.chance.between(100_000, 6_000_000);
                self.hang(shard, time);
            }
            Fault::Outage => {
                let time = self.chance.between(8_000_000, 25_000_000);
                self.counts.outages += 1;
                self.hang(shard, time);
            }
            Fault::Restart => self.stop_primary(shard),
            Fault::ShardLoss => self.lose_shard(shard),
            Fault::Full => self.fill(shard),
            Fault::Reshard => self.begin_move(shard),
            Fault::Partition => self.cut_off(&[shard]),
            Fault::Isolation => self.cut_off(&(0..self.shards.len()).collect::<Vec<_>>()),
            Fault::ClockStep => self.step_clock(shard, STEP),
            Fault::LongClockStep => self.step_clock(shard, LONG_STEP),
            Fault::Crash => self.crash(process, Death::Killed),
            Fault::PowerLoss => self.crash(process, Death::PowerLost),
            Fault::Loss => self.crash(process, Death::MachineLost),
            Fault::FullDisk => {
                let time = self.chance.between(100_000, 8_000_000);
                self.counts.full_disks += 1;
                let disk = &mut self.gateways[gateway].disk;
                disk.fill(self.now, self.now + time);
                self.note_fault("disk full", gateway, NONE, i64::try_from(time).unwrap());
            }
            Fault::FailedSync => {
                let gateway = &mut self.gateways[gateway];
                if gateway.journal.durability == Durability::Synced {
                    gateway.disk.fails_sync = true;
                    self.counts.failed_syncs += 1;
                }
            }
            Fault::Leave => self.queue.add(self.now, Event::Leave(process)),
            Fault::Database => {
                let time = self.chance.between(500_000, 25_000_000);
                self.sinks.away_until = self.sinks.away_until.max(self.now + time);
                self.note_fault("sinks away", NONE, NONE, i64::try_from(time).unwrap());
            }
            Fault::Revocation => self.begin_revocation(),
        }
        self.plan(fault, self.now);
    }

    pub fn note_fault(&mut self, what: &'static str, gateway: usize, shard: usize, number: i64) {
        self.trace.add(Entry { time: self.now, what, gateway, key: NONE, org: NONE, shard, number });
    }

    /// After a revocation, its primary dies now and then, before the replica has it.
    pub fn plan_failover_after_revocation(&mut self, shard: usize) {
        if self.chance.one_in(2) && self.now < self.end {
            let pause = self.chance.below(3000);
            self.queue.add(self.now + pause, Event::Fault(Fault::Kill(shard)));
        }
    }

    fn step_clock(&mut self, shard: usize, most: u64) {
        let by = i64::try_from(self.chance.below(2 * most)).unwrap() - i64::try_from(most).unwrap();
        self.counts.clock_steps += 1;
        self.shards[shard].step_clock(by);
        self.shards[shard].note_trouble(self.now);
        self.note_fault("clock steps", NONE, shard, by);
    }

    pub fn orgs_of(&self, shard: usize) -> Vec<usize> {
        (0..self.directory.orgs.len()).filter(|org| self.directory.orgs[*org].shard == shard).collect()
    }

    /// The primary of a shard dies with what its replica has not got.
    fn kill(&mut self, shard: usize) {
        let server = &mut self.shards[shard];
        if !server.is_sound(self.now) {
            return;
        }
        server.kill(self.now);
        self.counts.failovers += 1;
        self.note_fault("primary dies", NONE, shard, 0);
        self.count_losses(shard);
        let subjects = self.directory.subjects_on(shard);
        self.checks.slots.note_primary(subjects, true);
        // The process may die, which closes its connections; or the machine, which leaves them silent.
        let is_silent = self.chance.one_in(4);
        self.drop_links(shard, is_silent);
        let pause = self.chance.between(1_200_000, 4_000_000);
        self.queue.add(self.now + pause, Event::Promote(shard));
    }

    /// Counts what the replica lacks: uses may be admitted once more, and revocations are undone.
    pub fn count_losses(&mut self, shard: usize) {
        self.count_lost_units(shard);
        let server = &self.shards[shard];
        for (number, key) in self.directory.keys.iter().enumerate() {
            if self.directory.orgs[key.org].shard != shard {
                continue;
            }
            let uses =
                |live: Option<&super::database::Bytes>| live.map_or(0.0, |live| super::shard::number_at(live, 4));
            let lost = uses(server.field(&key.record, b"live")) - uses(server.replica_field(&key.record, b"live"));
            self.checks.bucket.forgive(number, lost as u64);
            self.counts.lost_uses += lost as u64;
            let field = withdrawal(number)[0].0;
            if server.field(&key.record, field).is_some() && server.replica_field(&key.record, field).is_none() {
                self.counts.lost_revocations += u64::from(self.checks.revocation.undo(number));
            }
        }
    }

    /// Gateways lose their links to a shard: at once, or when they notice the silence.
    pub fn drop_links(&mut self, shard: usize, is_silent: bool) {
        for number in 0..self.gateways.len() {
            self.drop_link(number, shard, is_silent);
        }
    }

    fn drop_link(&mut self, gateway: usize, shard: usize, is_silent: bool) {
        let pause =
            if is_silent { self.network.between(1_150_000, 2_300_000) } else { self.network.between(200, 3000) };
        let process = self.gateways[gateway].process;
        let connection = self.gateways[gateway].links[shard].connection;
        self.queue.add(self.now + pause, Event::LinkDown { process, shard, connection });
    }

    pub fn promote(&mut self, shard: usize) {
        self.shards[shard].promote();
        self.shards[shard].note_trouble(self.now);
        self.note_fault("replica promoted", NONE, shard, 0);
        let subjects = self.directory.subjects_on(shard);
        self.checks.slots.note_primary(subjects, false);
        let pause = self.chance.between(3_000_000, 10_000_000);
        self.queue.add(self.now + pause, Event::AddReplica(shard));
    }

    fn fall_behind(&mut self, shard: usize) {
        let lag = self.chance.between(50_000, 1_500_000);
        let time = self.chance.between(1_000_000, 4_000_000);
        let usual = self.chance.between(500, 20_000);
        self.shards[shard].lag = lag;
        self.queue.add(self.now + time, Event::EndLag(shard, usual));
        self.note_fault("replica behind", NONE, shard, i64::try_from(lag).unwrap());
        if self.chance.one_in(2) {
            self.queue.add(self.now + time - 1, Event::Fault(Fault::Kill(shard)));
        }
    }

    /// A server stops, and goes on where it was.
    fn hang(&mut self, shard: usize, time: u64) {
        let server = &self.shards[shard];
        if !server.is_alive || server.hangs_until > self.now || server.is_lost() {
            return;
        }
        self.shards[shard].hangs_until = self.now + time;
        self.shards[shard].note_trouble(self.now + time);
        self.note_fault("primary hangs", NONE, shard, i64::try_from(time).unwrap());
        if time > 2_300_000 {
            self.drop_links(shard, true);
        }
    }

    /// Some gateways lose the way to shards.
    fn cut_off(&mut self, shards: &[usize]) {
        self.counts.partitions += 1;
        let most = (self.gateways.len() / 20).max(2);
        let count = 1 + self.chance.index(most);
        let time = self.chance.between(300_000, 70_000_000);
        // Long ones are rare.
        let time = if self.chance.one_in(3) { time } else { time / 10 };
        for _ in 0..count {
            let gateway = self.chance.index(self.gateways.len());
            for shard in shards {
                let until = &mut self.gateways[gateway].cut_until[*shard];
                *until = (*until).max(self.now + time);
                if time > 2_300_000 {
                    self.drop_link(gateway, *shard, true);
                }
            }
            let shard = if shards.len() == 1 { shards[0] } else { NONE };
            self.note_fault("gateway cut off", gateway, shard, i64::try_from(time).unwrap());
        }
    }
}
