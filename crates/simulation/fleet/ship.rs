//! Shippers: each performs the product's [`ShipSteps`] on the journal of its gateway, a sink and virtual time.

use std::time::{Duration, Instant};

use journal::audit::StreamPosition;
use journal::shipping::{OPEN_AFTER, PartEnd, Retry, ShipAction, ShipEvent, ShipSteps};

use super::event::{Event, Process};
use super::journal::{Part, Stream};
use super::options::Break;
use super::revocations::micros;
use super::sinks::SinkKind;
use super::world::World;

/// Time that a delivery takes until the sink has it, and the answer after it; and a connection that fails.
const COMMIT: u64 = 20_000;
const ANSWER: u64 = 5_000;
/// Time after which the sink is taken for away. The product waits for 60 s; a refused connection fails at once.
const FAILS_AFTER: u64 = 50_000;
/// Time after which the table's position is delivered without records.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Shipper of a gateway's process.
pub struct Shipper {
    steps: ShipSteps,
    pub kind: SinkKind,
    pub is_finishing: bool,
    /// Number of the result that is awaited. One with another number came too late.
    turn: u64,
    is_pausing: bool,
    stream: Stream,
    part: Option<Part>,
}

impl Shipper {
    pub fn new(gateway: usize, now: Instant) -> Self {
        let kind = SinkKind::of_gateway(gateway);
        let heartbeat = (kind == SinkKind::Table).then_some(HEARTBEAT);
        let stream = Stream::default();
        let steps = ShipSteps::new(heartbeat, now);
        Self { steps, kind, is_finishing: false, turn: 0, is_pausing: false, stream, part: None }
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
        let journal = &mut gateway.journal;
        let shipper = &mut gateway.shipper;
        match action {
            ShipAction::Connect => {
                self.connect_to_sink(process);
                None
            }
            ShipAction::Open(at) | ShipAction::OpenAtCopy(at) => {
                shipper.stream = journal.open_at(at);
                Some(ShipEvent::Opened { has_lost_lines: false })
            }
            ShipAction::ReadCopy => Some(ShipEvent::CopyRead(journal.position_file.unwrap_or(StreamPosition::START))),
            ShipAction::Read => {
                let open_after = (shipper.kind == SinkKind::Table).then_some(micros(OPEN_AFTER));
                let part = journal.read(&mut shipper.stream, shipper.steps.position(), now, open_after);
                let has_records = !part.records.is_empty();
                let is_finishing = shipper.is_finishing;
                let end = PartEnd { position: part.to, reached_end: part.reached_end, is_finishing };
                shipper.part = Some(part);
                Some(ShipEvent::Read { end, has_records })
            }
            ShipAction::Deliver => {
                let part = shipper.part.clone().expect("a part is read before it is delivered");
                let turn = shipper.turn;
                let kind = shipper.kind;
                let journal = journal.number;
                let pause = COMMIT / 2 + self.network.below(COMMIT);
                self.queue.add(now + pause, Event::Delivered { process, turn, kind, journal, part });
                None
            }
            ShipAction::WritePosition(position) => {
                journal.position_file = Some(position);
                Some(ShipEvent::Done)
            }
            ShipAction::Confirm { copies_position } => {
                if copies_position {
                    journal.position_file = Some(shipper.steps.position());
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
                ShipEvent::Connected { position: self.sinks.position(gateway.journal.number), keeps_position: true }
            }
            SinkKind::Receiver => {
                let position = gateway.journal.position_file.unwrap_or(StreamPosition::START);
                ShipEvent::Connected { position, keeps_position: false }
            }
        };
        self.queue.add(self.now + ANSWER, Event::Ship(process, turn, connected));
    }

    /// A delivery reaches its sink. The gateway may have died by then.
    pub fn take_delivery(&mut self, process: Process, turn: u64, kind: SinkKind, journal: u64, part: &Part) {
        // The answer is lost now and then: the part is delivered, and the shipper does not know.
        let is_lost = self.network.one_in(200);
        if self.sinks.away_until > self.now {
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
