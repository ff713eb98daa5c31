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

use super::account::{Account, Due, Look};
use super::asking;
use super::layout::gateways_slot;
use super::question::chosen;
use super::servers::{Failure, Servers};
use super::stored::{pack, unpack};
use super::telling::Telling;
use super::{Redis, Shared};
use crate::clock;

/// How often the keeper looks. A release goes along with a decision of the same organization that comes sooner, so at
/// ten requests a second and more it costs no command of its own; and nobody misses for longer a slot that is free.
const TICK: Duration = Duration::from_millis(100);
/// How long a release waits for a decision to go along with where others may wait for the slot.
const HURRY: Duration = Duration::from_millis(2);
/// How many accounts are told of at a time.
const AT_ONCE: usize = 256;
/// How often Redis hears of us in a lease: two messages may be lost.
const BEATS: u32 = 3;
/// How long the farewell may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// The codes of `hold.lua`.
const DONE: u64 = 0;
const UNKNOWN: u64 = 1;
const LEFT: u64 = 2;
const UNREGISTERED: u64 = 9;

/// Keeps house for as long as the gateway runs.
pub(super) async fn keep(shared: Arc<Shared>, servers: Servers) {
    let redis = Redis { shared, commits: servers.clone(), servers };
    let beat = redis.shared.settings.lease / BEATS;
    let (mut beaten, mut looked) = (None::<Instant>, Instant::now());
    loop {
        if beaten.is_none_or(|at| at.elapsed() >= beat) && redis.beat(false).await.is_ok() {
            beaten = Some(Instant::now());
        }
        redis.pay().await;
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
        redis.look(Look { now: Instant::now(), crowded_only: !all, beat }).await;
    }
}

impl Redis {
    /// Looks after all accounts.
    async fn look(&self, look: Look) {
        let accounts = self.shared.active.all();
        let due = accounts.into_iter().map(|account| (account.due(look), account));
        let mut resting = Vec::new();
        let due: Vec<_> = due
            .filter_map(|(due, account)| match due {
                Due::Nothing => None,
                Due::Rest => {
                    resting.push(account);
                    None
                }
                due => Some((due, account)),
            })
            .collect();
        self.shared.active.remove(&resting);
        stream::iter(due)
            .for_each_concurrent(AT_ONCE, async |(due, account)| match due {
                Due::Tell(telling, leaves) => self.tell(&account, telling, leaves).await,
                // When it fails it is due again.
                Due::Settle => drop(self.shared.settle(&self.servers, &account).await),
                Due::Nothing | Due::Rest => {}
            })
            .await;
    }

    /// Tells what was released, and that we live.
    async fn tell(&self, account: &Account, telling: Telling, leaves: bool) {
        let shared = &self.shared;
        match shared.hold(&self.servers, account, None, (telling.released, telling.epoch), leaves).await {
            Ok(UNREGISTERED) => telling.unknown(),
            Ok(code) => telling.told(code == LEFT),
            Err(failure) if failure.did_not_run() => telling.untold(),
            Err(_) => drop(telling),
        }
    }

    /// Says that this gateway lives, or that it leaves, and learns how many do.
    async fn beat(&self, leaves: bool) -> Result<(), Failure> {
        let shared = &self.shared;
        let lease = if leaves { 0 } else { shared.settings.lease.as_micros() };
        let (name, lease) = (shared.layout.gateways(), lease.to_string());
        let arguments: [&[u8]; 2] = [&shared.holder, lease.as_bytes()];
        let alive = self.servers.run(gateways_slot(), &shared.scripts.beat, &[name.as_bytes()], &arguments).await?;
        if let Value::Int(alive) = alive {
            shared.gateways.store(u32::try_from(alive).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tells of the uses that were admitted while Redis was away, once it is back.
    async fn pay(&self) {
        if !self.servers.up() {
            return;
        }
        let debtors = std::mem::take(&mut *self.shared.debtors());
        let pay = async |known| {
            // Without a record there is nobody to pay to; and more may be owed by now.
            let gone = matches!(asking::look(self, &known, clock::now()).await, Ok(None));
            if !gone && known.usage.debt().is_some() {
                self.shared.owe(&known);
            }
        };
        stream::iter(debtors).for_each_concurrent(AT_ONCE, pay).await;
    }

    /// Tells Redis for the last time, with links of its own: those of the threads have ended with them.
    pub(super) async fn farewell(&self) {
        let servers = Servers::start(&self.shared.common);
        let redis = Self { shared: Arc::clone(&self.shared), commits: servers.clone(), servers };
        let telling = async {
            if redis.servers.all_reached().await.is_err() {
                return;
            }
            redis.pay().await;
            let now = Instant::now();
            // Once for what was released, once to be forgotten.
            for _ in 0..2 {
                redis.look(Look { now, crowded_only: false, beat: Duration::ZERO }).await;
            }
            if let Err(error) = redis.beat(true).await {
                tracing::debug!(%error, "the gateway leaves without a word; its lease ends by itself");
            }
        };
        if timeout(FAREWELL, telling).await.is_err() {
            tracing::warn!("Redis does not take leave of this gateway; its slots are free when its lease ends");
        }
    }
}

impl Shared {
    /// Tells Redis how many slots are held, when what it counts is unknown. False when Redis has no such organization,
    /// as after it has lost its data: then there is nothing to settle with.
    pub(super) async fn settle(&self, servers: &Servers, account: &Arc<Account>) -> Result<bool, Failure> {
        let _one_at_a_time = account.settling.lock().await;
        let Some(settling) = account.begin_settling() else { return Ok(true) };
        let (held, epoch) = (settling.held, settling.epoch);
        match self.hold(servers, account, Some(held), (0, epoch), held == 0).await? {
            DONE => account.settled(settling, false),
            LEFT => account.settled(settling, true),
            UNKNOWN => {
                // Nothing held there is nothing to tell it either, should it come back.
                if held == 0 {
                    account.settled(settling, true);
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
        account: &Account,
        absolute: Option<u32>,
        (released, epoch): (u32, u64),
        leaves: bool,
    ) -> Result<u64, Failure> {
        let mut packed = Vec::with_capacity(48);
        match absolute {
            Some(held) => pack(&mut packed, u64::from(held)),
            None => packed.extend_from_slice(&(-1.0_f64).to_le_bytes()),
        }
        let lease = u64::try_from(self.settings.lease.as_micros()).unwrap_or(u64::MAX);
        let now = chosen(&self.settings, clock::now());
        let numbers = [u64::from(released), lease, epoch, u64::from(leaves), now];
        numbers.into_iter().for_each(|number| pack(&mut packed, number));
        let arguments: [&[u8]; 2] = [&self.holder, &packed];
        match servers.run(account.slot, &self.scripts.hold, &[&account.org], &arguments).await? {
            Value::BulkString(answer) => {
                let [code, _taken] = unpack(&answer).ok_or(Failure::Nonsense)?;
                Ok(code)
            }
            _ => Err(Failure::Nonsense),
        }
    }
}
