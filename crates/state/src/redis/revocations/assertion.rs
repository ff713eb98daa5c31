//! Assertion of the kept revocations on one server process: a task, for as long as a link of this process leads there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{FromRedisValue as _, RedisError};
use tokio::time::sleep;

use super::batches::{RoundTrip, round_trips};
use super::kept::{Kept, KeptRevocations, LackingServer};
use crate::redis::record_codec::new_version;
use crate::redis::scripts::Scripts;
use redis_client::{ClientShared, CommandError, PackedCommand, Replication, Server, is_no_script};

/// Interval of asking a server for its replication history: a promotion is noticed soon, at the cost of two small
/// commands.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// First pause after a server refused a revocation or did not answer. It doubles up to the pause between two looks.
pub const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// Interval of looking for revocations that can be forgotten: short beside the time for which they are kept.
const FORGET_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a reason to look: reasons come in bursts, and one look serves them all.
pub const GATHER: Duration = Duration::from_millis(10);

/// Revocations could not be written.
#[derive(Debug, thiserror::Error)]
enum AssertError {
    /// The server does not answer as it should.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The server refused some or all of them.
    #[error("the Redis server refused revocations")]
    Refused(#[source] RedisError),
    /// The operating system gives no randomness, so there is no version for the records.
    #[error("the operating system gives no randomness")]
    Randomness(#[from] getrandom::Error),
}

/// The task for one server process.
pub(super) struct Assertion {
    kept: Arc<KeptRevocations>,
    scripts: Arc<Scripts>,
    client: Arc<ClientShared>,
    server: Server,
    /// The server when it was last looked at.
    last: Replication,
    /// The largest number of replicas that it had in its present history.
    most_replicas: usize,
    /// Failures in a row.
    failures: u32,
    /// Present while there are failures.
    lacking: Option<LackingServer>,
    /// When it was last looked for revocations to forget.
    forgot: Instant,
}

impl Assertion {
    pub(super) fn new(
        kept: Arc<KeptRevocations>,
        scripts: Arc<Scripts>,
        client: Arc<ClientShared>,
        run_id: Arc<str>,
    ) -> Self {
        let server = Server::new(run_id, Arc::clone(&client));
        Self {
            kept,
            scripts,
            client,
            server,
            last: Replication::default(),
            most_replicas: 0,
            failures: 0,
            lacking: None,
            forgot: Instant::now(),
        }
    }

    /// Looks at the server again and again, and writes what it lacks.
    pub(super) async fn run(mut self) {
        let mut added = self.kept.subscribe();
        let mut topology = self.client.subscribe_topology();
        loop {
            added.mark_unchanged();
            topology.mark_unchanged();
            // Without an entry there is nothing to look for.
            let pause = if self.kept.is_empty() { None } else { Some(self.look().await) };
            // A new entry, a change of any link, and the end of the pause are reasons to look again. The senders live
            // as long as this task.
            tokio::select! {
                _ = added.changed() => sleep(GATHER).await,
                _ = topology.changed() => sleep(GATHER).await,
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// Looks once. Returns the pause until the next look.
    async fn look(&mut self) -> Duration {
        match self.assert_missing().await {
            Ok(lost) => {
                if lost > 0 {
                    tracing::warn!(
                        server = %self.server,
                        "Redis had lost {lost} revocations in a failover or restart; they are in force again"
                    );
                }
                (self.failures, self.lacking) = (0, None);
                LOOK_INTERVAL
            }
            Err(error) => {
                if self.failures == 0 {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(
                        server = %self.server,
                        %error,
                        cause,
                        "cannot confirm that Redis has the latest revocations; this gateway obeys them, and tries again"
                    );
                }
                let pause = RETRY_PAUSE.saturating_mul(1 << self.failures.min(8));
                self.failures += 1;
                self.lacking.get_or_insert_with(|| LackingServer::new(&self.kept));
                pause.min(LOOK_INTERVAL)
            }
        }
    }

    /// Writes what the server lacks. Returns how many records had been without their revocation.
    async fn assert_missing(&mut self) -> Result<u64, AssertError> {
        let status = self.server.status().await?;
        self.note(&status.replication);
        // A replica gets its data from its primary. It is looked at again, because it may be promoted.
        if !status.replication.is_primary {
            return Ok(0);
        }
        let missing = self.kept.unconfirmed(&status.replication.history, |slot| status.serves(slot));
        let mut lost = 0;
        let mut refused = None;
        for round_trip in round_trips(&missing, status.is_single()) {
            match self.write(&round_trip).await {
                Ok(changed) => lost += changed,
                // The others may be accepted: a server can refuse some hash slots only.
                Err(AssertError::Refused(error)) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = refused {
            return Err(AssertError::Refused(error));
        }
        if self.forgot.elapsed() >= FORGET_INTERVAL {
            self.forgot = Instant::now();
            self.kept.forget_safe(&status.replication, self.most_replicas, |slot| status.serves(slot));
        }
        Ok(lost)
    }

    /// Notes the state of the server, and has all clients look at the Cluster anew when the server was promoted or
    /// demoted: an idle link would not notice.
    fn note(&mut self, replication: &Replication) {
        if self.last.history != replication.history {
            self.most_replicas = 0;
        }
        self.most_replicas = self.most_replicas.max(replication.replicas.len());
        let last = std::mem::replace(&mut self.last, replication.clone());
        let is_first = last.history.is_empty();
        if !is_first && (last.history != replication.history || last.is_primary != replication.is_primary) {
            self.client.topology_changed();
        }
    }

    /// Writes the revocations of one round trip, and notes those that the server confirmed.
    async fn write(&self, round_trip: &RoundTrip<'_>) -> Result<u64, AssertError> {
        let commands = round_trip.iter().map(|script| self.command(script)).collect::<Result<Vec<_>, _>>()?;
        let (mut replies, mut replication) = self.server.run_all(commands.clone()).await?;
        if replies.iter().any(|reply| reply.as_ref().is_err_and(is_no_script)) {
            let load = self.scripts.assert_revocations.load();
            (replies, replication) = self.server.run_all(std::iter::once(load).chain(commands)).await?;
            drop(replies.remove(0));
        }
        let mut changed = 0;
        let mut refused = None;
        for (script, reply) in round_trip.iter().zip(replies) {
            match reply {
                Ok(count) => {
                    self.kept.confirm(script, &replication);
                    changed += u64::from_redis_value(count).map_err(|_| CommandError::UnexpectedReply)?;
                }
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(changed), |error| Err(AssertError::Refused(error)))
    }

    /// The call of the script that writes these revocations.
    fn command(&self, script: &[Kept]) -> Result<PackedCommand, getrandom::Error> {
        let writes = self.kept.writes(script);
        let version = new_version()?;
        let keys: Vec<&[u8]> = writes.iter().map(|(record, _)| record.as_bytes()).collect();
        let arguments = std::iter::once(version.as_bytes()).chain(writes.iter().map(|(_, write)| write.as_bytes()));
        Ok(self.scripts.assert_revocations.by_digest(&keys, &arguments.collect::<Vec<_>>()))
    }
}
