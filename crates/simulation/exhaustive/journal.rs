//! The audit journal as it is searched: one process after another on one disk, by the product's own pending lines,
//! steps of batches and recovery.
//!
//! The disk is a model: what was written is in the kernel, what was synced is on the disk; a loss of power takes the
//! rest, or a part of it, up to any byte of the last line.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::AuthMethod;
use journal::audit::steps::{
    Batch, BatchAction, BatchCompletion, BatchResult, BatchSteps, ModeAction, ModeEvent, OpenUse, OutcomeEvent,
    PendingLines, RecoveredJournal, SegmentScan, SpareBuffers, UseLine,
};
use journal::audit::{Durability, Outcome, Use, UseEnd};
use uuid::Uuid;

use crate::model::Explored;
use crate::mutants::Fault;
use crate::scenes::Invariant;

/// The most requests, and faults of each kind.
const USES: usize = 3;

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A request is admitted.
    Append,
    /// The exchange of a request ends, once more perhaps.
    End(u8),
    /// The pending lines are written, or there is no space.
    Write(bool),
    /// The written lines are synced, or cannot be.
    Sync(bool),
    /// The timed sync of a journal whose uses are only written.
    TimedSync,
    /// The process is killed; the next one continues the journal.
    Kill,
    /// The power is lost, with all that was not synced but for the first so many eighths.
    LosePower(u8),
}

#[derive(Clone)]
pub struct Audit {
    pub durability: Durability,
    pub fault: Fault,
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Forwarded,
    Ended,
    Refused,
    /// Its process has died; with `true`, it was forwarded then.
    Dead(bool),
}

pub struct AuditWorld {
    durability: Durability,
    fault: Fault,
    bytes: Vec<u8>,
    /// Bytes that are on the disk.
    synced: usize,
    /// A sync has failed: the kernel has dropped what was not synced.
    has_dropped: bool,
    pending: PendingLines,
    in_flight: Option<(Batch, BatchSteps, usize)>,
    waiting: Vec<(usize, Arc<BatchCompletion>)>,
    uses: Vec<Progress>,
    /// Failed writes, failed syncs, kills and losses of power so far.
    faults: [u8; 4],
    violation: Option<(Invariant, String)>,
}

fn use_id(number: usize) -> Uuid {
    Uuid::from_u128(1_795_000_000_000 << 80 | 7 << 76 | 2 << 62 | number as u128)
}

/// The id in a line: base64url without padding (`docs/audit/format.md`).
fn id_in_lines(number: usize) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let id = use_id(number).as_u128();
    let digit = |at: u32| if at < 21 { id >> (122 - 6 * at) } else { id << 4 };
    (0..22).map(|at| char::from(DIGITS[(digit(at) % 64) as usize])).collect()
}

impl AuditWorld {
    fn new(Audit { durability, fault }: &Audit) -> Self {
        let mut world = Self {
            durability: *durability,
            fault: *fault,
            bytes: Vec::new(),
            synced: 0,
            has_dropped: false,
            pending: PendingLines::default(),
            in_flight: None,
            waiting: Vec::new(),
            uses: Vec::new(),
            faults: [0; 4],
            violation: None,
        };
        world.open();
        world.flush();
        world
    }

    /// A process continues the journal, as the recovery does: cuts off what is torn, ends the open uses as aborted.
    fn open(&mut self) {
        if std::mem::take(&mut self.has_dropped) {
            self.bytes.truncate(self.synced);
        }
        let mut scan = SegmentScan::new(1);
        let mut at = 0;
        for line in self.bytes.split_inclusive(|byte| *byte == b'\n') {
            if let Some(whole) = line.strip_suffix(b"\n") {
                scan.read_line(at, whole);
            }
            at += line.len() as u64;
        }
        let found = scan.finish(|at, length| Ok(self.bytes[at as usize..][..length].to_vec())).unwrap();
        let length = found.length() as usize;
        self.bytes.truncate(length);
        self.synced = self.synced.min(length);
        self.pending = match length {
            0 => RecoveredJournal::of_new_journal().into_pending(0),
            _ => found.into_pending(1),
        };
        if length == 0 {
            self.pending.begin_segment("gateway", Micros(1));
        }
        if self.fault != Fault::NoAborting {
            self.pending.abort_open_uses(|_| false);
        }
    }

    fn append(&mut self) {
        let number = self.uses.len();
        let opening = Use {
            id: use_id(number),
            time: Micros(1),
            number: None,
            key_id: None,
            user_id: None,
            org_id: None,
            auth_method: AuthMethod::ApiKey,
            ip: None,
            user_agent: None,
            action: "queries.list",
            method: "GET",
            path: "/",
            provisional: false,
            cost: Cost::ONE,
            budget: None,
            trace_id: None,
        };
        match self.pending.append_use(&UseLine::of_use(&opening, None), OpenUse::from_use(&opening)) {
            Some(completion) => {
                self.uses.push(Progress::Waiting);
                self.waiting.push((number, completion));
            }
            None => self.uses.push(Progress::Refused),
        }
        if self.fault == Fault::ForwardsBeforeWriting {
            self.uses[number] = Progress::Forwarded;
        }
    }

