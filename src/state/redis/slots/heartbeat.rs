//! The keeper: what has to be said to Redis outside of decisions, by one task for the whole process.
//!
//! - Slots that were released when no decision of their organization came along soon: within two [`TICK`]s, and within
//!   [`HURRY`] when the organization was last seen near its limit.
//! - That this gateway lives, a few times per lease, where it holds slots and among the gateways.
//! - All that it holds, after an answer was lost; and the uses that were admitted while Redis was away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use redis::Value;
use tokio::time::{sleep, timeout};

use crate::state::redis::client::{CommandError, Servers};

use crate::clock;
use crate::state::redis::Redis;
use crate::state::redis::Shared;
use crate::state::redis::decide::decide_codec::chosen;
use crate::state::redis::record_codec::{pack, unpack};
use crate::state::redis::record_names::gateways_slot;
use crate::state::redis::slots::lease::{HeartbeatAction, HeartbeatRound, SlotLease};
use crate::state::redis::slots::slot_report::PendingReport;

/// How often the keeper looks. A release goes along with a decision of the same organization that comes sooner, so at
/// ten requests a second and more it costs no command of its own; and nobody misses for longer a slot that is free.
const TICK: Duration = Duration::from_millis(100);
/// How long a release waits for a decision to go along with where others may wait for the slot.
const HURRY: Duration = Duration::from_millis(2);
/// How many leases are told of at a time.
const AT_ONCE: usize = 256;
/// How often Redis hears of us in a lease: two messages may be lost.
const BEATS: u32 = 3;
/// How long the deregister may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The codes of `hold.lua`.
const DONE: u64 = 0;
const UNKNOWN: u64 = 1;
const LEFT: u64 = 2;
const UNREGISTERED: u64 = 9;

/// Keeps house for as long as the gateway runs.
pub(in crate::state::redis) async fn run(shared: Arc<Shared>, servers: Servers) {
    let redis = Redis { shared, commits: servers.clone(), servers };
    let beat = redis.shared.settings.lease / BEATS;
    let (mut beaten, mut looked) = (None::<Instant>, Instant::now());
    loop {
        if beaten.is_none_or(|at| at.elapsed() >= beat) && redis.beat(false).await.is_ok() {
            beaten = Some(Instant::now());
        }
        redis.flush_unreported().await;
        let pause = if redis.shared.active.is_empty() { beat } else { TICK };
        let pause = if beaten.is_none() { TICK } else { pause };
        // Either is a reason to look.
        let _ = timeout(pause, redis.shared.active.woken()).await;
        let hurried = redis.shared.active.hurried();
        if hurried {
            sleep(HURRY).await;
        }
        let all = looked.elapsed() >= TICK;
        if all {
            looked = Instant::now();
            clock::follow_wall();
        }
        redis.look(HeartbeatRound { now: Instant::now(), near_limit_only: !all, beat }).await;
    }
}

impl Redis {
    /// Looks after all leases.
    async fn look(&self, look: HeartbeatRound) {
        let leases = self.shared.active.all();
        let due = leases.into_iter().map(|lease| (lease.due(look), lease));
        let mut resting = Vec::new();
        let due: Vec<_> = due
            .filter_map(|(due, lease)| match due {
                HeartbeatAction::Nothing => None,
                HeartbeatAction::Rest => {
                    resting.push(lease);
                    None
                }
                due => Some((due, lease)),
            })
            .collect();
        self.shared.active.remove(&resting);
        stream::iter(due)
            .for_each_concurrent(AT_ONCE, async |(due, lease)| match due {
                HeartbeatAction::Tell(report, leaves) => self.tell(&lease, report, leaves).await,
                // When it fails it is due again.
                HeartbeatAction::Settle => drop(self.shared.resync(&self.servers, &lease).await),
                HeartbeatAction::Nothing | HeartbeatAction::Rest => {}
            })
            .await;
    }

    /// Tells what was released, and that we live.
    async fn tell(&self, lease: &SlotLease, report: PendingReport, leaves: bool) {
        let shared = &self.shared;
        match shared.hold(&self.servers, lease, None, (report.released, report.generation), leaves).await {
            Ok(UNREGISTERED) => report.unregistered(),
            Ok(code) => report.acknowledged(code == LEFT),
            Err(failure) if failure.did_not_run() => report.not_sent(),
            Err(_) => drop(report),
        }
    }

