//! Recording of uses and outcomes in the journal of a process, and the writing, syncing and acknowledging that follows.

use std::time::Duration;

use domain::budget::Cost;
use domain::identity::AuthMethod;
use journal::audit::steps::{
    Batch, BatchAction, BatchResult, BatchSteps, Look, MAX_OUTCOME_DELAY, Mode, ModeAction, ModeEvent, OpenUse,
    OutcomeEvent, RETRY_DELAY, SpareBuffers, UseLine, Watch,
};
use journal::audit::{Durability, Outcome, Use, UseEnd};

use super::event::{Event, Process};
use super::gateway::Gateway;
use super::journal::{Journal, TIMED_SYNC, use_id, wall};
use super::options::Break;
use super::revocations::micros;
use super::trace::NONE;
use super::world::World;

/// Time after a failed sync at which an operator restarts the gateway.
const RESTART_AFTER: u64 = 2_000_000;
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
            cost: Cost::ONE,
            budget: None,
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
            let Gateway { journal, disk, .. } = &mut self.gateways[process.gateway];
            match action {
                ModeAction::FailPending => {
                    journal.pending.take_batch(SpareBuffers::default()).complete(BatchResult::Failed);
                }
                ModeAction::LogFailure => self.note_fault("journal cannot be written", process.gateway, NONE, 0),
                ModeAction::LogRecovery => self.note_fault("journal is written again", process.gateway, NONE, 0),
                ModeAction::LogSyncFailure => {
                    journal.failed = Some((now, disk.full));
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