    fn end(&mut self, number: usize) {
        let outcome = (Outcome::Completed, Some(200), 0, 0, 0);
        let (outcome, status, duration_us, request_bytes, response_bytes) = outcome;
        let end = UseEnd { outcome, status, duration_us, request_bytes, response_bytes };
        self.pending.append_outcome(&OutcomeEvent::new(use_id(number), end));
        self.uses[number] = Progress::Ended;
    }

    fn write(&mut self, has_space: bool) {
        let batch = self.pending.take_batch(SpareBuffers::default());
        let (steps, actions) = BatchSteps::begin(self.durability, false);
        let before = self.bytes.len();
        self.perform((batch, steps, before), actions, has_space);
    }

    /// Performs actions on a batch, up to a sync, which takes time.
    fn perform(
        &mut self,
        (batch, mut steps, before): (Batch, BatchSteps, usize),
        mut actions: &'static [BatchAction],
        has_space: bool,
    ) {
        while let [action, rest @ ..] = actions {
            actions = rest;
            match *action {
                BatchAction::Write => {
                    if has_space {
                        self.bytes.extend_from_slice(batch.lines());
                    }
                    actions = steps.step(has_space);
                }
                BatchAction::Sync => {
                    self.in_flight = Some((batch, steps, before));
                    return;
                }
                BatchAction::ChangeMode(event) => self.change_mode(event),
                BatchAction::Restore => self.pending.restore_failed_batch(&batch),
                BatchAction::WithdrawUnsynced => {}
                BatchAction::Complete(result) => batch.complete(result),
            }
        }
        self.settle();
    }

    fn change_mode(&mut self, event: ModeEvent) {
        for action in self.pending.change_mode(event) {
            if *action == ModeAction::FailPending {
                self.pending.take_batch(SpareBuffers::default()).complete(BatchResult::Failed);
            }
        }
    }

    fn sync(&mut self, has_succeeded: bool) {
        let Some((batch, mut steps, before)) = self.in_flight.take() else { return };
        let is_told = has_succeeded || self.fault == Fault::SyncLies;
        if has_succeeded && self.fault != Fault::SyncLies {
            self.synced = self.bytes.len();
        }
        self.has_dropped |= !has_succeeded;
        let actions = steps.step(is_told);
        self.perform((batch, steps, before), actions, true);
    }

    /// Forwards the requests whose uses are as durable as configured. "The use is recorded before it is forwarded."
    fn settle(&mut self) {
        for (number, completion) in std::mem::take(&mut self.waiting) {
            match completion.result() {
                None => self.waiting.push((number, completion)),
                Some(BatchResult::Written) => self.uses[number] = Progress::Forwarded,
                Some(BatchResult::Failed) => self.uses[number] = Progress::Refused,
            }
        }
    }

    fn die(&mut self) {
        (self.in_flight, self.waiting) = (None, Vec::new());
        for progress in &mut self.uses {
            *progress = match *progress {
                Progress::Waiting | Progress::Refused => Progress::Dead(false),
                Progress::Forwarded | Progress::Ended => Progress::Dead(true),
                dead @ Progress::Dead(_) => dead,
            };
        }
        self.open();
    }

    fn lose_power(&mut self, eighths: usize) {
        let kept = if self.has_dropped { 0 } else { (self.bytes.len() - self.synced) * eighths / 8 };
        self.bytes.truncate(self.synced + kept);
        (self.synced, self.has_dropped) = (self.bytes.len(), false);
        self.die();
    }

    /// Writes and syncs what is left.
    fn flush(&mut self) {
        self.sync(true);
        if !self.pending.is_empty() {
            self.write(true);
            self.sync(true);
        }
        if !self.has_dropped {
            self.synced = self.bytes.len();
        }
    }

    /// Lines of a use: beginnings and outcomes.
    fn lines_of(&self, number: usize, bytes: &[u8]) -> [usize; 2] {
        let id = id_in_lines(number);
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let lines: Vec<_> = lines.filter(|line| line.contains(&id) && !line.starts_with('{')).collect();
        [b'u', b'o'].map(|kind| lines.iter().filter(|line| line.as_bytes()[0] == kind).count())
    }

