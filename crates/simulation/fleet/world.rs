//! The fleet: all that there is, and the loop over its events.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};
use state::redis::{RecordNames, gateways_slot, key_fields, org_fields, orgs_slot, revocations_slot, user_fields};

use super::budgets::End;
use super::checks::{Checks, Violation};
use super::directory::Directory;
use super::disk::Disk;
use super::event::{Command, Event, Process, Queue};
use super::gateway::{Gateway, YEAR};
use super::lua::Scripts;
use super::options::{Break, Options};
use super::product::Product;
use super::random::Random;
use super::requests::Request;
use super::revocations::Revoking;
use super::shard::Shard;
use super::sinks::Sinks;
use super::trace::{Offender, Trace};

/// Time for which the fleet runs on without faults and requests, so that everything is delivered.
const AFTERMATH: u64 = 60_000_000;
/// Time before the first fault: all gateways have joined.
pub const CALM: u64 = 6_000_000;

pub struct World {
    pub options: Options,
    pub now: u64,
    /// End of requests and faults.
    pub end: u64,
    pub queue: Queue,
    /// One generator for each kind of chance, so that a change of one leaves the others alone.
    pub load: Random,
    pub network: Random,
    pub chance: Random,
    pub scripts: Scripts,
    /// Settings and scripts of the product, which all gateways share.
    pub product: Product,
    pub directory: Directory,
    pub shards: Vec<Shard>,
    pub gateways: Vec<Gateway>,
    pub commands: FxHashMap<u64, Command>,
    pub requests: FxHashMap<u64, Request>,
    pub next_id: u64,
    pub revoking: Vec<Revoking>,
    pub sinks: Sinks,
    /// Disks so far.
    pub disks: u64,
    pub checks: Checks,
    pub trace: Trace,
    /// Any instant: the steady clocks count from it.
    pub base: Instant,
    pub gateways_shard: usize,
    pub log_shard: usize,
    pub orgs_shard: usize,
    pub gateways_record: Vec<u8>,
    pub registry_record: Vec<u8>,
    pub log_record: Vec<u8>,
    pub missed_record: Vec<u8>,
    pub tags_record: Vec<u8>,
    /// Hash slots that are on their way from a shard to another.
    pub moving: FxHashSet<u16>,
    pub counts: Counts,
}

/// Numbers of the events of each kind.
#[derive(Default, Debug)]
pub struct Counts {
    pub events: u64,
    pub requests: u64,
    pub admitted: u64,
    pub provisional: u64,
    pub unavailable: u64,
    pub failovers: u64,
    pub shard_losses: u64,
    pub refused_as_lost: u64,
    pub outages: u64,
    pub restarts: u64,
    pub clock_steps: u64,
    pub full: u64,
    pub moves: u64,
    pub refused: u64,
    pub lost_uses: u64,
    pub unrepaid_uses: u64,
    pub crashes: u64,
    pub power_losses: u64,
    pub full_disks: u64,
    pub failed_syncs: u64,
    pub unrecorded: u64,
    pub lost_machines: u64,
    pub left: u64,
    pub partitions: u64,
    pub revocations: u64,
    pub lost_revocations: u64,
    pub terminated: u64,
}

