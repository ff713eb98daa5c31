//! Reader of the revocation log that all gateways share: one task for each process, which appends what it finds to the
//! log of the process, where all workers read it.
//!
//! # Guarantee
//!
//! No entry is missed. The reader reads on from the last entry that it has, and asks for that entry once more: only
//! when it is still there, with the same content, do the entries behind it follow without a gap. Otherwise (the log was
//! trimmed, a failover lost its end, the server was emptied) every open exchange is checked against the directory, and
//! the reader goes on from the end of the log. The same is done
//!
//! - at the start,
//! - when another server or another history of a server is seen, at once and again while the gateways write their
//!   revocations to it: a new primary may have admitted a key that is revoked,
//! - each minute, for changes whose gateway died before it could append the entry, and which it did not acknowledge.
//!
//! The [`LogFollower`] decides what is read, and what a reply means. While Redis is away nothing is read, and
//! open exchanges go on; the reader reads on as soon as Redis is back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::cmd;
use tokio::time::sleep;

use super::log_follower::LogFollower;
use super::record_names::RecordNames;
use super::revocations::KeptRevocations;
use crate::RevocationLog;
use domain::clock;
use redis_client::{CommandError, RedisClient};

/// Interval of reading: several readings fit into the second in which an exchange must have ended.
pub const INTERVAL: Duration = Duration::from_millis(150);

/// Reader of the shared log, for one process.
pub(super) struct RevocationReader {
    client: RedisClient,
    /// Name of the record of the shared log.
    name: String,
    follower: LogFollower,
}

impl RevocationReader {
    pub(super) fn new(
        client: RedisClient,
        names: &RecordNames,
        log: Arc<RevocationLog>,
        kept: Arc<KeptRevocations>,
    ) -> Self {
        let failovers = Arc::clone(client.shared().failovers());
        let follower = LogFollower::new(log, kept, failovers, Instant::now());
        Self { client, name: names.revocations(), follower }
    }

    /// Reads for as long as the task lives.
    pub(super) async fn run(mut self) {
        loop {
            if let Err(error) = self.read_on().await {
                tracing::debug!(%error, "cannot read the log of revocations; open exchanges go on until it can be \
                                         read");
            }
            self.follower.request_due_checks(Instant::now());
            sleep(INTERVAL).await;
        }
    }

    /// Reads all entries behind the last one that was read.
    async fn read_on(&mut self) -> Result<(), CommandError> {
        let mut next = Some(self.follower.begin());
        while let Some(read) = next {
            let values = self.client.query(cmd("HMGET").arg(&self.name).arg(read.fields())).await?;
            next = self.follower.after(read, values, clock::now());
        }
        Ok(())
    }
}
