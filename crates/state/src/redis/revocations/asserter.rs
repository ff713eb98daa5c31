//! The task of the process that has one task assert revocations on each server that a link leads to.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{AbortHandle, JoinSet};

use super::assertion::Assertion;
use super::kept::KeptRevocations;
use crate::redis::scripts::Scripts;
use redis_client::ClientShared;

/// Asserts the kept revocations for as long as the task lives.
pub(crate) async fn assert_revocations(kept: Arc<KeptRevocations>, scripts: Arc<Scripts>, client: Arc<ClientShared>) {
    let links = Arc::clone(client.live_links());
    let mut changes = links.subscribe();
    // The tasks end with this one.
    let mut tasks = JoinSet::new();
    let mut running: HashMap<Arc<str>, AbortHandle> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let servers = links.servers();
        running.retain(|server, task| {
            let stays = servers.contains(server) && !task.is_finished();
            if !stays {
                task.abort();
            }
            stays
        });
        while tasks.try_join_next().is_some() {}
        for server in servers {
            running.entry(server).or_insert_with_key(|run_id| {
                let kept = Arc::clone(&kept);
                let scripts = Arc::clone(&scripts);
                let client = Arc::clone(&client);
                tasks.spawn(Assertion::new(kept, scripts, client, Arc::clone(run_id)).run())
            });
        }
        // The sender lives as long as `links`.
        let _ = changes.changed().await;
    }
}
