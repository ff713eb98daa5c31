//! Shippers: each performs the product's [`ShipSteps`] on the journal of its gateway, a sink and virtual time.

use std::time::{Duration, Instant};

use journal::audit::StreamPosition;
use journal::audit::steps::{JoinedPart, RecordJoin};
use journal::shipping::{OPEN_AFTER, PartEnd, Retry, ShipAction, ShipEvent, ShipSteps};

use super::disk::Disk;
use super::event::{Event, Process};
use super::gateway::Gateway;
use super::journal::{Journal, request_of, wall};
use super::options::Break;
use super::revocations::micros;
use super::sinks::{Part, SinkKind};
use super::world::World;

/// Time that a delivery takes until the sink has it, and the answer after it; and a connection that fails.
const COMMIT: u64 = 20_000;
const ANSWER: u64 = 5_000;
/// Time after which the sink is taken for away. The product waits for 60 s; a refused connection fails at once.
const FAILS_AFTER: u64 = 50_000;
/// Time after which the table's position is delivered without records.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Records of a part, about, as in `crates/journal/src/shipping/shipper.rs`; and bytes that are read at once.
const LIMIT: usize = 8192;
const BLOCK: usize = 64 << 10;

/// Shipper of a gateway's process.
pub struct Shipper {
    steps: ShipSteps,
    pub kind: SinkKind,
    pub is_finishing: bool,
    /// Number of the result that is awaited. One with another number came too late.
    turn: u64,
    is_pausing: bool,
    /// The journal from the position on.
    join: RecordJoin,
    part: Option<Part>,
}

impl Shipper {
    pub fn new(gateway: usize, now: Instant) -> Self {
        let kind = SinkKind::of_gateway(gateway);
        let heartbeat = (kind == SinkKind::Table).then_some(HEARTBEAT);
        let join = RecordJoin::from_start(None);
        let steps = ShipSteps::new(heartbeat, now);
        Self { steps, kind, is_finishing: false, turn: 0, is_pausing: false, join, part: None }
    }

    /// Opens the journal at a position. Returns whether it no longer has the last lines before it; it is read from its
    /// beginning then. As `crates/journal/src/audit/read/stream.rs`, of one segment.
    fn open(&mut self, journal: &Journal, disk: &Disk, at: StreamPosition) -> bool {
        self.join = RecordJoin::from_start((self.kind == SinkKind::Table).then_some(OPEN_AFTER));
        let last_line = disk.bytes().get(at.last_line as usize..at.offset as usize);
        let is_there = at.offset == 0 || last_line.is_some_and(|line| at.has_read(line));
        if is_there {
            // The uses that are open there are read again.
            self.join.read_lines(&disk.bytes()[..at.offset as usize], &mut JoinedPart::default());
        }
        !is_there || at.line >= journal.next_line()
    }

    /// Reads the next part, as `RecordStream::next_batch`.
    fn read(&mut self, journal: &Journal, disk: &Disk, now: u64) -> PartEnd {
        let readable = &disk.bytes()[..journal.readable(disk)];
        let mut part = JoinedPart::default();
        let mut rest = readable.get(self.join.position().offset as usize..).unwrap_or_default();
        while !rest.is_empty() && part.records.len() < LIMIT {
            let block = &rest[..rest.len().min(BLOCK)];
            let read = self.join.read_lines(block, &mut part);
            assert!(read > 0, "a line is shorter than a block");
            rest = &rest[read..];
        }
        let present = if rest.is_empty() { Some(wall(now)) } else { part.last_time };
        present.into_iter().for_each(|present| self.join.add_open(present, &mut part.records));
        let to = self.join.position();
        let records = part.records.iter().map(|record| (request_of(record.id), record.outcome)).collect();
        self.part = Some(Part { from: self.steps.position(), to, records });
        PartEnd { position: to, reached_end: rest.is_empty(), is_finishing: self.is_finishing }
    }
}

impl World {
    pub fn begin_shipping(&mut self, process: Process) {
        if self.is_live(process) {
            self.connect_to_sink(process);
        }
    }

    /// A result reaches the shipper of a process: it goes on, up to an action that takes time.
    pub fn ship(&mut self, process: Process, turn: u64, event: ShipEvent) {
        if !self.is_live(process) || self.gateways[process.gateway].shipper.turn != turn {
            return;
        }
        let mut result = Some(event);
        while let Some(event) = result {
            let gateway = &mut self.gateways[process.gateway];
            let now = gateway.instant(self.base, self.now);
            let action = gateway.shipper.steps.step(event, now);
            gateway.shipper.turn += 1;
            gateway.shipper.is_pausing = matches!(action, ShipAction::Pause(_) | ShipAction::LastPause(_));
            if let (ShipEvent::Failed { .. }, ShipAction::Pause(pause)) = (event, action) {
                self.checks.audit.note_pause(micros(pause));
            }
            result = self.perform_shipping(process, action);
        }
    }

