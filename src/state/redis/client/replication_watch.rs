//! Replicas of the primaries, and how far they are behind: looked at in the background, for the metrics.
//!
//! - One look asks each server that a link of this process leads to, in one small command each.
//! - While no primary answers, nothing is known.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use super::last_replication::ReplicationStatus;
use super::server::Server;
use super::server_info::Replication;
use super::shared::ClientShared;

/// Interval of looks: shorter than that of scrapes, at the cost of one command.
const INTERVAL: Duration = Duration::from_secs(5);
/// Interval until the first server has answered.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// Looks again and again, for as long as the task lives.
pub(crate) async fn watch_replication(client: Arc<ClientShared>) {
    loop {
        let servers = client.live_links().servers();
        let look = |run_id| {
            let server = Server::new(run_id, Arc::clone(&client));
            async move { server.status().await.ok().map(|status| status.replication) }
        };
        let found: Vec<Replication> = join_all(servers.into_iter().map(look)).await.into_iter().flatten().collect();
        let status = summarize(&found);
        client.last_replication.set(status);
        sleep(if status.is_some() { INTERVAL } else { FIRST_INTERVAL }).await;
    }
}

/// The fewest replicas, and the largest lag, of all primaries.
fn summarize(servers: &[Replication]) -> Option<ReplicationStatus> {
    let primaries = || servers.iter().filter(|server| server.is_primary);
    // A replica that has confirmed nothing is not in step: it still loads.
    let in_step = |primary: &Replication| primary.replicas.iter().filter(|offset| **offset > 0).count() as u64;
    let lag = |primary: &Replication| {
        let slowest = primary.replicas.iter().filter(|offset| **offset > 0).min();
        slowest.map_or(0, |offset| primary.offset.saturating_sub(*offset))
    };
    let replicas = primaries().map(in_step).min()?;
    Some(ReplicationStatus { replicas, lag_bytes: primaries().map(lag).max().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(offset: u64, replicas: &[u64]) -> Replication {
        Replication { is_primary: true, offset, replicas: replicas.to_vec(), ..Default::default() }
    }

    #[test]
    fn fewest_replicas_and_largest_lag_count() {
        let status = |servers: &[Replication]| summarize(servers).map(|status| (status.replicas, status.lag_bytes));
        assert_eq!(status(&[]), None);
        assert_eq!(status(&[Replication { is_primary: false, ..primary(9, &[9]) }]), None, "a replica says nothing");
        assert_eq!(status(&[primary(100, &[])]), Some((0, 0)));
        assert_eq!(status(&[primary(100, &[90, 100, 0])]), Some((2, 10)), "one is not in step yet");
        assert_eq!(status(&[primary(100, &[100, 100]), primary(50, &[20])]), Some((1, 30)));
    }
}