impl World {
    pub fn new(options: Options) -> Self {
        let (directory, counters) = Directory::new(&options);
        let mut random = Random::new(options.seed);
        let shards = (0..options.shards)
            .map(|_| {
                // The machines' clocks differ by up to two seconds.
                let clocks = [0; 2].map(|_: i32| i64::try_from(random.below(4_000_000)).unwrap() - 2_000_000);
                Shard::new(clocks, 500 + random.below(20_000))
            })
            .collect();
        let names = RecordNames::new("keygate");
        let mut scripts = Scripts::new(options.broken.map_or(&[], Break::patches));
        scripts.believes_lost_registry = options.broken == Some(Break::Registry);
        let mut world = Self {
            now: 0,
            end: options.seconds * 1_000_000,
            queue: Queue::default(),
            load: Random::new(random.next()),
            network: Random::new(random.next()),
            chance: Random::new(random.next()),
            scripts,
            product: Product::new(options.broken),
            shards,
            gateways: Vec::new(),
            commands: FxHashMap::default(),
            requests: FxHashMap::default(),
            next_id: 0,
            revoking: Vec::new(),
            sinks: Sinks::default(),
            disks: 0,
            checks: Checks::new(&directory, counters),
            trace: Trace::default(),
            base: Instant::now(),
            gateways_shard: directory.shard_of_slot(gateways_slot()),
            log_shard: directory.shard_of_slot(revocations_slot()),
            orgs_shard: directory.shard_of_slot(orgs_slot()),
            gateways_record: names.gateways().into_bytes(),
            registry_record: names.registry().into_bytes(),
            log_record: names.revocations().into_bytes(),
            missed_record: names.missed_state().into_bytes(),
            tags_record: names.tags().into_bytes(),
            moving: FxHashSet::default(),
            counts: Counts::default(),
            directory,
            options,
        };
        world.seed_records();
        world.seed_identity();
        (0..world.options.gateways).for_each(|gateway| world.add_gateway(gateway));
        world.queue.add(3_000_000, Event::NextRequest);
        world.plan_faults();
        world
    }

    /// Adds a gateway that starts within the first two seconds.
    fn add_gateway(&mut self, gateway: usize) {
        let at = self.chance.below(2_000_000);
        let offset = self.chance.below(YEAR) + 1_000_000_000;
        let drift = i64::try_from(self.chance.below(200)).unwrap() - 100;
        let process = Process { gateway, start: 0 };
        let shards = self.options.shards;
        let disk = self.new_disk();
        let mut gateway = Gateway::new(process, shards, (offset, drift), self.base, (disk, 0), &self.product);
        gateway.is_up = false;
        self.gateways.push(gateway);
        self.queue.add(at, Event::Start(process.gateway));
    }

    /// Records of all organizations and keys, on primaries and replicas.
    fn seed_records(&mut self) {
        let never = 9_007_199_254_740_991.0_f64;
        for org in &self.directory.orgs {
            let alive = self.shards[org.shard].clock(0) as f64;
            let live = [&1_u64.to_le_bytes()[..], [0.0, never, alive].map(f64::to_le_bytes).as_flattened()].concat();
            self.shards[org.shard].seed(&org.record, b"live", &live);
            self.shards[org.shard].seed_fields(&org.record, org_fields(&org.exported()));
        }
        for key in &self.directory.keys {
            let shard = &mut self.shards[self.directory.orgs[key.org].shard];
            let full = state::bucket::capacity(key.quota) as f64;
            let at = shard.clock(0) as f64;
            let numbers = [full, at, key.quota.per_micros() as f64, 0.0, 0.0];
            let live = [&1_u64.to_le_bytes()[..], numbers.map(f64::to_le_bytes).as_flattened()].concat();
            shard.seed(&key.record, b"live", &live);
            let metered = [key.quota.inflow() as f64, key.quota.per_micros() as f64, full];
            shard.seed(&key.record, b"metered", metered.map(f64::to_le_bytes).as_flattened());
            let org = &self.directory.orgs[key.org];
            shard.seed_fields(&key.record, key_fields(&key.exported(org), &key.digest));
            shard.seed_fields(&key.user_record, user_fields(&key.user_exported(org)));
            shard.seed(&key.user_record, b"version", &1_u64.to_le_bytes());
        }
    }