    /// Performs an action, and returns its result; none when it comes later.
    fn perform_shipping(&mut self, process: Process, action: ShipAction) -> Option<ShipEvent> {
        let now = self.now;
        let gateway = &mut self.gateways[process.gateway];
        let Gateway { journal, disk, shipper, .. } = gateway;
        match action {
            ShipAction::Connect => {
                self.connect_to_sink(process);
                None
            }
            ShipAction::Open(at) | ShipAction::OpenAtCopy(at) => {
                let has_lost_lines = shipper.open(journal, disk, at);
                Some(ShipEvent::Opened { has_lost_lines })
            }
            ShipAction::ReadCopy => Some(ShipEvent::CopyRead(disk.position())),
            ShipAction::Read => {
                let end = shipper.read(journal, disk, now);
                let has_records = shipper.part.as_ref().is_some_and(|part| !part.records.is_empty());
                Some(ShipEvent::Read { end, has_records })
            }
            ShipAction::Deliver => {
                let part = shipper.part.clone().expect("a part is read before it is delivered");
                let turn = shipper.turn;
                let kind = shipper.kind;
                let journal = disk.number;
                let pause = COMMIT / 2 + self.network.below(COMMIT);
                self.queue.add(now + pause, Event::Delivered { process, turn, kind, journal, part });
                None
            }
            ShipAction::WritePosition(position) => {
                disk.write_position(position, true);
                Some(ShipEvent::Done)
            }
            ShipAction::Confirm { copies_position } => {
                if copies_position {
                    disk.write_position(shipper.steps.position(), false);
                }
                Some(ShipEvent::Done)
            }
            ShipAction::NoteCaughtUp => Some(ShipEvent::Done),
            ShipAction::Pause(_) if shipper.is_finishing => Some(ShipEvent::Done),
            ShipAction::Pause(time) | ShipAction::LastPause(time) => {
                self.queue.add(now + micros(time), Event::Ship(process, shipper.turn, ShipEvent::Done));
                None
            }
            ShipAction::End => None,
        }
    }

    fn connect_to_sink(&mut self, process: Process) {
        let gateway = &self.gateways[process.gateway];
        let turn = gateway.shipper.turn;
        if self.sinks.away_until > self.now {
            return self.fail_turn(process, turn, FAILS_AFTER);
        }
        let connected = match gateway.shipper.kind {
            SinkKind::Table => {
                ShipEvent::Connected { position: self.sinks.position(gateway.disk.number), keeps_position: true }
            }
            SinkKind::Receiver => ShipEvent::Connected { position: gateway.disk.position(), keeps_position: false },
        };
        self.queue.add(self.now + ANSWER, Event::Ship(process, turn, connected));
    }

    /// A delivery reaches its sink. The gateway may have died by then.
    pub fn take_delivery(&mut self, process: Process, turn: u64, kind: SinkKind, journal: u64, part: &Part) {
        // The connection breaks now and then: before the part is taken, or with the answer, so that the part is
        // delivered and the shipper does not know.
        let is_broken = self.network.one_in(400);
        let is_lost = self.network.one_in(400);
        if is_broken || self.sinks.away_until > self.now {
            return self.fail_turn(process, turn, FAILS_AFTER);
        }
        let is_taken = match kind {
            SinkKind::Table if is_lost && self.options.broken == Some(Break::Audit) => {
                self.sinks.skip(journal, part);
                true
            }
            SinkKind::Table => self.sinks.commit(journal, part),
            SinkKind::Receiver => {
                self.sinks.take(part);
                true
            }
        };
        if is_taken && !is_lost {
            self.queue.add(self.now + ANSWER, Event::Ship(process, turn, ShipEvent::Done));
        } else {
            self.fail_turn(process, turn, FAILS_AFTER);
        }
    }

    /// The action of this turn fails after a time.
    fn fail_turn(&mut self, process: Process, turn: u64, after: u64) {
        let Shipper { kind, is_finishing, .. } = self.gateways[process.gateway].shipper;
        // A server of HTTP that is overloaded asks for a time.
        let is_away = self.sinks.away_until > self.now;
        let asks = is_away && kind == SinkKind::Receiver && self.network.one_in(4);
        let retry = if asks { Retry::After(Duration::from_secs(self.network.between(1, 15))) } else { Retry::Later };
        let jitter = self.network.next() as u32;
        let failed = ShipEvent::Failed { retry, is_finishing, jitter };
        self.queue.add(self.now + after, Event::Ship(process, turn, failed));
    }

    /// A process is to end: its shipper delivers what is left.
    pub fn finish_shipping(&mut self, process: Process) {
        let shipper = &mut self.gateways[process.gateway].shipper;
        shipper.is_finishing = true;
        if shipper.is_pausing {
            let turn = shipper.turn;
            self.ship(process, turn, ShipEvent::Done);
        }
    }
}
