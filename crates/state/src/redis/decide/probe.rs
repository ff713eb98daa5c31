//! Probe: asks each server for a decision that admits nothing, again and again, so that the health of the decisions is
//! known without requests.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::decide_codec::encode_read;
use super::decider::Decider;
use redis_client::Fault;

/// Time to connect, before the first round.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same while a server fails: its end is noticed soon, and so is a second failure, from which on it counts.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Probes all servers for as long as the task lives.
pub(crate) async fn probe_decisions(decider: Decider) {
    // At the start nothing is connected yet, which says nothing of the servers.
    let _ = timeout(CONNECT_TIMEOUT, decider.client.wait_connected()).await;
    loop {
        let round = probe_servers(&decider).await;
        let is_well = round.iter().all(Option::is_none);
        decider.shared.health.note_round(round);
        sleep(if is_well { INTERVAL } else { RETRY_INTERVAL }).await;
    }
}

/// The faults of all servers. Hash slots that no node of a Cluster serves count as one more.
async fn probe_servers(decider: &Decider) -> Vec<Option<Fault>> {
    let (tags, is_complete) = decider.client.hash_tags();
    let mut faults = join_all(tags.iter().map(|(slot, tag)| probe_server(decider, *slot, tag))).await;
    if !is_complete {
        faults.push(Some(Fault::ClusterDown));
    }
    faults
}

async fn probe_server(Decider { shared, client }: &Decider, slot: u16, tag: &str) -> Option<Fault> {
    let [key, org] = shared.names.of_no_key(tag);
    let request = encode_read();
    let arguments: [&[u8]; 2] = [&shared.slots.gateway_id, &request];
    let keys = [key.as_bytes(), org.as_bytes()];
    let asked = client.run(slot, &shared.scripts.decide, &keys, &arguments);
    match timeout(shared.settings.deadline, asked).await {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(client.fault(Some(slot), &error)),
        Err(_) => Some(Fault::Late),
    }
}
