//! Journal of a gateway's process: the product's pending lines, modes and steps of batches, on a disk in virtual time.
//!
//! As `crates/journal/src/audit/write/append.rs` and `committer.rs` call them: with the durability `written`, a request
//! writes what is pending; with `synced`, the committer writes and syncs for all that have appended meanwhile.

use std::sync::Arc;
use std::time::Duration;

use domain::clock::Micros;
use domain::identity::AuthMethod;
use journal::audit::steps::{
    Batch, BatchAction, BatchCompletion, BatchResult, BatchSteps, Look, MAX_OUTCOME_DELAY, Mode, ModeAction, ModeEvent,
    OpenUse, OutcomeEvent, PendingLines, RETRY_DELAY, RecoveredJournal, SegmentScan, SpareBuffers, UseLine, Watch,
};
use journal::audit::{Durability, Outcome, Use, UseEnd};
use uuid::Uuid;

use super::disk::Disk;
use super::event::{Event, Process};
use super::gateway::Gateway;
use super::options::Break;
use super::revocations::micros;
use super::trace::NONE;
use super::world::World;

/// Pause between two timed syncs, as in `crates/journal/src/audit/write/timed_sync.rs`.
pub const TIMED_SYNC: u64 = 1_000_000;
/// Wall time at which the simulation begins.
const WALL: u64 = 1_795_000_000_000_000;
/// Time after a failed sync at which an operator restarts the gateway.
const RESTART_AFTER: u64 = 2_000_000;

/// Journal of a process. Dropped with it: the lines that are not written are lost.
pub struct Journal {
    pending: PendingLines,
    pub durability: Durability,
    /// The batch that is being synced, and the length of the journal before and after it.
    in_flight: Option<(Batch, BatchSteps, [usize; 2])>,
    /// Beginning of the batch whose sync has failed.
    unsynced_from: Option<usize>,
    /// The committer's; none while it sleeps.
    watch: Option<Watch>,
    /// A timed sync comes.
    is_sync_planned: bool,
    /// Requests that wait for their lines.
    waiting: Vec<(u64, Arc<BatchCompletion>)>,
    /// Time at which the mode became one that takes no lines.
    pub failed: Option<u64>,
}

/// Time of the journal.
pub fn wall(now: u64) -> Micros {
    Micros(WALL + now)
}

/// Id of the use of a request.
pub fn use_id(request: u64, now: u64) -> Uuid {
    let millis = u128::from((WALL + now) / 1000);
    Uuid::from_u128(millis << 80 | 7 << 76 | 2 << 62 | u128::from(request))
}

/// Request of a use.
pub fn request_of(id: Uuid) -> u64 {
    id.as_u128() as u64 & (u64::MAX >> 2)
}

impl Journal {
    /// Continues the journal on a disk, as the recovery does: cuts off what is torn, and ends the open uses as aborted.
    pub fn open(disk: &mut Disk, gateway: usize, now: u64) -> Self {
        disk.mount();
        let mut scan = SegmentScan::new(1);
        let mut at = 0;
        for line in disk.bytes().split_inclusive(|byte| *byte == b'\n') {
            if let Some(whole) = line.strip_suffix(b"\n") {
                scan.read_line(at, whole);
            }
            at += line.len() as u64;
        }
        let read_line = |at: u64, length: usize| Ok(disk.bytes()[at as usize..][..length].to_vec());
        let found = scan.finish(read_line).unwrap();
        let length = found.length();
        disk.cut(length);
        let mut pending = match length {
            0 => RecoveredJournal::of_new_journal().into_pending(0),
            _ => found.into_pending(1),
        };
        if length == 0 {
            pending.begin_segment(&format!("g{gateway}"), wall(now));
        }
        pending.abort_open_uses(|_| false);
        // Every third gateway syncs each use before it is forwarded.
        let durability = if gateway % 3 == 2 { Durability::Synced } else { Durability::Written };
        Self {
            pending,
            durability,
            in_flight: None,
            unsynced_from: None,
            watch: None,
            is_sync_planned: false,
            waiting: Vec::new(),
            failed: None,
        }
    }

