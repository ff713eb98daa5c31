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
//! While Redis is away nothing is read, and open exchanges go on; the reader reads on as soon as Redis is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::cmd;
use tokio::time::sleep;

use super::directory::{decode_final_refusal, decode_revocation};
use super::record_names::RecordNames;
use super::revocations::KeptRevocations;
use crate::{RevocationEntry, RevocationLog};
use domain::clock;
use redis_client::{CommandError, RedisClient};

/// Interval of reading: several readings fit into the second in which an exchange must have ended.
const INTERVAL: Duration = Duration::from_millis(150);
/// Entries that are read at a time.
const BATCH: u64 = 500;
/// Interval of checking every open exchange.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Times after a failover at which every open exchange is checked: at once, when every gateway should have written its
/// revocations to the new primary, and when the slowest has.
const CHECKS_AFTER_FAILOVER: [Duration; 3] = [Duration::ZERO, Duration::from_secs(3), Duration::from_secs(15)];

/// Reader of the shared log, for one process.
pub(super) struct RevocationReader {
    client: RedisClient,
    /// Name of the record of the shared log.
    name: String,
    log: Arc<RevocationLog>,
    /// Final refusals, kept so that this gateway obeys and asserts those of others, too.
    kept: Arc<KeptRevocations>,
    /// Counter of the failovers that all clients have seen.
    failovers: Arc<AtomicU64>,
    failovers_seen: u64,
    /// The last entry that was read; none before the first reading.
    position: Option<Position>,
    /// Times at which every open exchange is to be checked.
    checks_due: Vec<Instant>,
}

/// A place in the shared log: the number of an entry, and its content. Number 0 is the beginning, which has none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    number: u64,
    content: Option<Vec<u8>>,
}

impl RevocationReader {
    pub(super) fn new(
        client: RedisClient,
        names: &RecordNames,
        log: Arc<RevocationLog>,
        kept: Arc<KeptRevocations>,
    ) -> Self {
        let failovers = Arc::clone(client.shared().failovers());
        let failovers_seen = failovers.load(Ordering::Acquire);
        let checks_due = vec![Instant::now() + CHECK_INTERVAL];
        Self { client, name: names.revocations(), log, kept, failovers, failovers_seen, position: None, checks_due }
    }

    /// Reads for as long as the task lives.
    pub(super) async fn run(mut self) {
        loop {
            if let Err(error) = self.read_on().await {
                tracing::debug!(%error, "cannot read the log of revocations; open exchanges go on until it can be \
                                         read");
            }
            self.request_due_checks();
            sleep(INTERVAL).await;
        }
    }

    /// Reads all entries behind the position, and appends them to the log of the process.
    async fn read_on(&mut self) -> Result<(), CommandError> {
        loop {
            let (last, found) = self.read_state().await?;
            let Some(position) = &self.position else { return self.skip_to_end().await };
            if found != position.content || last < position.number {
                tracing::warn!("the log of revocations has a gap or another history: checking every open exchange");
                return self.skip_to_end().await;
            }
            if last == position.number {
                return Ok(());
            }
            let end = last.min(position.number + BATCH);
            self.read_entries(end).await?;
        }
    }

    /// The number of the last entry, and the content of the one at the position.
    async fn read_state(&self) -> Result<(u64, Option<Vec<u8>>), CommandError> {
        let number = self.position.as_ref().map_or(0, |position| position.number);
        let (last, content): (Option<u64>, Option<Vec<u8>>) =
            self.client.query(cmd("HMGET").arg(&self.name).arg("last").arg(number)).await?;
        Ok((last.unwrap_or(0), content))
    }

    /// Reads the entries up to this number, after the one at the position.
    async fn read_entries(&mut self, end: u64) -> Result<(), CommandError> {
        let Some(position) = self.position.clone() else { return Ok(()) };
        let mut query = cmd("HMGET");
        query.arg(&self.name);
        for number in position.number..=end {
            query.arg(number);
        }
        let contents: Vec<Option<Vec<u8>>> = self.client.query(&query).await?;
        let mut contents = contents.into_iter();
        // The history may have changed between the two commands.
        if contents.next() != Some(position.content) {
            return self.skip_to_end().await;
        }
        for content in contents {
            let revocation = content.as_deref().and_then(|text| decode_final_refusal(text, clock::now()));
            revocation.into_iter().for_each(|revocation| self.kept.add(revocation));
            let entry = content.as_deref().map_or(RevocationEntry::Gap, decode_revocation);
            let number = self.position.as_ref().map_or(0, |position| position.number) + 1;
            self.position = Some(Position { number, content });
            self.log.append(entry);
        }
        Ok(())
    }

    /// Goes on from the end of the log, whatever is before it, and has every open exchange checked.
    async fn skip_to_end(&mut self) -> Result<(), CommandError> {
        self.position = None;
        let (number, _) = self.read_state().await?;
        self.position = Some(Position { number, content: None });
        let (_, content) = self.read_state().await?;
        self.position = Some(Position { number, content });
        // After the position: what is revoked from now on has an entry behind it, and what was before is found by the
        // check.
        self.log.append(RevocationEntry::Gap);
        Ok(())
    }

    /// Has every open exchange checked when it is time to.
    fn request_due_checks(&mut self) {
        let now = Instant::now();
        let failovers = self.failovers.load(Ordering::Acquire);
        if std::mem::replace(&mut self.failovers_seen, failovers) != failovers {
            self.checks_due.extend(CHECKS_AFTER_FAILOVER.map(|after| now + after));
        }
        let before = self.checks_due.len();
        self.checks_due.retain(|due| *due > now);
        if self.checks_due.len() < before {
            self.log.append(RevocationEntry::Gap);
        }
        if self.checks_due.is_empty() {
            self.checks_due.push(now + CHECK_INTERVAL);
        }
    }
}
