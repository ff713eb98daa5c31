//! The slot reports that one decide call carries: of its organization, and of its key if that has a limit of its own.

use std::sync::Arc;
use std::time::Instant;

use super::decide_codec::{DecideError, Decided};
use super::key_cache::CachedKey;
use crate::redis::slots::{PendingReport, Permits, SlotLease};
use domain::refusal::Refusal;
use redis_client::CommandError;

/// Slot reports of a call.
///
/// - Each ends with the call, one way or the other; dropped, both count as lost ([`PendingReport`]).
#[derive(Debug, Default)]
pub(super) struct PendingReports {
    /// None for a refused request, which needs no valid lease.
    pub(super) org: Option<PendingReport>,
    /// None also for a key without a limit of its own. In a box, which nearly no call has.
    pub(super) key: Option<Box<PendingReport>>,
}

impl PendingReports {
    /// Begins both reports of a call about a cached key.
    ///
    /// # Errors
    /// The lease that is in doubt and has to be resynced first.
    pub(super) fn begin(key: &CachedKey, now: Instant) -> Result<Self, Arc<SlotLease>> {
        let begin = |lease: &Arc<SlotLease>| PendingReport::begin(lease, now).ok_or_else(|| Arc::clone(lease));
        let org = begin(&key.lease)?;
        let Some(slots) = &key.slots else { return Ok(Self { org: Some(org), key: None }) };
        match begin(&slots.lease) {
            Ok(report) => Ok(Self { org: Some(org), key: Some(Box::new(report)) }),
            Err(lease) => {
                org.not_sent();
                Err(lease)
            }
        }
    }

    /// The script did not run, or returned before it applied the reports.
    pub(super) fn not_sent(self) {
        self.org.into_iter().for_each(PendingReport::not_sent);
        self.key.into_iter().for_each(|report| report.not_sent());
    }

    /// Redis has no entry of this generation: with `of_key`, of the key's lease, else of the organization's. Returns
    /// the lease.
    pub(super) fn unregistered(mut self, key: &CachedKey, of_key: bool) -> Arc<SlotLease> {
        let slots = key.slots.as_deref().filter(|_| of_key);
        if slots.is_some() {
            self.key.take().into_iter().for_each(|report| report.unregistered());
        } else {
            self.org.take().into_iter().for_each(PendingReport::unregistered);
        }
        self.not_sent();
        Arc::clone(slots.map_or(&key.lease, |slots| &slots.lease))
    }

    /// Redis has given the request its slots.
    ///
    /// # Errors
    /// A resync that began meanwhile did not count one of them, so that the other is given back; or the reply is none
    /// to this call.
    pub(super) fn acquired(self, key: &CachedKey, decided: &Decided) -> Result<Permits, DecideError> {
        let unexpected = || DecideError::from(CommandError::UnexpectedReply);
        let org = self.org.ok_or_else(unexpected)?.acquired(decided.taken, key.concurrent);
        let own = match (self.key, &key.slots) {
            (Some(report), Some(slots)) => {
                let counts = decided.of_key.ok_or_else(unexpected)?;
                Some(report.acquired(counts.taken, slots.concurrent).ok_or(DecideError::Fenced)?)
            }
            _ => None,
        };
        Ok(Permits::new(org.ok_or(DecideError::Fenced)?, own))
    }

    /// Redis has refused the request. Returns whether that may be stale, because releases of this gateway were still in
    /// flight, or waiting.
    pub(super) fn denied(self, key: &CachedKey, decided: &Decided, refusal: Refusal) -> bool {
        let is_org_stale = denied(self.org, &key.lease, decided.taken);
        let counts = key.slots.as_deref().zip(decided.of_key);
        let report = self.key.map(|report| *report);
        let is_key_stale = counts.is_some_and(|(slots, counts)| denied(report, &slots.lease, counts.taken));
        // Only a denial for lack of slots depends on releases.
        match refusal {
            Refusal::TooManyInFlight => is_org_stale,
            Refusal::KeyTooManyInFlight => is_key_stale,
            _ => false,
        }
    }
}

/// Notes a refusal while `taken` slots of a lease are taken.
fn denied(report: Option<PendingReport>, lease: &SlotLease, taken: u32) -> bool {
    match report {
        Some(report) => report.denied(taken),
        None => {
            lease.note_answer(taken);
            false
        }
    }
}
