//! The background tasks of the process: registration of this gateway, visits to the slot leases, reports of uses that
//! were admitted offline, assertion of revocations, the reader of the revocation log, and the look at replicas.
//!
//! They run side by side: what takes long in one of them delays no other.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::decide::{Decider, probe_decisions};
use super::directory::{Changes, Transactions};
use super::identity::watch_identity;
use super::revocation_reader::RevocationReader;
use super::slots::{SlotLeases, keep_registered, keep_signs_of_life, visit_leases};
use crate::{Change, ChangeError, PolicyScope};
use domain::key::policy::{Field, PolicyPatch};
use redis_client::{ClientShared, RedisClient, watch_replication};

/// Pause between reports of uses that were admitted offline: as long as between two visits to the leases.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// Time-out of deregistering. A gateway that is shutting down must not wait longer for a Redis that is unavailable.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(1);
/// The part of it in which all nodes of a Cluster have to be connected. Half of it: the rest is for the
/// reports to those that are.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// The background tasks. All threads share them.
#[derive(Clone)]
pub(super) struct Maintenance(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Maintenance {
    /// Starts the tasks on the current runtime. `decider` has a client of its own, so that no decision waits behind a
    /// report. Without `slots` this process is no gateway: others divide limits without it.
    pub(super) fn start(
        slots: Option<Arc<SlotLeases>>,
        decider: Decider,
        client: RedisClient,
        transactions: Transactions,
        assertion: impl Future<Output = ()> + Send + 'static,
        reader: RevocationReader,
    ) -> Self {
        let replication = tokio::spawn(watch_replication(Arc::clone(client.shared())));
        let identity = tokio::spawn(watch_identity(transactions.clone()));
        let prober = decider.with_client(client.clone());
        let reports = tokio::spawn(report_uses(decider, transactions));
        let assertion = tokio::spawn(assertion);
        let reader = tokio::spawn(reader.run());
        let mut tasks = vec![reports, replication, assertion, reader, identity];
        if let Some(slots) = slots {
            tasks.push(tokio::spawn(keep_registered(Arc::clone(&slots), client.clone())));
            tasks.push(tokio::spawn(keep_signs_of_life(Arc::clone(&slots), client.clone())));
            tasks.push(tokio::spawn(visit_leases(slots, client)));
            tasks.push(tokio::spawn(probe_decisions(prober)));
        }
        Self(Arc::new(Mutex::new(tasks)))
    }

    /// Ends the tasks. Returns false if they were ended before.
    pub(super) fn stop(&self) -> bool {
        let tasks = std::mem::take(&mut *self.0.lock());
        tasks.iter().for_each(JoinHandle::abort);
        !tasks.is_empty()
    }
}

/// Reports uses that were admitted offline, for as long as the process runs. A use wins over a sweep that disabled its
/// key as unused before it was reported: the key is enabled again.
async fn report_uses(decider: Decider, transactions: Transactions) {
    let mut used = Vec::new();
    loop {
        used.extend(decider.flush_unreported().await);
        for key in std::mem::take(&mut used) {
            let enabled = Some(transactions.now());
            let patch = PolicyPatch { disabled: Field::Clear, enabled, ..PolicyPatch::default() };
            let enable = Change::set_key_policy(key, Box::new(patch), PolicyScope::Used);
            match Changes(&transactions).change(enable).await {
                Ok(()) => tracing::info!(%key, "a key that was disabled as unused had been used, and is enabled"),
                Err(ChangeError::NoKey(_) | ChangeError::Revoked(_)) => {}
                Err(error) => {
                    tracing::debug!(%key, %error, "a key that had been used cannot be enabled; trying again");
                    used.push(key);
                }
            }
        }
        sleep(REPORT_INTERVAL).await;
    }
}

/// Reports everything and deregisters this gateway, over new links: those of the threads have ended with them.
pub(super) async fn deregister(slots: &SlotLeases, decider: &Decider, client_shared: &Arc<ClientShared>) {
    let client = RedisClient::start(client_shared);
    let decider = decider.with_client(client.clone());
    let deregister = async {
        let connected = match timeout(CONNECT_TIMEOUT, client.wait_connected()).await {
            Ok(connected) => connected,
            Err(_) if client.is_up() => {
                tracing::warn!("some nodes of Redis do not answer; slots there are released when the lease expires");
                Ok(())
            }
            // No node is connected yet: there is nothing to report to before one is.
            Err(_) => client.wait_connected().await,
        };
        if connected.is_err() {
            return;
        }
        // Side by side: a node of a Cluster that does not answer delays its own reports only.
        let (_, result) = tokio::join!(decider.flush_unreported(), slots.deregister(&client));
        if let Err(error) = result {
            tracing::debug!(%error, "cannot deregister from Redis; the registration expires with the lease");
        }
    };
    if timeout(DEREGISTER_TIMEOUT, deregister).await.is_err() {
        tracing::warn!("timed out deregistering from Redis; slots are released when the lease expires");
    }
}