    /// Length up to which shippers read: without what is being synced, or could not be.
    pub fn readable(&self, disk: &Disk) -> usize {
        let in_flight = self.in_flight.as_ref().map(|(_, _, [before, _])| *before);
        in_flight.or(self.unsynced_from).unwrap_or(disk.bytes().len())
    }

    pub fn next_line(&self) -> u64 {
        self.pending.next_line()
    }
}

impl World {
    /// Appends the use of a request that was admitted. It is forwarded when that is as durable as configured.
    pub fn record_use(&mut self, process: Process, id: u64) {
        let now = self.now;
        let request = &self.requests[&id];
        let key = &self.directory.keys[request.key];
        let opening = Use {
            id: use_id(id, request.recorded),
            time: wall(now),
            number: None,
            key_id: Some(key.id),
            user_id: None,
            org_id: Some(self.directory.orgs[key.org].id),
            auth_method: AuthMethod::ApiKey,
            ip: None,
            user_agent: Some(b"client"),
            action: "queries.list",
            method: "GET",
            path: "/api/queries",
            provisional: request.provisional,
            trace_id: None,
        };
        let gateway = &mut self.gateways[process.gateway];
        let journal = &mut gateway.journal;
        let appended = journal.pending.append_use(&UseLine::of_use(&opening, None), OpenUse::from_use(&opening));
        let Some(completion) = appended else { return self.refuse_unrecorded(id) };
        gateway.disk.uses.push(id);
        self.checks.audit.note_appended(id, process.gateway, now);
        let journal = &mut self.gateways[process.gateway].journal;
        journal.waiting.push((id, completion));
        self.write_pending(process);
        self.wake_committer(process);
    }

    /// Appends the outcome of a use, which the committer writes unless a later use carries it out before.
    pub fn record_outcome(&mut self, process: Process, id: u64, recorded: u64) {
        let now = self.now;
        let end = UseEnd {
            outcome: Outcome::Completed,
            status: Some(200),
            duration_us: now - recorded,
            request_bytes: 0,
            response_bytes: 1000,
        };
        self.checks.audit.note_ended(id, now);
        let pending = &mut self.gateways[process.gateway].journal.pending;
        pending.append_outcome(&OutcomeEvent::new(use_id(id, recorded), end));
        self.wake_committer(process);
    }

    pub fn wake_committer(&mut self, process: Process) {
        let journal = &mut self.gateways[process.gateway].journal;
        if journal.watch.is_none() {
            journal.watch = Some(Watch::new(journal.pending.next_line()));
            self.queue.add(self.now + micros(MAX_OUTCOME_DELAY), Event::Look(process));
        }
    }

    /// The committer looks at the pending lines.
    pub fn look_at_pending(&mut self, process: Process) {
        let now = self.now;
        let Some(gateway) = self.live(process) else { return };
        let Journal { pending, watch, .. } = &mut gateway.journal;
        let Some(awake) = watch else { return };
        let next = pending.next_line();
        let pause = match awake.look(pending.oldest(wall(now)), next) {
            Look::Wait(pause) => pause,
            Look::Sleep => {
                *watch = None;
                return;
            }
            Look::Write => {
                let pause = if self.write_pending(process) { Duration::ZERO } else { RETRY_DELAY };
                let journal = &mut self.gateways[process.gateway].journal;
                journal.watch = Some(Watch::new(journal.pending.next_line()));
                pause + MAX_OUTCOME_DELAY
            }
        };
        self.queue.add(now + micros(pause), Event::Look(process));
    }

    /// Writes what is pending, unless a batch is being synced. Returns false when that fails.
    pub fn write_pending(&mut self, process: Process) -> bool {
        let Gateway { journal, disk, .. } = &mut self.gateways[process.gateway];
        let has_failed = matches!(journal.pending.mode(), Mode::SyncFailed | Mode::ClosedUnsynced);
        if journal.in_flight.is_some() || journal.pending.is_empty() || has_failed {
            return true;
        }
        let batch = journal.pending.take_batch(SpareBuffers::default());
        let (steps, actions) = BatchSteps::begin(journal.durability, false);
        let before = disk.bytes().len();
        self.perform_batch(process, (batch, steps, [before; 2]), actions)
    }

