//! The task that keeps the slot map of a Cluster current.
//!
//! It refreshes the map after a `MOVED` or `CLUSTERDOWN`, after a link went up or down, and at an interval.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::link_pool::LinkPool;
use super::reconnect::jittered;
use super::shared::ClientShared;

/// Interval of refreshes while the map is complete.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval while the map is incomplete: the end of a failover is noticed soon.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Refreshes the slot map for as long as the pool lives.
pub(super) async fn follow_topology(pool: Weak<LinkPool>, shared: Arc<ClientShared>) {
    let mut changes = shared.topology.subscribe();
    loop {
        let interval = match pool.upgrade() {
            None => return,
            // Without a Cluster there is no map to refresh, until a server reports to be a node of one.
            Some(_) if !shared.is_cluster() => None,
            Some(pool) => {
                pool.refresh_slots().await;
                Some(if pool.slots.load().is_complete() { REFRESH_INTERVAL } else { RETRY_INTERVAL })
            }
        };
        // Both a change and the end of the interval are reasons to refresh. The sender lives as long as `shared`.
        match interval {
            None => drop(changes.changed().await),
            Some(interval) => {
                let _ = timeout(jittered(interval), changes.changed()).await;
                // Changes come in bursts; one refresh serves them all.
                sleep(RETRY_INTERVAL / 4).await;
            }
        }
    }
}
