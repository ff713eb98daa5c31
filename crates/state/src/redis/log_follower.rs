//! Follower of the shared revocation log, without I/O: what is read next, and what a reply means.
//!
//! | place | is read | reply | then |
//! |---|---|---|---|
//! | an entry | the last number, and this entry | it is there, and the last one | the end is reached |
//! | | | it is there, others follow | these are read, with this entry once more |
//! | | | it is gone, or another one | the place is unknown |
//! | | the entries that follow | this entry is there | they are appended, and the place is the last of them |
//! | | | it is gone, or another one | the place is unknown |
//! | unknown | the last number | | the place is the end |
//! | the end | the last number, and the entry there | | a gap is appended, and the place is this entry |
//!
//! The `RevocationReader` performs the readings with a client, the simulation of many gateways on servers in virtual
//! time. The guarantee is in the documentation of the reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::directory::{decode_revocation, keep_revocation};
use super::revocations::KeptRevocations;
use crate::{RevocationEntry, RevocationLog};
use domain::clock::Micros;

/// Entries that are read at a time.
const BATCH: u64 = 500;
/// Interval of checking every open exchange.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Times after a failover at which every open exchange is checked: at once, when every gateway should have written its
/// revocations to the new primary, and when the slowest has.
const CHECKS_AFTER_FAILOVER: [Duration; 3] = [Duration::ZERO, Duration::from_secs(3), Duration::from_secs(15)];

/// Follower of the shared log, for one process. It belongs to the task that reads the log. Dropped, it loses nothing: a
/// new one begins at the end of the log, and has every open exchange checked.
pub struct LogFollower {
    /// Log of the process, to which it appends; read by all workers.
    log: Arc<RevocationLog>,
    /// Final refusals, kept so that this gateway obeys and asserts those of others, too.
    kept: Arc<KeptRevocations>,
    /// Counter of the failovers that all clients have seen.
    failovers: Arc<AtomicU64>,
    /// Number of those after which it has planned checks.
    failovers_seen: u64,
    /// Place up to which it has read. It goes back to unknown when the log is not the one that was read.
    place: Place,
    /// Times at which every open exchange is to be checked.
    checks_due: Vec<Instant>,
}

/// All that its next step depends on.
impl std::fmt::Debug for LogFollower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seen = (self.failovers_seen, *self.log.subscribe().borrow());
        f.debug_tuple("LogFollower").field(&self.place).field(&seen).field(&self.checks_due).finish()
    }
}

/// A place in the shared log. The number 0 is the beginning, which has no content.
#[derive(Debug)]
enum Place {
    Unknown,
    /// The end, when its number was read; its content is not known yet.
    End(u64),
    /// The last entry that was read: its number and its content.
    Entry(u64, Option<Vec<u8>>),
}

/// A reading of fields of the log's record.
#[derive(Clone, Copy, Debug)]
pub enum LogRead {
    /// The number of the last entry, and the content of the entry with this number.
    State(u64),
    /// The entries from one number to another.
    Entries(u64, u64),
}

impl LogRead {
    /// The names of the fields.
    pub fn fields(self) -> Vec<String> {
        match self {
            Self::State(number) => vec!["last".to_owned(), number.to_string()],
            Self::Entries(first, last) => (first..=last).map(|number| number.to_string()).collect(),
        }
    }
}

impl LogFollower {
    /// A follower that begins at the end of the shared log, and appends to the log of the process.
    pub fn new(log: Arc<RevocationLog>, kept: Arc<KeptRevocations>, failovers: Arc<AtomicU64>, now: Instant) -> Self {
        let failovers_seen = failovers.load(Ordering::Acquire);
        Self { log, kept, failovers, failovers_seen, place: Place::Unknown, checks_due: vec![now + CHECK_INTERVAL] }
    }

    /// The first reading of a round.
    pub fn begin(&mut self) -> LogRead {
        if let Place::Entry(number, _) = self.place {
            return LogRead::State(number);
        }
        self.place = Place::Unknown;
        LogRead::State(0)
    }

    /// Applies the values of a reading. Returns the next one; `None` when the end is reached.
    pub fn after(&mut self, read: LogRead, values: Vec<Option<Vec<u8>>>, now: Micros) -> Option<LogRead> {
        let mut values = values.into_iter();
        let first = values.next().flatten();
        if let LogRead::Entries(..) = read {
            return self.after_entries(first, values, now);
        }
        let last = first.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()).unwrap_or(0);
        self.after_state(last, values.next().flatten())
    }

    fn after_state(&mut self, last: u64, found: Option<Vec<u8>>) -> Option<LogRead> {
        match &self.place {
            Place::Unknown => {
                self.place = Place::End(last);
                Some(LogRead::State(last))
            }
            Place::End(number) => {
                self.place = Place::Entry(*number, found);
                // After the place: what is revoked from now on has an entry behind it, and what was before is found by
                // the check.
                self.log.append(RevocationEntry::Gap);
                None
            }
            Place::Entry(number, content) if found != *content || last < *number => {
                tracing::warn!("the log of revocations has a gap or another history: checking every open exchange");
                self.begin_anew()
            }
            Place::Entry(number, _) if last == *number => None,
            Place::Entry(number, _) => Some(LogRead::Entries(*number, last.min(number + BATCH))),
        }
    }

    /// Appends the entries that follow, if the first one is still that at the place.
    fn after_entries(
        &mut self,
        first: Option<Vec<u8>>,
        following: impl Iterator<Item = Option<Vec<u8>>>,
        now: Micros,
    ) -> Option<LogRead> {
        let Place::Entry(number, content) = &mut self.place else {
            unreachable!("entries are read on from the one at the place")
        };
        // The history may have changed between the two commands.
        if first != *content {
            return self.begin_anew();
        }
        for next in following {
            next.iter().for_each(|text| keep_revocation(text, &self.kept, now));
            let entry = next.as_deref().map_or(Some(RevocationEntry::Gap), decode_revocation);
            *number += 1;
            *content = next;
            entry.into_iter().for_each(|entry| self.log.append(entry));
        }
        Some(LogRead::State(*number))
    }

    /// Goes on from the end of the log, whatever is before it.
    fn begin_anew(&mut self) -> Option<LogRead> {
        self.place = Place::Unknown;
        Some(LogRead::State(0))
    }

    /// Has every open exchange checked when it is time to. To be called after each round.
    pub fn request_due_checks(&mut self, now: Instant) {
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