    /// "Every use of a key" has its record, and "exactly one outcome".
    fn check(&mut self, is_at_rest: bool) {
        for number in 0..self.uses.len() {
            let [beginnings, outcomes] = self.lines_of(number, &self.bytes);
            let on_disk = self.lines_of(number, &self.bytes[..self.synced])[0];
            let is_forwarded = matches!(self.uses[number], Progress::Forwarded | Progress::Ended);
            let is_durable = if self.durability == Durability::Synced { on_disk } else { beginnings } > 0;
            let must_be_there = self.uses[number] == Progress::Dead(true)
                && (self.durability == Durability::Synced || self.faults[3] == 0);
            let text = if beginnings > 1 || outcomes > 1 || outcomes > beginnings {
                "has more than one record, or outcome"
            } else if is_forwarded && !is_durable && !self.has_dropped {
                "is forwarded before its use is as durable as configured"
            } else if must_be_there && beginnings == 0 {
                "was forwarded, and has no record"
            } else if is_at_rest && beginnings > 0 && outcomes == 0 && matches!(self.uses[number], Progress::Dead(_)) {
                "has no outcome, although its process has died"
            } else {
                continue;
            };
            self.violation.get_or_insert((Invariant::Audit, format!("/{number} {text}")));
        }
    }
}

impl Explored for Audit {
    type Action = Action;
    type World = AuditWorld;

    fn world(&self) -> AuditWorld {
        AuditWorld::new(self)
    }

    fn apply(&self, world: &mut AuditWorld, action: Action) {
        match action {
            Action::Append => world.append(),
            Action::End(number) => world.end(number.into()),
            Action::Write(has_space) => world.write(has_space),
            Action::Sync(has_succeeded) => world.sync(has_succeeded),
            Action::TimedSync => world.synced = world.bytes.len(),
            Action::Kill => world.die(),
            Action::LosePower(eighths) => world.lose_power(eighths.into()),
        }
        match action {
            Action::Write(false) => world.faults[0] += 1,
            Action::Sync(false) => world.faults[1] += 1,
            Action::Kill => world.faults[2] += 1,
            Action::LosePower(_) => world.faults[3] += 1,
            _ => {}
        }
        world.check(false);
    }

    fn actions(&self, world: &AuditWorld) -> Vec<Action> {
        let mut actions = Vec::new();
        if world.violation.is_some() {
            return actions;
        }
        if world.uses.len() < USES {
            actions.push(Action::Append);
        }
        let ends = |progress: &Progress| matches!(progress, Progress::Forwarded | Progress::Ended);
        let numbers = (0..).zip(&world.uses).filter(|(_, progress)| ends(progress));
        actions.extend(numbers.map(|(number, _)| Action::End(number)));
        if world.in_flight.is_some() {
            actions.extend([Action::Sync(true), Action::Sync(false)]);
        } else if !world.pending.is_empty() && !world.has_dropped {
            actions.extend([Action::Write(true), Action::Write(false)]);
        }
        if world.durability == Durability::Written && world.synced < world.bytes.len() {
            actions.push(Action::TimedSync);
        }
        actions.push(Action::Kill);
        actions.extend([0, 5, 8].map(Action::LosePower));
        actions.retain(|action| match action {
            Action::Write(false) => world.faults[0] < 2,
            Action::Sync(false) => world.faults[1] < 1,
            Action::Kill => world.faults[2] < 2,
            Action::LosePower(_) => world.faults[3] < 1,
            _ => true,
        });
        actions
    }

    fn fingerprint(&self, world: &AuditWorld) -> u64 {
        let mut hasher = DefaultHasher::new();
        let waiting: Vec<_> = world.waiting.iter().map(|(number, _)| *number).collect();
        let in_flight = world.in_flight.as_ref().map(|(batch, steps, before)| (batch.lines(), steps, before));
        let text = format!("{:?} {waiting:?} {in_flight:?} {:?}", world.pending, world.uses);
        (&world.bytes, world.synced, world.has_dropped, world.faults, text, world.violation.is_some())
            .hash(&mut hasher);
        hasher.finish()
    }

    fn come_to_rest(&self, world: &mut AuditWorld) {
        world.flush();
        world.die();
        world.flush();
        world.check(true);
    }

    fn violation(&self, world: &AuditWorld) -> Option<(Invariant, String)> {
        world.violation.clone()
    }

    fn tell(&self, world: &mut AuditWorld, action: Action) -> [String; 3] {
        self.apply(world, action);
        let step = match action {
            Action::Append => format!("/{} is admitted", world.uses.len() - 1),
            Action::End(number) => format!("/{number} ends"),
            Action::Write(true) => "the pending lines are written".to_owned(),
            Action::Write(false) => "there is no space to write them".to_owned(),
            Action::Sync(true) => "they are synced".to_owned(),
            Action::Sync(false) => "they cannot be synced".to_owned(),
            Action::TimedSync => "the timed sync".to_owned(),
            Action::Kill => "the process is killed, and starts anew".to_owned(),
            Action::LosePower(eighths) => format!("the power is lost; {eighths}/8 of the rest is there"),
        };
        [String::new(), step, format!("{:?}", world.uses)]
    }
}
