//! All slot leases of this process, and the reports about them outside of decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use parking_lot::Mutex;
use redis::Value;
use rustc_hash::FxBuildHasher;

use super::active_set::ActiveSet;
use super::lease::SlotLease;
use super::membership::{Membership, Portion};
use crate::redis::packed::{pack, unpack};
use crate::redis::record_names::RecordNames;
use crate::redis::scripts::Scripts;
use crate::redis::settings::Settings;
use domain::clock::{self, Micros};
use domain::key::OrgTag;
use redis_client::{CommandError, RedisClient};

/// The slot leases of this process, shared by all its threads.
pub(crate) struct SlotLeases {
    pub(super) settings: Arc<Settings>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) names: RecordNames,
    /// Field of this process in the records of organizations and gateways; no other process has the same.
    pub(crate) gateway_id: Box<[u8]>,
    leases: DashMap<OrgTag, Arc<SlotLease>, FxBuildHasher>,
    /// Leases that the heartbeat visits.
    pub(super) active: Arc<ActiveSet<SlotLease>>,
    /// This gateway's place among the gateways, by the reply to the last heartbeat; `None` before the first.
    membership: Mutex<Option<Membership>>,
    /// Failovers of the servers so far, counted by the client.
    failovers: Arc<AtomicU64>,
}

/// Reply of `slot_report.lua`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotReportReply {
    /// The report was applied, and the lease renewed; so many slots of the organization are taken.
    Done(u32),
    /// There is no such organization; nothing was changed.
    NoOrg,
    /// The report was applied, and the entry deleted, as nothing was held.
    Deleted,
    /// There is no entry of this generation; nothing was changed.
    Unregistered,
}

/// Arguments of `slot_report.lua`.
pub(super) struct SlotReport {
    /// Slots held, which begins a generation; `None` when only releases are reported.
    pub(super) absolute: Option<u32>,
    pub(super) released: u32,
    pub(super) generation: u64,
    /// True when the entry is to be deleted if nothing is held.
    pub(super) deregister: bool,
}

impl SlotLeases {
    /// Number of failovers of the servers so far.
    pub(crate) fn failovers(&self) -> u64 {
        self.failovers.load(Ordering::Acquire)
    }

    /// No leases, for the gateway with this id.
    pub(crate) fn new(
        settings: Arc<Settings>,
        scripts: Arc<Scripts>,
        gateway_id: Box<[u8]>,
        failovers: Arc<AtomicU64>,
    ) -> Self {
        Self {
            names: RecordNames::new(&settings.prefix),
            settings,
            scripts,
            gateway_id,
            leases: DashMap::with_hasher(FxBuildHasher),
            active: Arc::new(ActiveSet::new()),
            membership: Mutex::new(None),
            failovers,
        }
    }

    /// The lease on the slots of an organization.
    pub(crate) fn lease_of(&self, tag: OrgTag) -> Arc<SlotLease> {
        let lease = self.leases.entry(tag).or_insert_with(|| {
            let (active, failovers) = (Arc::clone(&self.active), Arc::clone(&self.failovers));
            Arc::new(SlotLease::new(&self.names, tag, active, failovers, Instant::now()))
        });
        Arc::clone(&lease)
    }

    /// Permits that exist, of all organizations.
    pub(crate) fn in_flight(&self) -> u64 {
        self.leases.iter().map(|lease| u64::from(lease.held())).sum()
    }

    /// This gateway's portion in an outage that began at `since`, and the time from which inflow belongs to it; `None`
    /// when it may not admit in it.
    pub(crate) fn portion(&self, since: Micros) -> Option<(Portion, Micros)> {
        self.membership()?.portion(since, self.settings.lease)
    }

    pub(super) fn membership(&self) -> Option<Membership> {
        *self.membership.lock()
    }

    pub(super) fn set_membership(&self, membership: Membership) {
        *self.membership.lock() = Some(membership);
    }

    /// Sends the absolute number of slots held under a new generation, if the lease is in doubt. Returns false when
    /// Redis has no such organization, as after it has lost its data.
    pub(crate) async fn resync(&self, client: &RedisClient, lease: &Arc<SlotLease>) -> Result<bool, CommandError> {
        let _one_at_a_time = lease.resync.lock().await;
        // Another caller may have resynced the lease while this one waited for the lock.
        let Some(resync) = lease.begin_resync(Instant::now()) else { return Ok(true) };
        let (held, generation) = (resync.held, resync.generation);
        let report = SlotReport { absolute: Some(held), released: 0, generation, deregister: held == 0 };
        match self.send_slot_report(client, lease, report).await? {
            SlotReportReply::Done(taken) => {
                lease.finish_resync(resync, false);
                lease.note_answer(taken);
            }
            SlotReportReply::Deleted => lease.finish_resync(resync, true),
            SlotReportReply::NoOrg => {
                // With nothing held there is nothing to report either, should the organization come back.
                if held == 0 {
                    lease.finish_resync(resync, true);
                }
                return Ok(false);
            }
            // Redis has a later generation already. The lease stays in doubt, and the next resync counts on from here.
            SlotReportReply::Unregistered => {}
        }
        Ok(true)
    }

    /// Runs `slot_report.lua`.
    pub(super) async fn send_slot_report(
        &self,
        client: &RedisClient,
        lease: &SlotLease,
        report: SlotReport,
    ) -> Result<SlotReportReply, CommandError> {
        let mut packed = Vec::with_capacity(48);
        match report.absolute {
            Some(held) => pack(&mut packed, u64::from(held)),
            None => packed.extend_from_slice(&(-1.0_f64).to_le_bytes()),
        }
        let numbers = [
            u64::from(report.released),
            self.settings.lease_micros(),
            report.generation,
            u64::from(report.deregister),
            self.settings.script_time(clock::now()),
        ];
        numbers.into_iter().for_each(|number| pack(&mut packed, number));
        let arguments: [&[u8]; 2] = [&self.gateway_id, &packed];
        let reply = client.run(lease.hash_slot, &self.scripts.slot_report, &[&lease.org_record], &arguments).await?;
        SlotReportReply::decode(&reply).ok_or(CommandError::UnexpectedReply)
    }
}

impl SlotReportReply {
    fn decode(reply: &Value) -> Option<Self> {
        let Value::BulkString(packed) = reply else { return None };
        let [code, taken] = unpack(packed)?;
        match code {
            0 => Some(Self::Done(u32::try_from(taken).unwrap_or(u32::MAX))),
            1 => Some(Self::NoOrg),
            2 => Some(Self::Deleted),
            9 => Some(Self::Unregistered),
            _ => None,
        }
    }
}