    /// Says that this gateway lives, or that it leaves, and learns how many do.
    async fn beat(&self, leaves: bool) -> Result<(), CommandError> {
        let shared = &self.shared;
        let lease = if leaves { 0 } else { shared.settings.lease.as_micros() };
        let (name, lease) = (shared.record_names.gateways(), lease.to_string());
        let arguments: [&[u8]; 2] = [&shared.holder, lease.as_bytes()];
        let alive = self.servers.run(gateways_slot(), &shared.scripts.beat, &[name.as_bytes()], &arguments).await?;
        if let Value::Int(alive) = alive {
            shared.gateways.store(u32::try_from(alive).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tells of the uses that were admitted while Redis was away, once it is back.
    async fn flush_unreported(&self) {
        if !self.servers.up() {
            return;
        }
        let unreported_keys = std::mem::take(&mut *self.shared.unreported_keys());
        let pay = async |known| {
            // Without a record there is nobody to pay to; and more may be owed by now.
            let gone =
                matches!(crate::state::redis::decide::call::read_status(self, &known, clock::now()).await, Ok(None));
            if !gone && known.usage.debt().is_some() {
                self.shared.owe(&known);
            }
        };
        stream::iter(unreported_keys).for_each_concurrent(AT_ONCE, pay).await;
    }

    /// Tells Redis for the last time, with links of its own: those of the threads have ended with them.
    pub(in crate::state::redis) async fn deregister(&self) {
        let servers = Servers::start(&self.shared.common);
        let redis = Self { shared: Arc::clone(&self.shared), commits: servers.clone(), servers };
        let report = async {
            if redis.servers.all_reached().await.is_err() {
                return;
            }
            redis.flush_unreported().await;
            let now = Instant::now();
            // Once for what was released, once to be forgotten.
            for _ in 0..2 {
                redis.look(HeartbeatRound { now, near_limit_only: false, beat: Duration::ZERO }).await;
            }
            if let Err(error) = redis.beat(true).await {
                tracing::debug!(%error, "the gateway leaves without a word; its lease ends by itself");
            }
        };
        if timeout(FAREWELL, report).await.is_err() {
            tracing::warn!("Redis does not take leave of this gateway; its slots are free when its lease ends");
        }
    }
}

impl Shared {
    /// Tells Redis how many slots are held, when what it counts is unknown. False when Redis has no such organization,
    /// as after it has lost its data: then there is nothing to settle with.
    pub(in crate::state::redis) async fn resync(
        &self,
        servers: &Servers,
        lease: &Arc<SlotLease>,
    ) -> Result<bool, CommandError> {
        let _one_at_a_time = lease.resync.lock().await;
        let Some(resync) = lease.begin_resync() else { return Ok(true) };
        let (held, generation) = (resync.held, resync.generation);
        match self.hold(servers, lease, Some(held), (0, generation), held == 0).await? {
            DONE => lease.finish_resync(resync, false),
            LEFT => lease.finish_resync(resync, true),
            UNKNOWN => {
                // Nothing held there is nothing to tell it either, should it come back.
                if held == 0 {
                    lease.finish_resync(resync, true);
                }
                return Ok(false);
            }
            _ => {}
        }
        Ok(true)
    }

    async fn hold(
        &self,
        servers: &Servers,
        lease: &SlotLease,
        absolute: Option<u32>,
        (released, generation): (u32, u64),
        leaves: bool,
    ) -> Result<u64, CommandError> {
        let mut packed = Vec::with_capacity(48);
        match absolute {
            Some(held) => pack(&mut packed, u64::from(held)),
            None => packed.extend_from_slice(&(-1.0_f64).to_le_bytes()),
        }
        let lease_us = u64::try_from(self.settings.lease.as_micros()).unwrap_or(u64::MAX);
        let now = chosen(&self.settings, clock::now());
        let numbers = [u64::from(released), lease_us, generation, u64::from(leaves), now];
        numbers.into_iter().for_each(|number| pack(&mut packed, number));
        let arguments: [&[u8]; 2] = [&self.holder, &packed];
        match servers.run(lease.slot, &self.scripts.hold, &[&lease.org], &arguments).await? {
            Value::BulkString(answer) => {
                let [code, _taken] = unpack(&answer).ok_or(CommandError::UnexpectedReply)?;
                Ok(code)
            }
            _ => Err(CommandError::UnexpectedReply),
        }
    }
}