    /// Runs to the end.
    pub fn run(&mut self, mut progress: impl FnMut(u64, &Counts)) {
        let mut next_progress = 0;
        while let Some((time, event)) = self.queue.next() {
            if time > self.end + AFTERMATH || self.checks.is_broken() {
                break;
            }
            self.now = time;
            self.counts.events += 1;
            if time >= next_progress {
                progress(time, &self.counts);
                next_progress += 1_000_000;
            }
            self.handle(event);
        }
        if !self.checks.is_broken() {
            self.check_audit_at_end();
            self.check_budgets_at_end();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::NextRequest => self.next_request(),
            Event::Deadline(request) => self.reach_deadline(request),
            Event::Releases(request, until) => self.await_releases(request, until),
            Event::Finish(request) => self.finish_request(request, End::Recorded),
            Event::Arrive(command) => self.arrive(command),
            Event::Answer(command) => self.answer(command),
            Event::Late(command) => self.note_late(command),
            Event::GiveUp(command) => self.give_up(command),
            Event::Visit(process, early) => self.visit_leases(process, early),
            Event::Register(process) => self.register(process),
            Event::Sign(process, shard, connection) => self.send_sign(process, shard, connection),
            Event::ReadLog(process) => self.read_log(process),
            Event::ReadIdentity(process) => self.watch_identity(process),
            Event::Assert(process, shard) => self.assert_revocations(process, shard),
            Event::LinkDown { process, shard, connection } => self.link_down(process, shard, connection),
            Event::Connect(process, shard) => self.connect(process, shard),
            Event::Revoke(number) => self.step_revocation(number),
            Event::Look(process) => self.look_at_pending(process),
            Event::Synced(process) => self.end_sync(process),
            Event::TimedSync(process) => self.sync_written(process),
            Event::BeginShipping(process) => self.begin_shipping(process),
            Event::Ship(process, turn, event) => self.ship(process, turn, event),
            Event::Delivered { process, turn, kind, journal, part } => {
                self.take_delivery(process, turn, kind, journal, &part);
            }
            Event::Start(gateway) => self.start_gateway(gateway),
            Event::Leave(process) => self.leave(process),
            Event::Fault(fault) => self.begin_fault(fault),
            Event::Promote(shard) => self.promote(shard),
            Event::Restore(shard) => self.restore_shard(shard),
            Event::AddReplica(shard) => self.shards[shard].add_replica(),
            Event::EndLag(shard, lag) => self.shards[shard].lag = lag,
            Event::Restart(shard) => self.restart_primary(shard),
            Event::EndFull(shard) => self.end_full(shard),
            Event::EndMove { hash_slot, from, to } => self.end_move(hash_slot, from, to),
        }
    }

    /// Notes the first bound that is broken; the run ends with it.
    pub fn break_bound(&mut self, bound: &'static str, text: String, offender: Offender) {
        let time = self.now;
        self.checks.violation.get_or_insert(Violation { bound, text, time, offender });
    }

    /// Checks an admission, with or without Redis.
    pub fn check_admission(&mut self, process: Process, id: u64, begun: u64, provisional: bool) {
        let key = self.requests[&id].key;
        self.directory.subjects_of_key(key).for_each(|subject| self.checks.slots.begin(subject, id));
        self.check_revocation(process, key, begun, provisional);
        self.check_budget(process, id);
        if provisional {
            self.check_window(process, key);
            self.check_slots_offline(process, key);
        }
    }

    pub fn new_disk(&mut self) -> Disk {
        self.disks += 1;
        Disk::new(self.disks)
    }

    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The gateway of a process; none when that process has ended.
    pub fn live(&mut self, process: Process) -> Option<&mut Gateway> {
        let gateway = &mut self.gateways[process.gateway];
        (gateway.is_up && gateway.process == process).then_some(gateway)
    }

    pub fn is_live(&self, process: Process) -> bool {
        let gateway = &self.gateways[process.gateway];
        gateway.is_up && gateway.process == process
    }

    /// Name of the replication history of a shard's primary.
    pub fn history(&self, shard: usize) -> Arc<str> {
        format!("{shard}:{}", self.shards[shard].history).into()
    }
}
