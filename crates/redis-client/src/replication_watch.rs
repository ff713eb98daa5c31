//! Replicas of the primaries, how far they are behind, their clocks, and the eviction policy, which an operator may
//! change at any time: looked at in the background, for the metrics, the log, and what goes by the clock of the
//! servers.
//!
//! - One look asks each server that a link of this process leads to, in two small commands each.
//! - While no primary answers, nothing is known.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::server::Server;
use super::server_info::{Replication, ReplicationStatus, Unsuitable};
use super::shared::ClientShared;

/// Interval of looks: shorter than that of scrapes, at the cost of one command.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval until the first server has answered.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Looks again and again, for as long as the task lives.
pub async fn watch_replication(client: Arc<ClientShared>) {
    let mut evicting = HashSet::new();
    loop {
        let looks = client.live_links().servers().into_iter().map(|run_id| look(run_id, &client));
        let found: Vec<Look> = join_all(looks).await.into_iter().flatten().collect();
        found.iter().for_each(|look| note_eviction(look, &mut evicting));
        // A replica evicts nothing by itself: its primary sends it what was evicted.
        let evicts = found.iter().any(|look| look.replication.is_primary && look.eviction.is_some());
        let primaries = found.iter().filter(|look| look.replication.is_primary);
        let clocks: Vec<i64> = primaries.map(|look| look.clock_ahead).collect();
        let replications: Vec<Replication> = found.into_iter().map(|look| look.replication).collect();
        let status = summarize(&replications, evicts, &clocks);
        let last = std::mem::replace(&mut *client.last_replication.lock(), status);
        note_clocks(last, status);
        if let Some(ahead) = median(clocks) {
            client.clock_ahead.store(ahead, Ordering::Relaxed);
        }
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
    clock_ahead: i64,
}

/// Looks at one server; none when it does not answer.
async fn look(run_id: Arc<str>, client: &Arc<ClientShared>) -> Option<Look> {
    let server = Server::new(Arc::clone(&run_id), Arc::clone(client));
    let status = server.status().await.ok()?;
    let (eviction, clock_ahead) = server.check_settings().await.ok()?;
    let eviction = eviction.err();
    Some(Look { run_id, server: server.to_string(), replication: status.replication, eviction, clock_ahead })
}

/// Logs once that the clocks do not agree, and once that they do again.
#[allow(clippy::cast_precision_loss, reason = "a number for people")]
fn note_clocks(last: Option<ReplicationStatus>, status: Option<ReplicationStatus>) {
    let Some(status) = status else { return };
    let agreed = last.is_none_or(|last| last.clocks_agree());
    let seconds = status.clock_ahead as f64 / 1e6;
    let agree = status.clocks_agree();
    if agreed && !agree {
        tracing::error!(
            seconds,
            "the clock of Redis is ahead of this machine's by these seconds, more than a minute; synchronize both by \
             NTP. Requests are decided by the clock of Redis. This gateway disables no unused keys meanwhile"
        );
    } else if agree && !agreed {
        tracing::info!(seconds, "the clocks of Redis and of this machine agree again");
    }
}

/// The median; none of nothing.
fn median(mut clocks: Vec<i64>) -> Option<i64> {
    clocks.sort_unstable();
    clocks.get(clocks.len() / 2).copied()
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

/// The fewest replicas, the largest lag, and the largest difference of clocks, of all primaries.
fn summarize(servers: &[Replication], evicts: bool, clocks: &[i64]) -> Option<ReplicationStatus> {
    let primaries = || servers.iter().filter(|server| server.is_primary);
    // A replica that has confirmed nothing is not in step: it still loads.
    let in_step = |primary: &Replication| primary.replicas.iter().filter(|offset| **offset > 0).count() as u64;
    let lag = |primary: &Replication| {
        let slowest = primary.replicas.iter().filter(|offset| **offset > 0).min();
        slowest.map_or(0, |offset| primary.offset.saturating_sub(*offset))
    };
    let replicas = primaries().map(in_step).min()?;
    let lag_bytes = primaries().map(lag).max().unwrap_or(0);
    let clock_ahead = clocks.iter().copied().max_by_key(|ahead| ahead.unsigned_abs()).unwrap_or(0);
    Some(ReplicationStatus { replicas, lag_bytes, evicts, clock_ahead })
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
            |servers: &[Replication]| summarize(servers, false, &[]).map(|status| (status.replicas, status.lag_bytes));
        assert_eq!(status(&[]), None);
        assert_eq!(status(&[Replication { is_primary: false, ..primary(9, &[9]) }]), None, "a replica says nothing");
        assert_eq!(status(&[primary(100, &[])]), Some((0, 0)));
        assert_eq!(status(&[primary(100, &[90, 100, 0])]), Some((2, 10)), "one is not in step yet");
        assert_eq!(status(&[primary(100, &[100, 100]), primary(50, &[20])]), Some((1, 30)));
    }

    #[test]
    fn clock_that_differs_most_counts_and_the_median_is_gone_by() {
        let worst = |clocks: &[i64]| summarize(&[primary(1, &[])], false, clocks).unwrap();
        assert!(worst(&[]).clocks_agree() && worst(&[-60_000_000, 3]).clocks_agree());
        assert!(!worst(&[3, -60_000_001, 60_000_000]).clocks_agree());
        assert_eq!(median(vec![9_000_000_000, -3, 5]), Some(5), "one server of three is wrong");
        assert_eq!(median(Vec::new()), None);
    }
}
