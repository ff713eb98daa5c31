//! Processes of gateways: they start on the disk that is there, die, are lost with their machines, and leave in order.

use super::budgets::End;
use super::checks::audit::Death;
use super::event::{Event, Pending, Process};
use super::gateway::{Gateway, YEAR};
use super::journal::TIMED_SYNC;
use super::requests::Request;
use super::trace::NONE;
use super::world::World;

/// Time in which a gateway that leaves ends its exchanges, and in which it reports the rest.
const DRAIN: u64 = 3_000_000;
const DEREGISTER: u64 = 1_000_000;

impl World {
    /// A process dies.
    pub fn crash(&mut self, process: Process, death: Death) {
        if !self.is_live(process) {
            return;
        }
        let number = process.gateway;
        let (what, count) = match death {
            Death::MachineLost => ("machine lost", &mut self.counts.lost_machines),
            Death::PowerLost => ("power lost", &mut self.counts.power_losses),
            Death::Killed | Death::Left => ("gateway crashes", &mut self.counts.crashes),
        };
        *count += 1;
        self.note_fault(what, number, NONE, 0);
        self.end_process(process, death);
        match death {
            Death::MachineLost => self.check_lost_machine(number),
            Death::PowerLost => self.gateways[number].disk.lose_power(&mut self.chance),
            Death::Killed | Death::Left => {}
        }
        self.gateways[number].is_lost = death == Death::MachineLost;
        let pause = self.chance.between(500_000, 10_000_000);
        self.queue.add(self.now + pause, Event::Start(number));
    }

    /// Ends a process: its exchanges end, and what it has not reported is never repaid.
    fn end_process(&mut self, process: Process, death: Death) {
        let number = process.gateway;
        self.checks.audit.note_death(&self.gateways[number], death, self.now);
        let of_process = |request: &Request| request.process == process;
        let mut requests: Vec<u64> =
            self.requests.iter().filter(|(_, request)| of_process(request)).map(|(id, _)| *id).collect();
        requests.sort_unstable();
        for id in requests {
            self.finish_request(id, End::Killed);
        }
        self.lose_untold_units(number);
        let gateway = &mut self.gateways[number];
        gateway.is_up = false;
        if gateway.started + TIMED_SYNC < self.now {
            gateway.disk.ended = self.now;
        }
        for (key, of_directory) in self.directory.keys.iter().enumerate() {
            let cached = gateway.decisions.cached(&of_directory.digest);
            let Some(uses) = cached.and_then(|cached| cached.usage.unreported()) else { continue };
            let uses = uses.pending();
            self.counts.unrepaid_uses += uses;
            self.checks.bucket.forgive(key, uses);
        }
        self.note_death_of_keeper();
    }

    /// A gateway leaves: it drains, reports, deregisters, and ends.
    pub fn leave(&mut self, process: Process) {
        let Some(gateway) = self.live(process) else { return };
        if !gateway.is_leaving {
            gateway.is_leaving = true;
            self.note_fault("gateway leaves", process.gateway, NONE, 0);
            return self.queue.add(self.now + DRAIN, Event::Leave(process));
        }
        if !gateway.shipper.is_finishing {
            let mut open: Vec<u64> = gateway.open.iter().copied().collect();
            open.sort_unstable();
            open.into_iter().for_each(|id| self.finish_request(id, End::Recorded));
            let call = self.heartbeat_call(process, 0, [0; 2]);
            drop(self.send(process, self.gateways_shard, call, Pending::Deregister));
            self.close_journal(process);
            self.finish_shipping(process);
            return self.queue.add(self.now + DEREGISTER, Event::Leave(process));
        }
        self.counts.left += 1;
        self.end_process(process, Death::Left);
        let pause = self.chance.between(1_000_000, 20_000_000);
        self.queue.add(self.now + pause, Event::Start(process.gateway));
    }

    /// A process starts, on the disk that is there.
    pub fn start_gateway(&mut self, number: usize) {
        let now = self.now;
        let old = &mut self.gateways[number];
        let process = Process { gateway: number, start: old.process.start + 1 };
        let mut disk = std::mem::take(&mut old.disk);
        if old.is_lost {
            disk = self.new_disk();
        }
        let offset = self.chance.below(YEAR) + 1_000_000_000;
        let drift = i64::try_from(self.chance.below(200)).unwrap() - 100;
        let cut_until = std::mem::take(&mut self.gateways[number].cut_until);
        let mut gateway =
            Gateway::new(process, self.shards.len(), (offset, drift), self.base, (disk, now), &self.product);
        (gateway.cut_until, gateway.started) = (cut_until, now);
        self.gateways[number] = gateway;
        self.note_fault("gateway starts", number, NONE, 0);
        self.gateways[number].journal.is_sync_planned = true;
        self.queue.add(now + TIMED_SYNC, Event::TimedSync(process));
        // The first lines: a header, and the ends of the uses that were open.
        self.write_pending(process);
        self.wake_committer(process);
        for shard in 0..self.shards.len() {
            let pause = self.network.between(500, 20_000);
            self.queue.add(now + pause, Event::Connect(process, shard));
        }
        let pause = self.network.below(self.product.renew() / 30);
        self.queue.add(now + 30_000, Event::Register(process));
        self.queue.add(now + 30_000 + pause, Event::Visit(process, false));
        self.queue.add(now + 31_000 + pause, Event::ReadLog(process));
        self.queue.add(now + 30_500 + pause, Event::ReadIdentity(process));
        self.queue.add(now + pause, Event::BeginShipping(process));
    }
}
