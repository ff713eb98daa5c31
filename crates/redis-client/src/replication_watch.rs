//! Replicas of the primaries, how far they are behind, and the eviction policy, which an operator may change at any
//! time: looked at in the background, for the metrics and the log.
//!
//! - One look asks each server that a link of this process leads to, in two small commands each.
//! - While no primary answers, nothing is known.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::server::Server;
use super::server_info::{Replication, Unsuitable};
use super::shared::ClientShared;

/// Interval of looks: shorter than that of scrapes, at the cost of one command.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval until the first server has answered.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Replicas and eviction of the primaries, at the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicationStatus {
    /// Replicas in step, of the primary that has the fewest.
    pub replicas: u64,
    /// Bytes that a replica in step has not confirmed yet, of the one that is farthest behind.
    pub lag_bytes: u64,
    /// True when a primary may evict records.
    pub evicts: bool,
}

/// Looks again and again, for as long as the task lives.
pub async fn watch_replication(client: Arc<ClientShared>) {
    let mut evicting = HashSet::new();
    loop {
        let looks = client.live_links().servers().into_iter().map(|run_id| look(run_id, &client));
        let found: Vec<Look> = join_all(looks).await.into_iter().flatten().collect();
        found.iter().for_each(|look| note_eviction(look, &mut evicting));
        // A replica evicts nothing by itself: its primary sends it what was evicted.
        let evicts = found.iter().any(|look| look.replication.is_primary && look.eviction.is_some());
        let replications: Vec<Replication> = found.into_iter().map(|look| look.replication).collect();
        let status = summarize(&replications, evicts);
        *client.last_replication.lock() = status;
        sleep(if status.is_some() { INTERVAL } else { FIRST_INTERVAL }).await;
    }
}

/// One server at a look.
struct Look {
    run_id: Arc<str>,
    /// Its address, for the log.
    server: String,
    replication: Replication,
    /// Present when it may evict records.
    eviction: Option<Unsuitable>,
}

/// Looks at one server; none when it does not answer.
async fn look(run_id: Arc<str>, client: &Arc<ClientShared>) -> Option<Look> {
    let server = Server::new(Arc::clone(&run_id), Arc::clone(client));
    let status = server.status().await.ok()?;
    let eviction = server.check_eviction().await.ok()?;
    Some(Look { run_id, server: server.to_string(), replication: status.replication, eviction: eviction.err() })
}

/// Logs once that a server began to evict records, and once that it ended. `evicting` has the servers that do.
fn note_eviction(look: &Look, evicting: &mut HashSet<Arc<str>>) {
    match &look.eviction {
        Some(error) if look.replication.is_primary => {
            if evicting.insert(Arc::clone(&look.run_id)) {
                tracing::error!(server = look.server, %error, "the eviction policy of Redis was changed");
            }
        }
        _ => {
            if evicting.remove(&look.run_id) {
                tracing::info!(server = look.server, "Redis evicts no records any more");
            }
        }
    }
}

/// The fewest replicas, and the largest lag, of all primaries.
fn summarize(servers: &[Replication], evicts: bool) -> Option<ReplicationStatus> {
    let primaries = || servers.iter().filter(|server| server.is_primary);
    // A replica that has confirmed nothing is not in step: it still loads.
    let in_step = |primary: &Replication| primary.replicas.iter().filter(|offset| **offset > 0).count() as u64;
    let lag = |primary: &Replication| {
        let slowest = primary.replicas.iter().filter(|offset| **offset > 0).min();
        slowest.map_or(0, |offset| primary.offset.saturating_sub(*offset))
    };
    let replicas = primaries().map(in_step).min()?;
    Some(ReplicationStatus { replicas, lag_bytes: primaries().map(lag).max().unwrap_or(0), evicts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(offset: u64, replicas: &[u64]) -> Replication {
        Replication { is_primary: true, offset, replicas: replicas.to_vec(), ..Default::default() }
    }

    #[test]
    fn fewest_replicas_and_largest_lag_count() {
        let status =
            |servers: &[Replication]| summarize(servers, false).map(|status| (status.replicas, status.lag_bytes));
        assert_eq!(status(&[]), None);
        assert_eq!(status(&[Replication { is_primary: false, ..primary(9, &[9]) }]), None, "a replica says nothing");
        assert_eq!(status(&[primary(100, &[])]), Some((0, 0)));
        assert_eq!(status(&[primary(100, &[90, 100, 0])]), Some((2, 10)), "one is not in step yet");
        assert_eq!(status(&[primary(100, &[100, 100]), primary(50, &[20])]), Some((1, 30)));
    }
}