    /// Performs actions on a batch, up to one that takes time. Returns false when the write has failed.
    fn perform_batch(
        &mut self,
        process: Process,
        (batch, mut steps, [before, mut after]): (Batch, BatchSteps, [usize; 2]),
        mut actions: &'static [BatchAction],
    ) -> bool {
        let now = self.now;
        let mut is_written = true;
        while let [action, rest @ ..] = actions {
            actions = rest;
            let Gateway { journal, disk, .. } = &mut self.gateways[process.gateway];
            match *action {
                BatchAction::Write => {
                    is_written = disk.write(batch.lines(), now);
                    after = disk.bytes().len();
                    actions = steps.step(is_written);
                }
                BatchAction::Sync => {
                    // Broken on purpose: the sync is told to be done at once.
                    let pause = if self.options.broken == Some(Break::Sync) { 0 } else { 2_000 };
                    let pause = pause + if pause > 0 { self.network.below(6_000) } else { 0 };
                    journal.in_flight = Some((batch, steps, [before, after]));
                    self.queue.add(now + pause, Event::Synced(process));
                    return true;
                }
                BatchAction::ChangeMode(event) => self.change_mode(process, event),
                BatchAction::Restore => journal.pending.restore_failed_batch(&batch),
                BatchAction::WithdrawUnsynced => journal.unsynced_from = Some(before),
                BatchAction::Complete(result) => batch.complete(result),
            }
        }
        let journal = &mut self.gateways[process.gateway].journal;
        if is_written && journal.durability == Durability::Written && !journal.is_sync_planned {
            journal.is_sync_planned = true;
            self.queue.add(now + TIMED_SYNC, Event::TimedSync(process));
        }
        self.settle_waiting(process);
        is_written
    }

    /// The batch in flight is synced, or has failed to be.
    pub fn end_sync(&mut self, process: Process) {
        let broken = self.options.broken;
        let Some(Gateway { journal, disk, .. }) = self.live(process) else { return };
        let Some((batch, mut steps, lengths)) = journal.in_flight.take() else { return };
        let has_succeeded = broken == Some(Break::Sync) || disk.sync(lengths[1]);
        let actions = steps.step(has_succeeded);
        self.perform_batch(process, (batch, steps, lengths), actions);
        self.write_pending(process);
    }

    /// The timed sync of a journal whose uses are only written.
    pub fn sync_written(&mut self, process: Process) {
        let Some(Gateway { journal, disk, .. }) = self.live(process) else { return };
        journal.is_sync_planned = false;
        disk.sync(disk.bytes().len());
    }

    fn change_mode(&mut self, process: Process, event: ModeEvent) {
        let now = self.now;
        let journal = &mut self.gateways[process.gateway].journal;
        for action in journal.pending.change_mode(event) {
            let journal = &mut self.gateways[process.gateway].journal;
            match action {
                ModeAction::FailPending => {
                    journal.pending.take_batch(SpareBuffers::default()).complete(BatchResult::Failed);
                }
                ModeAction::LogFailure => self.note_fault("journal cannot be written", process.gateway, NONE, 0),
                ModeAction::LogRecovery => self.note_fault("journal is written again", process.gateway, NONE, 0),
                ModeAction::LogSyncFailure => {
                    journal.failed = Some(now);
                    self.note_fault("journal cannot be synced", process.gateway, NONE, 0);
                    self.queue.add(now + RESTART_AFTER, Event::Leave(process));
                }
                // The process ends: what is left is written by `close_journal`.
                ModeAction::WakeCommitter => {}
            }
        }
    }

    /// Forwards the requests whose uses are as durable as configured, and refuses those whose lines have failed.
    fn settle_waiting(&mut self, process: Process) {
        let waiting = std::mem::take(&mut self.gateways[process.gateway].journal.waiting);
        for (id, completion) in waiting {
            match completion.result() {
                None => self.gateways[process.gateway].journal.waiting.push((id, completion)),
                Some(BatchResult::Written) => self.forward(id),
                Some(BatchResult::Failed) => self.refuse_unrecorded(id),
            }
        }
    }

    /// Closes the journal of a process that ends in order: writes and syncs what is left.
    pub fn close_journal(&mut self, process: Process) {
        self.end_sync(process);
        self.change_mode(process, ModeEvent::Closed);
        self.write_pending(process);
        self.end_sync(process);
        self.sync_written(process);
    }
}
