//! A command in flight that reports releases of a lease and may acquire a slot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lease::{LeaseData, LeaseState, Permit, SlotLease, SlotReportReply};
use redis_client::CommandError;

/// A command in flight that reports releases and may acquire a slot.
///
/// - One of the methods that consume it takes each outcome but a lost reply. Dropping it otherwise means
///   that the reply was lost, and puts the lease in doubt.
pub struct PendingReport {
    /// Shared with the permits and the other commands of the organization.
    lease: Arc<SlotLease>,
    /// Releases that it reports.
    pub(crate) released: u32,
    /// Generation in which it was sent.
    pub(crate) generation: u64,
    /// True when Redis may create the entry of this gateway.
    pub(crate) may_register: bool,
    /// True when another command that reports releases was in flight at its begin: Redis may run that one later.
    overtakes_releases: bool,
    /// Its begin; the lease was renewed no sooner.
    begun: Instant,
    /// Begin of the last command before it that renewed the lease; none before the first.
    renewed: Option<Instant>,
    /// Its outcome was noted; until then, its drop is a lost reply.
    done: bool,
}

impl std::fmt::Debug for PendingReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { released, generation, may_register, overtakes_releases, begun, renewed, .. } = self;
        let command = (released, generation, may_register, overtakes_releases);
        f.debug_tuple("PendingReport").field(&self.lease.subject).field(&command).field(begun).field(renewed).finish()
    }
}

impl PendingReport {
    /// Begins a command at `now`; `None` when the lease is in doubt and has to be resynced first.
    pub(crate) fn begin(lease: &Arc<SlotLease>, now: Instant) -> Option<Self> {
        Self::begin_locked(lease, &mut lease.data(), now)
    }

    pub(super) fn begin_locked(lease: &Arc<SlotLease>, data: &mut LeaseData, now: Instant) -> Option<Self> {
        lease.check_failovers(data);
        if data.state == LeaseState::InDoubt {
            return None;
        }
        data.commands += 1;
        let released = std::mem::take(&mut data.released);
        let overtakes_releases = data.releases_in_flight > 0;
        data.releases_in_flight += u32::from(released > 0);
        Some(Self {
            lease: Arc::clone(lease),
            released,
            generation: data.generation,
            may_register: data.state == LeaseState::Unregistered,
            overtakes_releases,
            begun: now,
            renewed: data.renewed,
            done: false,
        })
    }

    /// Returns whether the lease was not renewed for so long before it.
    pub(crate) fn is_first_since(&self, pause: Duration) -> bool {
        self.renewed.is_none_or(|renewed| self.begun.duration_since(renewed) > pause)
    }

    /// The script ran and acquired a slot, with which `taken` of `limit` slots are taken. Returns the permit, or `None`
    /// when it is fenced: a resync that began meanwhile did not count the slot, so Redis has forgotten it.
    pub(crate) fn acquired(mut self, taken: u32, limit: u32) -> Option<Permit> {
        self.done = true;
        let mut data = self.lease.data();
        self.lease.end_report(&mut data, self.released);
        if data.generation != self.generation {
            return None;
        }
        SlotLease::note_answer_locked(&mut data, taken);
        let permit = self.lease.grant(&mut data);
        // Half of the limit leaves room for what other gateways may have acquired since; an eighth of it waiting here
        // to be reported may already be missed by them.
        data.near_limit = taken.saturating_mul(2) >= limit || data.released.saturating_mul(8) >= limit;
        // A lease in doubt stays so: other commands of this generation may still be unaccounted for.
        if data.state != LeaseState::InDoubt {
            self.lease.mark_registered(&mut data, self.begun, false);
        }
        drop(data);
        Some(permit)
    }

    /// Applies the result of a report outside of decisions.
    pub fn complete(self, reply: Result<SlotReportReply, CommandError>) {
        let lease = Arc::clone(&self.lease);
        match reply {
            Ok(SlotReportReply::Unregistered) => self.unregistered(),
            Ok(reply) => {
                self.acknowledged(reply == SlotReportReply::Deleted);
                if let SlotReportReply::Done(taken) = reply {
                    lease.note_answer(taken);
                }
            }
            Err(error) if error.did_not_run() => self.not_sent(),
            Err(_) => drop(self),
        }
    }

    /// The script ran and applied the report. `deleted` says that Redis has deleted the entry, as was requested.
    pub(super) fn acknowledged(mut self, deleted: bool) {
        self.done = true;
        let mut data = self.lease.data();
        self.lease.end_report(&mut data, self.released);
        if data.generation == self.generation && data.state == LeaseState::Registered {
            self.lease.mark_registered(&mut data, self.begun, deleted);
        }
    }

    /// The script ran and acquired nothing, as `taken` slots are taken (and, if it reported no release, did
    /// not renew the lease). Returns whether the denial may be stale because releases of this gateway were
    /// still in flight, or waiting.
    pub(crate) fn denied(mut self, taken: u32) -> bool {
        let mut data = self.lease.data();
        SlotLease::note_answer_locked(&mut data, taken);
        let may_be_stale = self.overtakes_releases || data.released > 0;
        drop(data);
        if self.released > 0 {
            self.acknowledged(false);
        } else {
            self.done = true;
        }
        may_be_stale
    }

    /// The script did not run: its releases are still to be reported.
    pub(crate) fn not_sent(mut self) {
        self.done = true;
        let mut data = self.lease.data();
        self.lease.end_report(&mut data, self.released);
        // In doubt, the resync that follows sends the absolute number, without these releases.
        if data.generation == self.generation && data.state != LeaseState::InDoubt {
            data.released += self.released;
        }
    }

    /// Redis has no entry of this generation: it was deleted when the lease ended, or lost in a failover.
    pub(crate) fn unregistered(self) {
        // The rest is as for a lost reply: Redis counts an unknown number.
        drop(self);
    }
}

impl Drop for PendingReport {
    fn drop(&mut self) {
        if !self.done {
            let mut data = self.lease.data();
            self.lease.end_report(&mut data, self.released);
            self.lease.doubt_generation(&mut data, self.generation);
        }
    }
}
